"""Errors and warnings as text: sentence, place, the line with a caret, hints."""

from __future__ import annotations

from collections.abc import Iterable

from argosy.errors import ArgosyError, InputErrors, Place
from argosy.spec.source.notes import Warning_

_RED, _YELLOW, _BLUE, _DIM, _BOLD, _PLAIN = (
    "\x1b[31;1m", "\x1b[33;1m", "\x1b[36m", "\x1b[2m", "\x1b[1m", "\x1b[0m",
)  # fmt: skip
SHOWN = 160  # characters of a line


def render(
    errors: ArgosyError | Iterable[ArgosyError], warnings: Iterable[Warning_], color: bool
) -> str:
    """The report, ending in a newline; "" when there is nothing to say."""
    blocks = [
        _block("error", _RED, error.text, error.place, error.hints, color)
        for error in _each(errors)
    ]
    blocks += [
        _block("warning", _YELLOW, one.text, one.place, (one.hint,), color) for one in warnings
    ]
    return "\n".join(blocks)


def _each(errors: ArgosyError | Iterable[ArgosyError]) -> Iterable[ArgosyError]:
    if isinstance(errors, InputErrors):
        return errors.errors
    return (errors,) if isinstance(errors, ArgosyError) else errors


def _block(
    word: str, paint: str, text: str, place: Place | None, hints: tuple[str, ...], color: bool
) -> str:
    def painted(code: str, what: str) -> str:
        return f"{code}{what}{_PLAIN}" if color else what

    lines = [f"{painted(paint, word + ':')} {painted(_BOLD, _safe(text))}"]
    if place is not None:
        lines.append(f"{painted(_BLUE, 'where:')} {_safe(str(place))}")
        lines += [painted(_DIM, line) for line in _source(place)]
    lines += [f"{painted(_BLUE, 'hint:')} {_safe(hint)}" for hint in hints if hint]
    return "\n".join(lines) + "\n"


def _source(place: Place) -> list[str]:
    """The line, and a caret below its column; the middle of a long line only."""
    if not place.source.strip():
        return []
    column = min(max(place.column, 1), len(place.source) + 1)
    start = max(0, column - SHOWN + 20) if column > SHOWN - 20 else 0
    shown = place.source[start : start + SHOWN]
    before = shown[: column - 1 - start]
    blank = "".join("\t" if letter == "\t" else " " * _width(letter) for letter in before)
    number = f"{place.line:>5} | "
    gap = " " * (len(number) - 2) + "| "
    caret = [f"{gap}{blank}^"] if place.column else []
    return [f"{number}{_safe(shown)}", *caret]


def _safe(text: str) -> str:
    """Without what a terminal would obey."""
    return "".join(
        letter if letter.isprintable() or letter == "\t" else f"\\x{ord(letter):02x}"
        for letter in text
    )


def _width(letter: str) -> int:
    """Columns that a letter takes: 2 for CJK and emoji, 0 for combining marks; 4 when escaped."""
    from unicodedata import combining, east_asian_width

    if not letter.isprintable():
        return len(_safe(letter))
    if combining(letter):
        return 0
    return 2 if east_asian_width(letter) in ("W", "F") else 1

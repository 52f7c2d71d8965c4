"""Tables of text: columns as wide as what is in them, nothing drawn around."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from argosy.cli.screen.paint import Paint

_SGR = re.compile(r"\x1b\[[0-9;]*m")
GAP = "  "


def width(text: str) -> int:
    """Columns that a text takes on a terminal."""
    plain = _SGR.sub("", text)
    if plain.isascii():
        return len(plain)
    return sum(_columns(char) for char in plain)


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, columns: int) -> str:
    """The text in at most so many columns; a cut one ends with `~`. Colours end with it."""
    if width(text) <= columns:
        return text
    kept, used, place, coloured = [], 0, 0, False
    while place < len(text) and used < columns - 1:
        if match := _SGR.match(text, place):
            kept.append(match.group())
            coloured = True
            place = match.end()
            continue
        used += _columns(text[place])
        kept.append(text[place])
        place += 1
    return "".join(kept) + "~" + ("\x1b[0m" if coloured else "")


def table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], paint: Paint, columns: int = 0
) -> list[str]:
    """Lines of a table; columns that are empty in every row are left out.

    `columns`: lines are cut to so many; 0 cuts nothing.
    """
    body = [list(row) for row in rows]
    used = [place for place in range(len(headers)) if any(row[place] for row in body) or place == 0]
    widths = [
        max([len(headers[place]), *(width(row[place]) for row in body)], default=0)
        for place in used
    ]
    head = [paint(_padded(headers[p], size), "dim") for p, size in zip(used, widths)]
    lines = [GAP.join(head).rstrip()]
    lines += [
        GAP.join(_padded(row[p], size) for p, size in zip(used, widths)).rstrip() for row in body
    ]
    return [cut(line, columns) for line in lines] if columns else lines


def _padded(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))

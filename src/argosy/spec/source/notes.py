"""What was found wrong, or doubtful, while a file was read: collected, never thrown one by one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from argosy.errors import InputError, InputErrors, Place
from argosy.model.secrets import maskable, masked

SOURCE_SHOWN = 200  # longest line that is shown with a caret, in characters
ERRORS_KEPT = 100  # more than so many help nobody; the last one says how many there were
BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # what YAML 1.1 counts as the end of a line


class Mark(NamedTuple):
    """Where something was written. Lines and columns count from 1.

    `flag` is set where the text came from the command line instead of the file.
    """

    line: int
    column: int
    flag: str = ""


NOWHERE = Mark(0, 0)


@dataclass(frozen=True, slots=True)
class Warning_:
    """Something that works, but may not be what was meant."""

    text: str
    place: Place | None = None
    hint: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class LocalPath:
    """A file or folder of the submitter that the file names. Whether it is there is not known."""

    what: str  # what it is for, in the words of a message
    path: str  # absolute, or from `~` when the home is not known
    place: Place


@dataclass(slots=True)
class Notes:
    """The errors and warnings of one file, each said once."""

    file: str
    lines: list[str]
    errors: list[InputError] = field(default_factory=list)
    warnings: list[Warning_] = field(default_factory=list)
    local_paths: list[LocalPath] = field(default_factory=list)
    said: set[tuple[Mark, str]] = field(default_factory=set)
    left_out: int = 0
    hidden: frozenset[int] | None = None  # lines that hold secrets; None: not looked for yet
    secrets: tuple[str, ...] = field(default=(), repr=False)  # values that no text may show

    def error(self, mark: Mark, code: str, text: str, hint: str | tuple[str, ...]) -> None:
        """Keep an error; `code` is without its `spec/`."""
        text, hints = self.shown(text), (hint,) if isinstance(hint, str) else hint
        if not self._new(mark, text):
            return
        if len(self.errors) >= ERRORS_KEPT:
            self.left_out += 1
            return
        hints = tuple(self.shown(one) for one in hints)
        place = self.place(mark)
        self.errors.append(InputError(text, code=f"spec/{code}", hint=hints, place=place))

    def warn(self, mark: Mark, code: str, text: str, hint: str = "") -> None:
        """Keep a warning; `code` is without its `spec/`."""
        text, hint = self.shown(text), self.shown(hint)
        if self._new(mark, text) and len(self.warnings) < ERRORS_KEPT:
            self.warnings.append(Warning_(text, self.place(mark), hint, f"spec/{code}"))

    def reads(self, mark: Mark, path: str, what: str) -> None:
        """Keep a path of the submitter, for those who can look whether it is there."""
        found = LocalPath(what, path, self.place(mark))
        if found not in self.local_paths:
            self.local_paths.append(found)

    def hide(self, values: Iterable[str]) -> None:
        """From now on no text shows these values of secrets."""
        self.secrets = maskable((*self.secrets, *values))

    def shown(self, text: str) -> str:
        """A text of what was read, without the values of secrets that were put into it."""
        return masked(text, self.secrets)

    def place(self, mark: Mark) -> Place:
        """The place in the words of `errors`, with the text of the line unless it is very long."""
        if mark.flag:
            return Place(mark.flag)
        if self.hidden is None:
            self.hidden = secret_lines(self.lines)
        known = 0 < mark.line <= len(self.lines) and mark.line not in self.hidden
        source = self.lines[mark.line - 1] if known else ""
        if len(source) > SOURCE_SHOWN:
            source = source[:SOURCE_SHOWN] if mark.column <= SOURCE_SHOWN else ""
        return Place(self.file, mark.line, mark.column, source)

    def raise_errors(self) -> None:
        """Raise all errors in the order of the file, if there are any."""
        if not self.errors:
            return
        self.errors.sort(key=_position)
        if self.left_out:
            self.errors.append(
                InputError(
                    f"{self.left_out} more errors are not shown",
                    code="spec/more-errors",
                    hint="correct those above and try again",
                )
            )
        raise InputErrors(tuple(self.errors))

    def sorted_warnings(self) -> tuple[Warning_, ...]:
        """The warnings in the order of the file."""
        return tuple(sorted(self.warnings, key=_position))

    def _new(self, mark: Mark, text: str) -> bool:
        key = (mark, text)
        fresh = key not in self.said
        self.said.add(key)
        return fresh


_SECRETS = re.compile(r"""['"]?secrets['"]?\s*:\s*(.*)""")
_OPEN, _CLOSE = "{['\"", "}]'\""


def secret_lines(lines: list[str]) -> frozenset[int]:
    """The lines below a key `secrets`, which no message shows; by indentation, since what cannot
    be parsed must not be shown either."""
    found: set[int] = set()
    inside = -1  # the indentation of the key `secrets` that we are below; -1: of none
    open_end = False  # a flow value has no end that indentation tells: hide the whole document
    for number, line in enumerate(lines, 1):
        text = line.strip()
        indent = len(line) - len(line.lstrip(" \t"))
        open_end = open_end and text != "---"
        if inside >= 0 and text and (indent < inside or (indent == inside and text[0] != "-")):
            inside = -1
        if inside >= 0 or open_end:
            found.add(number)
            continue
        key = _SECRETS.match(text)
        inside = indent if key else -1
        elsewhere = not key and _SECRETS.search(text) is not None
        if (key and key[1]) or elsewhere:
            found.add(number)
            open_end = elsewhere or bool(key and key[1][0] in _OPEN and key[1][-1] not in _CLOSE)
    return frozenset(found)


def _position(what: InputError | Warning_) -> tuple[int, int]:
    place = what.place
    return (place.line, place.column) if place else (1 << 30, 0)

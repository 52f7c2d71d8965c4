"""Every error of Argosy, as a tree drawn by who can mend it.

    ArgosyError
      InputError    2   the user's file or flag
      NotFound      3   no such group, task, node, file
      CapacityError 4   nobody has it now
      AccessError   5   credentials, quota, permission
      InfraError    6   a provider failed
      Conflict      7   someone else wrote first, or the name is taken
      Unreachable   8   no answer from the server or a host
      Broken       70   our fault: a check failed

The number is the exit status of the command line. Each error carries a stable code
(`spec/unknown-field`), one sentence, a place where there is one, and hints that are instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file something stands. Lines and columns count from 1; 0 means unknown."""

    file: str
    line: int = 0
    column: int = 0
    source: str = ""  # the text of the line, for the caret; "" when not known

    def __str__(self) -> str:
        if not self.line:
            return self.file
        column = f":{self.column}" if self.column else ""
        return f"{self.file}:{self.line}{column}"


class ArgosyError(Exception):
    """The root: `code`, `text` (one sentence), `place` and `hints` (instructions)."""

    exit_code: ClassVar[int] = 70
    default_code: ClassVar[str] = "broken"
    default_hint: ClassVar[str] = ""

    def __init__(
        self,
        text: str,
        *,
        code: str = "",
        hint: str | tuple[str, ...] = (),
        place: Place | None = None,
        retry: float = NEVER,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.code = code or self.default_code
        given = (hint,) if isinstance(hint, str) else tuple(hint)
        self.hints = tuple(h for h in given if h) or (
            (self.default_hint,) if self.default_hint else ()
        )
        self.place = place
        self.retry = retry  # seconds until it is worth trying again; NEVER: not by itself

    def fields(self) -> dict[str, Any]:
        """The error as plain data, as the API carries it."""
        place = self.place
        return {
            "error": type(self).__name__,
            "code": self.code,
            "text": self.text,
            "hints": list(self.hints),
            "where": str(place) if place else "",
            "file": place.file if place else "",
            "line": place.line if place else 0,
            "column": place.column if place else 0,
            "source": place.source if place else "",
            "retry": None if self.retry == NEVER else self.retry,
        }


class InputError(ArgosyError):
    """The user's file or flag is wrong: says file:line:col and the nearest valid word."""

    exit_code = 2
    default_code = "input"
    default_hint = "correct the value and try again"


class InputErrors(InputError):
    """Several input errors at once; `errors` holds them in the order of the file."""

    default_code = "input/several"

    def __init__(self, errors: tuple[InputError, ...]) -> None:
        count = len(errors)
        super().__init__(f"{count} error{'s' if count != 1 else ''} in the file")
        self.errors = errors

    def fields(self) -> dict[str, Any]:
        return {**super().fields(), "errors": [error.fields() for error in self.errors]}


class NotFound(ArgosyError):
    """No such group, task, node or file; the hint lists the near ones."""

    exit_code = 3
    default_code = "not-found"
    default_hint = "`argosy status` lists the groups"


class CapacityError(ArgosyError):
    """Nobody has it now."""

    exit_code = 4
    default_code = "capacity"
    default_hint = "`argosy plan FILE` shows what would fit"


class AccessError(ArgosyError):
    """Credentials, quota or permission are missing."""

    exit_code = 5
    default_code = "access"
    default_hint = "`argosy infra check` says what is missing"


class InfraError(ArgosyError):
    """A provider failed."""

    exit_code = 6
    default_code = "infra"
    default_hint = "`argosy infra check` says what works here"


class Conflict(ArgosyError):
    """Someone else wrote first, or the name is taken."""

    exit_code = 7
    default_code = "conflict"
    default_hint = "look again with `argosy status`, then repeat the command"


class Unreachable(ArgosyError):
    """No answer from the server or a host."""

    exit_code = 8
    default_code = "unreachable"
    default_hint = "`argosy doctor` says what is wrong with the server"


class Broken(ArgosyError):
    """Our own fault: something that must hold did not."""

    exit_code = 70
    default_code = "broken"
    default_hint = "`argosy doctor --bundle` collects what a report needs"


CLASSES: Final[dict[str, type[ArgosyError]]] = {
    kind.__name__: kind
    for kind in (
        ArgosyError, InputError, NotFound, CapacityError, AccessError, InfraError, Conflict,
        Unreachable, Broken,
    )
}  # fmt: skip


def from_fields(fields: dict[str, Any]) -> ArgosyError:
    """The error that `fields()` described: the same class, code, place and hints."""
    if fields.get("errors"):
        parts = tuple(from_fields(part) for part in fields["errors"])
        return InputErrors(tuple(part for part in parts if isinstance(part, InputError)))
    kind = CLASSES.get(str(fields.get("error")), Broken)
    place = None
    if fields.get("file"):
        place = Place(
            str(fields["file"]), int(fields["line"]), int(fields["column"]), str(fields["source"])
        )
    retry = fields.get("retry")
    return kind(
        str(fields.get("text", "")),
        code=str(fields.get("code", "")),
        hint=tuple(fields.get("hints", ())),
        place=place,
        retry=NEVER if retry is None else float(retry),
    )

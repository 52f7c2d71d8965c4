"""Options that several commands share, and the output that they choose."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

JSON = ("json", "jsonl")
_ASKED = re.compile(r"(?:^|\s)(?:-o\s?|--output[ =])jsonl?(?:\s|$)")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", re.IGNORECASE)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Duration(click.ParamType):  # type: ignore[type-arg]
    """`90`, `30s`, `5m`, `1h30m`: seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The seconds; a click error that shows the forms otherwise."""
        if isinstance(value, int | float):
            return float(value)
        parts = _DURATION.findall(value)
        if not parts or _DURATION.sub("", value).strip():
            self.fail(f"{value!r} is no duration; write 90, 30s, 5m or 1h30m", param, ctx)
        return sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts)


def output_option(*formats: str) -> Callable[[F], F]:
    """`-o/--output`; the first format is the default."""
    return click.option(
        "-o", "--output", type=click.Choice(formats), default=formats[0], show_default=True,
        help="How to print it.", callback=_note_output, is_eager=True,
    )  # fmt: skip


def _note_output(context: click.Context, _option: click.Parameter, value: str) -> str:
    if isinstance(context.obj, set) and value in JSON:
        context.obj.add("json")  # for what is said when the command fails
    return value


def asks_for_json(error: click.ClickException, words: Sequence[str]) -> bool:
    """Whether a command line that could not be read asks for JSON."""
    context = getattr(error, "ctx", None)
    known = context is not None and any(one.name == "output" for one in context.command.params)
    return known and bool(_ASKED.search(" ".join(words)))


def plain(value: Any) -> Any:
    """A view as JSON has it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


def emit_json(value: Any) -> None:
    """One JSON value, for people and programs."""
    emit(json.dumps(plain(value), indent=2, ensure_ascii=False))


def emit_json_line(value: Any) -> None:
    """One JSON value on a line of its own."""
    emit(json.dumps(plain(value), ensure_ascii=False))


def emit(text: str) -> None:
    """A line of data, to standard output."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def emit_lines(lines: Iterable[str]) -> None:
    """Lines of data."""
    emit("\n".join(lines))

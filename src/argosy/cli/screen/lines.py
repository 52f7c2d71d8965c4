"""Log bytes to lines for people: one source's pieces joined, progress bars collapsed, prefixes.

On a terminal a line that was rewritten with carriage returns shows its last state only. A bar that
never ends its line shows its newest state every `BAR_SECONDS`, so that a long step does not look
dead. What is not UTF-8 shows a replacement character, and only colours pass, no other control
sequence. Into a file or pipe the bytes of a line are as the program wrote them.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

from argosy.cli.screen.paint import TASK_COLOURS, Paint, terminal
from argosy.model.ids import dns_label

BAR_SECONDS = 10.0
PENDING_MOST = 4 << 20  # bytes of a line without an end that are kept back

_CONTROL = re.compile(
    r"\x1b(?!\[[0-9;]*m)(?:\[[0-?]*[ -/]*[@-~]|[\]P^_X].*?(?:\x07|\x1b\\)|[ -/]*[0-~])"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x7f]"
)
_SGR = re.compile(r"\x1b\[[0-9;]*m")


def collapsed(line: str) -> str:
    """What a terminal would show of a line that was rewritten with carriage returns."""
    line = line.removesuffix("\r")
    if "\r" not in line:
        return line
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")


def as_written(out: TextIO) -> bool:
    """Whether `out` takes the bytes of programs as they are: a file or pipe, made ready for it."""
    if terminal(out) or not isinstance(out, io.TextIOWrapper):
        return False
    out.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")
    return True


def tame(line: str) -> str:
    """A line that can colour a terminal, and do nothing else to it."""
    if "\x1b" not in line and line.isprintable():
        return line
    line = _CONTROL.sub("", line)
    return line + "\x1b[0m" if _SGR.search(line) else line


@dataclass(slots=True)
class Source:
    """The unfinished line of one attempt."""

    raw: bool = False  # as the program wrote it
    pending: bytes = b""
    bar_at: float | None = None  # when its bar was last shown

    def feed(self, data: bytes, at: float) -> list[str]:
        """The lines that `data` ends; `at` is when it was read."""
        whole, newline, rest = (self.pending + data).rpartition(b"\n")
        lines: list[str] = []
        if newline:
            text = self._text(whole)
            lines = text.split("\n")
            if "\r" in text and not self.raw:
                lines = [collapsed(line) for line in lines]
            self.bar_at = at
        self.pending = rest
        if len(rest) > PENDING_MOST:
            lines += self.end()
        elif b"\r" in rest and not self.raw:
            lines += self._bar(at)
        return lines

    def end(self) -> list[str]:
        """The line that was never ended, if any."""
        rest, self.pending = self.pending, b""
        if not rest:
            return []
        return [self._text(rest) if self.raw else collapsed(self._text(rest))]

    def _text(self, data: bytes) -> str:
        return data.decode("utf-8", "surrogateescape" if self.raw else "replace")

    def _bar(self, at: float) -> list[str]:
        self.bar_at = at if self.bar_at is None else self.bar_at
        head, _, newest = self.pending.rpartition(b"\r")
        if at - self.bar_at < BAR_SECONDS:
            # All but the newest states will never be seen again: they need no room.
            self.pending = head.rpartition(b"\r")[2] + b"\r" + newest
            return []
        self.bar_at = at
        self.pending = newest
        return [collapsed(head.decode("utf-8", "replace"))]


@dataclass(slots=True)
class LogLines:
    """Merges the chunks of many attempts into prefixed lines.

    `order` are the names of the group's tasks: the place of a task gives its colour.
    """

    order: tuple[str, ...]
    paint: Paint
    prefix: bool = True
    timestamps: bool = False
    tamed: bool = False
    raw: bool = False  # for an output that is `as_written`
    width: int = 0  # of the longest name that is expected: prefixes stand in one column
    stamp: Callable[[float], str] = field(default=lambda at: _stamp(at))
    _sources: dict[tuple[str, int, int], Source] = field(default_factory=dict)

    def feed(self, task: str, index: int, attempt: int, data: bytes, at: float) -> str:
        """The text to print for one chunk: whole lines, or "" when none is whole yet."""
        source = self._sources.setdefault((task, index, attempt), Source(self.raw))
        return self._printed(task, index, attempt, source.feed(data, at), at)

    def end(self, at: float) -> str:
        """What is left of every source."""
        return "".join(
            self._printed(*key, source.end(), at) for key, source in self._sources.items()
        )

    def _printed(self, task: str, index: int, attempt: int, lines: list[str], at: float) -> str:
        if not lines:
            return ""
        if self.tamed:
            lines = [tame(line) for line in lines]
        head = f"{self.stamp(at)} " if self.timestamps else ""
        head += self._label(task, index, attempt) if self.prefix else ""
        return "".join(f"{head}{line}\n" for line in lines)

    def _label(self, task: str, index: int, attempt: int) -> str:
        label = node_label(task, index, attempt)
        self.width = max(self.width, len(label))
        place = self.order.index(task) if task in self.order else len(self.order)
        colour = TASK_COLOURS[place % len(TASK_COLOURS)]
        return self.paint.code(f"[{label}]", colour) + " " * (self.width - len(label) + 1)


def node_label(task: str, index: int, attempt: int) -> str:
    """`trainer-0`, and `trainer-0@2` from the second attempt on."""
    name = f"{dns_label(task)}-{index}"
    return f"{name}@{attempt}" if attempt > 1 else name


def _stamp(at: float) -> str:
    """Local time with milliseconds: `2026-01-31T14:03:05.123`."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))
    return f"{whole}.{int(at % 1 * 1000):03d}"

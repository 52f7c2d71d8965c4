"""The story of a simulated world, told in words: who did what, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from argosy.model.group import Group, Stage
from argosy.model.ids import AttemptId, GroupId, LeaseId, NodeId


class Story:
    """Lines in the order of what happened. Words are put together only when it is told."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.lines: list[tuple[float, str, str, tuple[Any, ...]]] = []
        self.short: dict[str, str] = {}  # id -> the name that people read

    def say(self, at: float, who: str, text: str, *about: Any) -> None:
        """One line; `text` has a `{}` for each of `about`."""
        self.lines.append((at, who, text, about))

    def name_group(self, group: Group) -> None:
        """Call a group and what it has by name from here on."""
        short = self.short
        short[group.id] = group.spec.name
        for attempt in group.attempts:
            if attempt.id not in short:
                short[attempt.id] = f"{group.spec.name}/{attempt.node}#{attempt.number}"
        for lease in group.leases:
            if lease.id not in short:
                count = lease.id.rpartition("-")[2]
                short[lease.id] = f"{group.spec.name}/{lease.node}:L{count}"

    def name(self, what: GroupId | LeaseId | AttemptId | str) -> str:
        """The short name of an id, or the id."""
        return self.short.get(what, what)

    def told(self, keep: Callable[[str], bool] = lambda who: True) -> str:
        """The story, one line each: seconds since the start, who, what."""
        rows = []
        for at, who, text, about in self.lines:
            if keep(who):
                words = text.format(*(self.word(one) for one in about))
                rows.append(f"{at - self.start:9.2f}  {who:<12} {words}".rstrip())
        return "\n".join(rows)

    def word(self, one: Any) -> str:
        """One thing in words."""
        if isinstance(one, Stage):
            return one.name
        if isinstance(one, float):
            return f"{one:.1f}"
        if isinstance(one, NodeId):
            return str(one)
        if isinstance(one, tuple | list | set | frozenset):
            return ", ".join(self.word(part) for part in one)
        return self.name(str(one))

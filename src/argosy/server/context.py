"""What every router works with: the control plane, the home, and when the server closes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends
from starlette.requests import HTTPConnection

from argosy.errors import Conflict, NotFound
from argosy.model.group import Attempt, Group
from argosy.model.ids import NodeId
from argosy.server.agents import Doors
from argosy.server.rows import Rows

if TYPE_CHECKING:
    from argosy.control.control import Control


@dataclass(frozen=True, slots=True)
class Context:
    """One running server."""

    control: Control
    home: Path
    started_at: float
    stop: Callable[[], None]  # ask the server to end
    closing: asyncio.Event = field(default_factory=asyncio.Event)  # set: streams end now
    rows: Rows = field(default_factory=Rows)
    doors: Doors = field(default_factory=Doors)

    def now(self) -> float:
        """The server's time, in seconds since the epoch."""
        return self.control.clock.now()


async def _here(connection: HTTPConnection) -> Context:
    return cast(Context, connection.app.state.context)


Here = Annotated[Context, Depends(_here)]


def node_of(group: Group, task: str, index: int) -> NodeId:
    """The place of that name. Raises NotFound that lists what there is."""
    known = {one.name: one.num_nodes for one in group.spec.tasks}
    if task in known and 0 <= index < known[task]:
        return NodeId(task, index)
    there = ", ".join(
        f"{name}/0" if count == 1 else f"{name}/0..{count - 1}" for name, count in known.items()
    )
    raise NotFound(
        f"group {group.spec.name!r} has no node {task}/{index}",
        code="server/no-node",
        hint=f"it has {there}",
    )


def attempts_of(group: Group, node: NodeId) -> list[Attempt]:
    """The attempts on a node, oldest first."""
    return sorted((one for one in group.attempts if one.node == node), key=lambda one: one.number)


def newest_attempt(group: Group, task: str, index: int) -> Attempt:
    """The newest attempt on a node. Raises NotFound, or Conflict when there is none yet."""
    node = node_of(group, task, index)
    found = attempts_of(group, node)
    if not found:
        raise Conflict(
            f"{node} has not been started yet",
            code="server/not-started",
            hint=f"`argosy explain {group.spec.name}` says what it waits for",
        )
    return found[-1]


def live_attempt(group: Group, task: str, index: int) -> Attempt:
    """The attempt that runs on a node. Raises NotFound, or Conflict when none does."""
    attempt = newest_attempt(group, task, index)
    if not attempt.live:
        raise Conflict(
            f"{attempt.node} does not run: attempt {attempt.number} has ended ({attempt.outcome})",
            code="server/not-running",
            hint=f"`argosy logs {group.spec.name}/{task}/{index}` shows what it wrote",
        )
    return attempt

"""The client: one method for each thing that the server can do, with the errors of `argosy.errors`.

client = Client()
accepted = client.launch(launch_body("group.yaml"))
view = client.wait(accepted.id)
assert view.exit_code == 0

`argosy.sdk.aio` has the same client for programs that use asyncio.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from argosy.errors import NotFound
from argosy.sdk import requests, wire
from argosy.sdk.home import home_folder
from argosy.sdk.requests import Accepted, Chunk, Lines, LogQuery, PastEvent, Request, ServerView
from argosy.views.shapes import Explanation, GroupRow, Overview, PlanView

if TYPE_CHECKING:
    from argosy.sdk.channels import Channel

__all__ = ["Accepted", "Chunk", "Client", "LogQuery", "PastEvent", "ServerView", "node_of"]

T = TypeVar("T")


class Client:
    """Speaks to the server of one home; every call opens a connection of its own.

    `start`: a missing server is started by the first call that needs one.
    """

    def __init__(
        self, home: Path | None = None, *, start: bool = True, timeout: float = wire.CALL_TIMEOUT
    ) -> None:
        self.home = home or home_folder()
        self._start = start
        self._timeout = timeout

    def ensure_server(self) -> None:
        """Start the server when none runs. Raises NoServer when this client may not."""
        if self._start:
            from argosy.sdk.start import ensure_server

            ensure_server(self.home)

    def server(self) -> ServerView:
        """Who serves."""
        return self._call(requests.server())

    def stop_server(self) -> None:
        """End the server; running groups go on."""
        self._call(requests.stop_server())

    def plan(self, body: dict[str, Any]) -> PlanView:
        """What a launch of `body` would do; nothing is written."""
        return self._call(requests.plan(body))

    def launch(self, body: dict[str, Any]) -> Accepted:
        """Submit a group. Raises InputErrors, or Conflict when its name lives.

        Without a time-out: files are copied first, and with `replace` a group is ended first.
        """
        self.ensure_server()
        return self._once(requests.launch(body))

    def groups(self, *, ended: bool = False, limit: int | None = None) -> list[GroupRow]:
        """The groups, newest first."""
        return self._call(requests.groups(ended=ended, limit=limit))

    def group(self, ref: str) -> Overview:
        """One group now. Raises NotFound."""
        return self._call(requests.group(ref))

    def watch(self, ref: str) -> Iterator[Overview]:
        """The group now and after every change, until its phase is final."""
        return self._lines(requests.watch(ref))

    def spec(self, ref: str) -> dict[str, Any]:
        """The file as it was submitted and as it was understood, secrets masked."""
        return self._call(requests.spec(ref))

    def events(self, ref: str, *, since: int = 0, follow: bool = False) -> Iterator[PastEvent]:
        """What happened after `since`; with `follow` until the group has ended."""
        return self._lines(requests.events(ref, since=since, follow=follow))

    def explain(self, ref: str) -> Explanation:
        """Why it waits, and what would mend it."""
        return self._call(requests.explain(ref))

    def wait(self, ref: str, timeout: float | None = None) -> Overview | None:
        """The group once it has ended; None when `timeout` seconds passed before."""
        self.ensure_server()
        return self._once(requests.wait(ref, timeout))

    def cancel(self, ref: str, *, now: bool = False) -> None:
        """End a group; `now`: without grace."""
        self._call(requests.cancel(ref, now=now))

    def restart(self, ref: str, task: str = "", index: int | None = None) -> None:
        """Replace the attempts of a group, a task or a node."""
        self._call(requests.restart(ref, task, index))

    def remove(self, ref: str) -> None:
        """Forget an ended group and its logs. Raises Conflict while it lives."""
        self._call(requests.remove(ref))

    def logs(self, ref: str, query: LogQuery) -> Iterator[Chunk]:
        """What the attempts wrote, merged in the order in which it was read."""
        return self._lines(requests.logs(ref, query))

    def chaos(self, ref: str, what: str, task: str, index: int) -> None:
        """Break something on purpose: `kill`, `freeze`, `thaw`, `lose-host`, ..."""
        self._call(requests.chaos(ref, what, task, index))

    def infras(self) -> list[dict[str, Any]]:
        """What each infra can do here, as the API says it."""
        return self._call(requests.infras())

    def channel(self, ref: str, what: str, query: dict[str, object]) -> Channel:
        """A two-way stream: `exec`, `forward` or `copy`."""
        from argosy.sdk.channels import Channel

        self.ensure_server()
        return Channel(self.home, requests.channel(ref, what, query))

    def _call(self, request: Request[T]) -> T:
        """The answer; a missing server is started and asked again."""
        try:
            return self._once(request)
        except wire.NoServer:
            if not self._start:
                raise
        self.ensure_server()
        return self._once(request)

    def _once(self, request: Request[T]) -> T:
        timeout = None if request.endless else self._timeout + request.patience
        return request.read(
            *wire.call(self.home, request.method, request.path, request.body, timeout)
        )

    def _lines(self, lines: Lines[T]) -> Iterator[T]:
        self.ensure_server()
        for line in wire.stream(self.home, lines.path):
            value = lines.read(line)
            if value is not None:
                yield value


def node_of(view: Overview, task: str, index: int) -> str:
    """`trainer-1` for a task and an index. Raises NotFound with the nodes there are."""
    for one in view.tasks:
        if one.name == task and index < len(one.nodes):
            return one.nodes[index].node
    known = ", ".join(f"{one.name}/0..{len(one.nodes) - 1}" for one in view.tasks)
    raise NotFound(f"{view.name} has no node {task}/{index}", hint=f"it has {known}")

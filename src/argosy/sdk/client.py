"""The client: one method for each thing that the server can do, with the errors of `argosy.errors`.

client = Client()
accepted = client.launch(launch_body("group.yaml"))
view = client.wait(accepted.id)
assert view.exit_code == 0

`argosy.sdk.aio` has the same client for programs that use asyncio.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from argosy.errors import NotFound
from argosy.sdk import requests, wire
from argosy.sdk.home import home_folder
from argosy.sdk.requests import (
    Accepted,
    Chunk,
    Exported,
    Lines,
    LogQuery,
    PastEvent,
    Request,
    ServerView,
    VolumeChange,
    VolumeEnd,
)
from argosy.views.shapes import Explanation, GroupRow, Overview, PlanView
from argosy.views.volumes import VolumeRow

if TYPE_CHECKING:
    from argosy.sdk.channels import Channel

__all__ = [
    "Accepted",
    "Chunk",
    "Client",
    "Exported",
    "LogQuery",
    "PastEvent",
    "ServerView",
    "VolumeChange",
    "VolumeEnd",
    "node_of",
]

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

    def export(self, body: dict[str, Any]) -> Exported:
        """What an infra would be sent for a launch of `body`; nothing is made.

        `body` is one of a launch with `to` (the kind of infra), `context` and `whole`.
        """
        return self._call(requests.export(body))

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

    def remove(self, ref: str, *, force: bool = False) -> None:
        """Forget an ended group and its logs; `force`: though what may be left of it uses a volume.

        Raises Conflict while it lives and, without `force`, in that case.
        """
        self._call(requests.remove(ref, force=force))

    def logs(self, ref: str, query: LogQuery) -> Iterator[Chunk]:
        """What the attempts wrote, merged in the order in which it was read."""
        return self._lines(requests.logs(ref, query))

    def chaos(self, ref: str, what: str, task: str, index: int) -> None:
        """Break something on purpose: `kill`, `freeze`, `thaw`, `lose-host`, ..."""
        self._call(requests.chaos(ref, what, task, index))

    def infras(self, name: str = "") -> list[dict[str, Any]]:
        """What each infra can do here, as the API says it; `name`: those that it means."""
        return self._call(requests.infras(name))

    def hosts(self) -> list[dict[str, Any]]:
        """Every infra with its hosts, what is free on them and who holds the rest."""
        return self._call(requests.hosts())

    def offers(
        self, need: Sequence[str] = (), *, cpus: str = "", memory: str = "", infra: str = ""
    ) -> dict[str, Any]:
        """What could be had now for a need (as `resources.accelerators` has it), on each infra."""
        return self._call(requests.offers(need, cpus=cpus, memory=memory, infra=infra))

    def strangers(self, infra: str) -> dict[str, Any]:
        """What bears our mark on an infra and belongs to no group. Raises NotFound."""
        return self._call(requests.strangers(infra))

    def clean(self, infra: str, leases: Sequence[str]) -> dict[str, Any]:
        """End some of those; what was released, and what is left and why."""
        return self._call(requests.clean(infra, leases))

    def host_lost(
        self, host: str, infra: str = "", *, force: bool = False, by: str = ""
    ) -> dict[str, Any]:
        """The word that a host is gone. Raises Conflict when it answers, without `force`."""
        return self._call(requests.host_lost(host, infra, force=force, by=by))

    def host_forget(self, host: str, infra: str = "") -> dict[str, Any]:
        """Give up all that is on a host that will never come back. Raises NotFound, Conflict."""
        return self._call(requests.host_forget(host, infra))

    def volumes(self) -> list[VolumeRow]:
        """All volumes, by name."""
        return self._call(requests.volumes())

    def apply_volumes(self, text: str, file: str = "volume.yaml") -> list[VolumeChange]:
        """Make what a volume file describes. Raises InputErrors with every place, Conflict."""
        return self._call(requests.make_volumes({"file": file, "text": text}))

    def create_volume(self, flags: dict[str, str]) -> list[VolumeChange]:
        """Make one volume: `{"name": "data", "size": "100Gi", "config.host_path": "/mnt/data"}`."""
        return self._call(requests.make_volumes({"flags": flags}))

    def delete_volume(self, name: str, *, forget: bool = False) -> VolumeEnd:
        """Delete one that no group uses; `forget`: though who has its bytes does not answer.

        Raises NotFound, Conflict, and without `forget` Unreachable.
        """
        return self._call(requests.delete_volume(name, forget=forget))

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

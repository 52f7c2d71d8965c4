"""The client: one method for each thing that the server can do, with the errors of `argosy.errors`.

client = Client()
accepted = client.launch(launch_body("group.yaml"))
view = client.wait(accepted.id)
assert view.exit_code == 0
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from argosy.errors import NotFound
from argosy.sdk import wire
from argosy.sdk.decode import decode
from argosy.sdk.home import home_folder
from argosy.views.shapes import Explanation, GroupRow, Overview, PlanView

if TYPE_CHECKING:
    from argosy.sdk.channels import Channel


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to a launch."""

    id: str
    name: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerView:
    """What the server says of itself."""

    pid: int = 0
    version: str = ""
    home: str = ""
    started_at: float = 0.0
    life: int = 0
    server_id: str = ""
    groups: int = 0
    rss_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PastEvent:
    """One event of a group's history; `seq` is the cursor."""

    seq: int
    at: float
    code: str
    about: str
    text: str
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes that one attempt wrote; `offset` counts from the first it ever wrote."""

    task: str
    index: int
    attempt: int
    at: float
    offset: int
    data: bytes
    gap: int = 0  # so many bytes before `data` were freed
    note: str = ""  # why nothing of it can be read


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which log to read."""

    task: str = ""
    index: int | None = None
    attempt: int | None = None
    previous: bool = False
    tail: int | None = None  # lines
    since: float | None = None  # seconds ago
    grep: str = ""
    follow: bool = False

    def query(self) -> dict[str, object]:
        """As the API takes it."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


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
        return decode(ServerView, self._get("server"))

    def stop_server(self) -> None:
        """End the server; running groups go on."""
        self._call("POST", wire.path_of("server", "stop"))

    def plan(self, body: dict[str, Any]) -> PlanView:
        """What a launch of `body` would do; nothing is written."""
        return decode(PlanView, self._call("POST", wire.path_of("plan"), body)["plan"])

    def launch(self, body: dict[str, Any]) -> Accepted:
        """Submit a group. Raises InputErrors, or Conflict when its name lives.

        Without a time-out: files are copied first, and with `replace` a group is ended first.
        """
        self.ensure_server()
        answer = wire.call(self.home, "POST", wire.path_of("groups"), body, timeout=None)[1]
        return Accepted(answer["id"], answer["name"], tuple(answer.get("warnings", ())))

    def groups(self, *, ended: bool = False, limit: int | None = None) -> list[GroupRow]:
        """The groups, newest first."""
        answer = self._get("groups", query={"all": ended, "limit": limit})
        return [decode(GroupRow, one) for one in answer["groups"]]

    def group(self, ref: str) -> Overview:
        """One group now. Raises NotFound."""
        return decode(Overview, self._get("groups", ref))

    def watch(self, ref: str) -> Iterator[Overview]:
        """The group now and after every change, until its phase is final."""
        for line in self._stream("groups", ref, "watch"):
            yield decode(Overview, line)

    def spec(self, ref: str) -> dict[str, Any]:
        """The file as it was submitted and as it was understood, secrets masked."""
        answer: dict[str, Any] = self._get("groups", ref, "spec")
        return answer

    def events(self, ref: str, *, since: int = 0, follow: bool = False) -> Iterator[PastEvent]:
        """What happened after `since`; with `follow` until the group has ended."""
        query: dict[str, object] = {"since": since or None, "follow": follow}
        for line in self._stream("groups", ref, "events", query=query):
            yield decode(PastEvent, line)

    def explain(self, ref: str) -> Explanation:
        """Why it waits, and what would mend it."""
        return decode(Explanation, self._get("groups", ref, "explain"))

    def wait(self, ref: str, timeout: float | None = None) -> Overview | None:
        """The group once it has ended; None when `timeout` seconds passed before."""
        path = wire.path_of("groups", ref, "wait", query={"timeout": timeout})
        self.ensure_server()
        patience = timeout + self._timeout if timeout is not None else None
        status, answer = wire.call(self.home, "GET", path, timeout=patience)
        return None if status == 408 else decode(Overview, answer)

    def cancel(self, ref: str, *, now: bool = False) -> None:
        """End a group; `now`: without grace."""
        self._call("POST", wire.path_of("groups", ref, "cancel"), {"now": now})

    def restart(self, ref: str, task: str = "", index: int | None = None) -> None:
        """Replace the attempts of a group, a task or a node."""
        body = {"task": task, "index": index}
        self._call("POST", wire.path_of("groups", ref, "restart"), body)

    def remove(self, ref: str) -> None:
        """Forget an ended group and its logs. Raises Conflict while it lives."""
        self._call("DELETE", wire.path_of("groups", ref))

    def logs(self, ref: str, query: LogQuery) -> Iterator[Chunk]:
        """What the attempts wrote, merged in the order in which it was read."""
        for line in self._stream("groups", ref, "logs", query=query.query()):
            if "data" in line or "gap" in line or "note" in line:
                yield _chunk(line)

    def chaos(self, ref: str, what: str, task: str, index: int) -> None:
        """Break something on purpose: `kill`, `freeze`, `thaw`, `lose-host`, ..."""
        body = {"what": what, "task": task, "index": index}
        self._call("POST", wire.path_of("groups", ref, "chaos"), body)

    def infras(self) -> list[dict[str, Any]]:
        """What each infra can do here, as the API says it."""
        return list(self._get("infra")["infras"])

    def channel(self, ref: str, what: str, query: dict[str, object]) -> Channel:
        """A two-way stream: `exec`, `forward` or `copy`."""
        from argosy.sdk.channels import Channel

        self.ensure_server()
        return Channel(self.home, wire.path_of("groups", ref, what, query=query))

    def _get(self, *parts: object, query: dict[str, object] | None = None) -> Any:
        return self._call("GET", wire.path_of(*parts, query=query))

    def _call(self, method: str, path: str, body: object = None) -> Any:
        try:
            return wire.call(self.home, method, path, body, self._timeout)[1]
        except wire.NoServer:
            if not self._start:
                raise
        self.ensure_server()
        return wire.call(self.home, method, path, body, self._timeout)[1]

    def _stream(
        self, *parts: object, query: dict[str, object] | None = None
    ) -> Iterator[dict[str, Any]]:
        self.ensure_server()
        return wire.stream(self.home, wire.path_of(*parts, query=query))


def _chunk(line: dict[str, Any]) -> Chunk:
    start, end = line.get("gap") or (0, 0)
    offset = line.get("offset", end)
    return Chunk(
        task=str(line.get("task", "")),
        index=int(line.get("index", 0)),
        attempt=int(line.get("attempt", 1)),
        at=float(line.get("at", 0.0)),
        offset=int(offset),
        data=base64.b64decode(line.get("data", "")),
        gap=int(end - start),
        note=str(line.get("note", "")),
    )


def node_of(view: Overview, task: str, index: int) -> str:
    """`trainer-1` for a task and an index. Raises NotFound with the nodes there are."""
    for one in view.tasks:
        if one.name == task and index < len(one.nodes):
            return one.nodes[index].node
    known = ", ".join(f"{one.name}/0..{len(one.nodes) - 1}" for one in view.tasks)
    raise NotFound(f"{view.name} has no node {task}/{index}", hint=f"it has {known}")

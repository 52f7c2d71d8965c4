"""What can be asked of the server, each as a value: the path, the body, and how its answer is read.

The two clients send these, `sdk.client` while its caller waits and `sdk.aio` while others go on.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Generic, TypeVar

from argosy.sdk.decode import decode
from argosy.sdk.wire import path_of
from argosy.views.shapes import Explanation, GroupRow, Overview, PlanView
from argosy.views.volumes import VolumeRow

T = TypeVar("T")
AWAY_PATIENCE: Final = 60.0  # seconds beside the usual: an infra may be away
CLEAN_SECONDS: Final = 180.0  # beside the usual: looks, and the grace of what is ended


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to a launch."""

    id: str
    name: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Exported:
    """What an infra would be sent, and why nothing was chosen for it where that is so."""

    text: str
    notes: tuple[str, ...] = ()


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
    infras: tuple[str, ...] = ()  # names


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
class VolumeChange:
    """What was done for one volume: "created", "changed" or "unchanged"."""

    row: VolumeRow
    change: str


@dataclass(frozen=True, slots=True)
class VolumeEnd:
    """A volume that is no more."""

    row: VolumeRow
    stays: str = ""  # why bytes of it may be left where nobody could remove them


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


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """One question with one answer."""

    method: str
    path: str
    read: Callable[[int, Any], T]  # of the status and the JSON
    body: object = None
    endless: bool = False  # answered when something has happened: no time-out of the client's own
    patience: float = 0.0  # seconds that the server may take beside the usual


@dataclass(frozen=True, slots=True)
class Lines(Generic[T]):
    """One question with many answers, a line each."""

    path: str
    read: Callable[[dict[str, Any]], T | None]  # None: a line that says nothing


def server() -> Request[ServerView]:
    """Who serves."""
    return Request("GET", path_of("server"), lambda _, answer: decode(ServerView, answer))


def stop_server() -> Request[None]:
    """End the server."""
    return Request("POST", path_of("server", "stop"), _nothing)


def export(body: dict[str, Any]) -> Request[Exported]:
    """What an infra would be sent for a launch of `body`."""
    return Request("POST", path_of("export"), _exported, body, patience=AWAY_PATIENCE)


def _exported(_: int, answer: Any) -> Exported:
    return Exported(answer["text"], tuple(answer["notes"]))


def plan(body: dict[str, Any]) -> Request[PlanView]:
    """What a launch of `body` would do."""
    return Request(
        "POST", path_of("plan"), lambda _, answer: decode(PlanView, answer["plan"]), body
    )


def launch(body: dict[str, Any]) -> Request[Accepted]:
    """Submit a group: files are copied first, and with `replace` a group is ended first."""

    def read(_: int, answer: Any) -> Accepted:
        return Accepted(answer["id"], answer["name"], tuple(answer.get("warnings", ())))

    return Request("POST", path_of("groups"), read, body, endless=True)


def groups(*, ended: bool, limit: int | None) -> Request[list[GroupRow]]:
    """The groups, newest first."""
    path = path_of("groups", query={"all": ended, "limit": limit})
    return Request(
        "GET", path, lambda _, answer: [decode(GroupRow, one) for one in answer["groups"]]
    )


def group(ref: str) -> Request[Overview]:
    """One group now."""
    return Request("GET", path_of("groups", ref), lambda _, answer: decode(Overview, answer))


def watch(ref: str) -> Lines[Overview]:
    """The group now and after every change."""
    return Lines(path_of("groups", ref, "watch"), lambda line: decode(Overview, line))


def spec(ref: str) -> Request[dict[str, Any]]:
    """The file as it was submitted and as it was understood."""
    return Request("GET", path_of("groups", ref, "spec"), lambda _, answer: dict(answer))


def events(ref: str, *, since: int, follow: bool) -> Lines[PastEvent]:
    """What happened after `since`."""
    query: dict[str, object] = {"since": since or None, "follow": follow}
    path = path_of("groups", ref, "events", query=query)
    return Lines(path, lambda line: decode(PastEvent, line))


def explain(ref: str) -> Request[Explanation]:
    """Why it waits, and what would mend it."""
    return Request(
        "GET", path_of("groups", ref, "explain"), lambda _, answer: decode(Explanation, answer)
    )


def wait(ref: str, timeout: float | None) -> Request[Overview | None]:
    """The group once it has ended; None when `timeout` seconds passed before."""

    def read(status: int, answer: Any) -> Overview | None:
        return None if status == 408 else decode(Overview, answer)

    path = path_of("groups", ref, "wait", query={"timeout": timeout})
    return Request("GET", path, read, endless=timeout is None, patience=timeout or 0.0)


def cancel(ref: str, *, now: bool) -> Request[None]:
    """End a group."""
    return Request("POST", path_of("groups", ref, "cancel"), _nothing, {"now": now})


def restart(ref: str, task: str, index: int | None) -> Request[None]:
    """Replace the attempts of a group, a task or a node."""
    body = {"task": task, "index": index}
    return Request("POST", path_of("groups", ref, "restart"), _nothing, body)


def remove(ref: str, *, force: bool) -> Request[None]:
    """Forget an ended group and its logs."""
    return Request("DELETE", path_of("groups", ref, query={"force": force}), _nothing)


def logs(ref: str, query: LogQuery) -> Lines[Chunk]:
    """What the attempts wrote."""
    return Lines(path_of("groups", ref, "logs", query=query.query()), _chunk)


def chaos(ref: str, what: str, task: str, index: int) -> Request[None]:
    """Break something on purpose."""
    body = {"what": what, "task": task, "index": index}
    return Request("POST", path_of("groups", ref, "chaos"), _nothing, body)


def infras(name: str = "") -> Request[list[dict[str, Any]]]:
    """What each infra can do here; `name`: those that it means, which are asked in any case."""
    path = path_of("infra", query={"name": name})
    return Request("GET", path, lambda _, answer: list(answer["infras"]))


def hosts() -> Request[list[dict[str, Any]]]:
    """Every infra with its hosts, what is free on them and who holds the rest."""
    return Request("GET", path_of("infra", "hosts"), lambda _, answer: list(answer["infras"]))


def offers(need: Sequence[str], *, cpus: str, memory: str, infra: str) -> Request[dict[str, Any]]:
    """What could be had now for a need, on each infra."""
    query: dict[str, object] = {"need": need, "cpus": cpus, "memory": memory, "infra": infra}
    path = path_of("infra", "offers", query=query)
    return Request("GET", path, lambda _, answer: dict(answer), patience=AWAY_PATIENCE)


def strangers(infra: str) -> Request[dict[str, Any]]:
    """What bears our mark on an infra and belongs to no group."""
    path = path_of("infra", "strangers", query={"infra": infra})
    return Request("GET", path, lambda _, answer: dict(answer), patience=AWAY_PATIENCE)


def clean(infra: str, leases: Sequence[str]) -> Request[dict[str, Any]]:
    """End some of them."""
    body = {"infra": infra, "leases": list(leases)}
    path = path_of("infra", "clean")
    return Request("POST", path, lambda _, answer: dict(answer), body, patience=CLEAN_SECONDS)


def host_lost(host: str, infra: str, *, force: bool, by: str) -> Request[dict[str, Any]]:
    """The user's word that a host is gone."""
    body = {"host": host, "infra": infra, "force": force, "by": by}
    path = path_of("infra", "lost")
    return Request("POST", path, lambda _, answer: dict(answer), body, patience=AWAY_PATIENCE)


def host_forget(host: str, infra: str) -> Request[dict[str, Any]]:
    """Give up all that is on a host that will never come back."""
    body = {"host": host, "infra": infra}
    path = path_of("infra", "forget")
    return Request("POST", path, lambda _, answer: dict(answer), body, patience=AWAY_PATIENCE)


def volumes() -> Request[list[VolumeRow]]:
    """All volumes."""
    return Request(
        "GET",
        path_of("volumes"),
        lambda _, answer: [decode(VolumeRow, one) for one in answer["volumes"]],
    )


def make_volumes(body: dict[str, Any]) -> Request[list[VolumeChange]]:
    """Make volumes, or change them."""

    def read(_: int, answer: Any) -> list[VolumeChange]:
        return [
            VolumeChange(decode(VolumeRow, one), str(one["change"])) for one in answer["volumes"]
        ]

    return Request("POST", path_of("volumes"), read, body, endless=True)


def delete_volume(name: str, *, forget: bool) -> Request[VolumeEnd]:
    """Delete a volume: its bytes may take their time."""

    def read(_: int, answer: Any) -> VolumeEnd:
        return VolumeEnd(decode(VolumeRow, answer["volume"]), str(answer.get("stays", "")))

    path = path_of("volumes", name, query={"forget": forget})
    return Request("DELETE", path, read, endless=True)


def channel(ref: str, what: str, query: dict[str, object]) -> str:
    """The path of a two-way stream."""
    return path_of("groups", ref, what, query=query)


def _nothing(_status: int, _answer: Any) -> None:
    return None


def _chunk(line: dict[str, Any]) -> Chunk | None:
    if not {"data", "gap", "note"} & line.keys():
        return None
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

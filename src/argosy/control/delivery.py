"""Brings the files of a group to hosts that do not have them: the answer to an agent's `need`.

An agent gets the snapshots of tasks that hold a lease on its host, and nothing else, whatever path
it names. One transfer at a time for each agent and tree; the agent asks again until it has all, so
whatever breaks is begun anew where it stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from argosy.clock import Clock
from argosy.control import observer
from argosy.control.entry import Entry
from argosy.errors import ArgosyError, InfraError, Unreachable, from_fields
from argosy.infra.api import HostRef, Infra, Stream
from argosy.model.action import Event
from argosy.model.group import LeaseState
from argosy.model.ids import GroupId, InfraName, LeaseId, group_of
from argosy.model.spec import TaskSpec
from argosy.storage.outgoing import Outgoing, Snapshot

log = logging.getLogger("argosy.control.delivery")

AT_ONCE: Final = 16  # transfers, to all hosts together
AT_ONE_HOST: Final = 2  # a connection to a host has room for few streams
AGAIN_AFTER: Final = 2.0  # seconds from a transfer that broke to the next try
OPEN_TIMEOUT: Final = 30.0
ANSWER_TIMEOUT: Final = 120.0  # for an agent to look through what it has, or to take one frame
KEPT_MANIFESTS: Final = 4  # in memory while anything is sent: other hosts want the same


class Rim(Protocol):
    """What a delivery needs of the controller."""

    entries: dict[GroupId, Entry]

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> object:
        """Start a task and keep it."""

    def news(self, entry: Entry) -> None:
        """Decide about that group again."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """What an agent wants, after it was checked."""

    host: HostRef
    lease: LeaseId
    node: str
    tree: str
    path: str

    @property
    def key(self) -> tuple[HostRef, str]:
        return self.host, self.tree


class Delivery:
    """All transfers of one server."""

    def __init__(self, infras: Mapping[InfraName, Infra], clock: Clock, rim: Rim) -> None:
        self._infras, self._clock, self._rim = infras, clock, rim
        self._under_way: set[tuple[HostRef, str]] = set()
        self._again_at: dict[tuple[HostRef, str], float] = {}
        self._told: dict[tuple[HostRef, str], str] = {}  # why it does not come, as last told
        self._room = asyncio.Semaphore(AT_ONCE)
        self._room_at: dict[HostRef, asyncio.Semaphore] = {}
        self._snapshots: dict[str, Snapshot] = {}

    def need(self, host: HostRef, message: Mapping[str, Any]) -> None:
        """An agent asks for a tree; silent when it may not have it, or it is on the way."""
        lease = LeaseId(str(message.get("lease", "")))
        tree, path = str(message.get("tree", "")), str(message.get("path", ""))
        node = self._node(host, lease, tree, path)
        if node is None:
            log.warning("need-refused", extra={"host": host.host, "lease": lease})
            return
        wish = _Wish(host, lease, node, tree, path)
        if wish.key in self._under_way or self._again_at.get(wish.key, 0.0) > self._clock.now():
            return
        self._under_way.add(wish.key)
        self._rim.spawn(f"files {host.infra} {host.host} {tree}", self._tracked(wish))

    def _node(self, host: HostRef, lease: LeaseId, tree: str, path: str) -> str | None:
        """The node whose files these are; None when this host has no business with them."""
        entry = self._rim.entries.get(group_of(lease))
        if entry is None:
            return None
        where = Path(path).parts[-3:]
        for one in entry.group.leases:
            here = (one.placement.infra, one.host) == (host.infra, host.host)
            if one.id == lease and here and one.state < LeaseState.RELEASING:
                task = entry.group.spec.task(one.placement.node.task)
                if path in _paths(task) and where == ("snapshots", entry.group.id, tree):
                    return str(one.placement.node)
        return None

    async def _tracked(self, wish: _Wish) -> None:
        try:
            room = self._room_at.setdefault(wish.host, asyncio.Semaphore(AT_ONE_HOST))
            async with room, self._room:
                await self._deliver(wish)
            self._again_at.pop(wish.key, None)
            self._told.pop(wish.key, None)
        except (ArgosyError, OSError, ValueError, TypeError, KeyError) as error:
            self._again_at[wish.key] = self._clock.now() + AGAIN_AFTER
            self._failed(wish, error)
        finally:
            self._under_way.discard(wish.key)
            if not any(host == wish.host for host, _ in self._under_way):
                self._room_at.pop(wish.host, None)
            if not self._under_way:
                self._snapshots.clear()

    def _failed(self, wish: _Wish, error: Exception) -> None:
        text = error.text if isinstance(error, ArgosyError) else str(error) or repr(error)
        log.warning("files-not-sent", extra={"host": wish.host.host, "why": text})
        if not isinstance(error, Unreachable | OSError) and self._told.get(wish.key) != text:
            self._told[wish.key] = text
            self._event(wish, "files-not-sent", f"its files could not be sent: {text}")

    def _event(self, wish: _Wish, code: str, text: str) -> None:
        entry = self._rim.entries.get(group_of(wish.lease))
        if entry is not None:
            told = observer.told(entry.group, text)
            entry.events.append(Event(self._clock.now(), code, wish.node, told))
            self._rim.news(entry)

    # One transfer

    async def _deliver(self, wish: _Wish) -> None:
        try:
            snapshot = await self._snapshot(wish.path)
        except (FileNotFoundError, ValueError) as error:
            await self._tell_failed(wish, f"the snapshot of its files cannot be read: {error}")
            return
        stream = await self._opened(wish.host)
        try:
            await _say(stream, {"op": "store", "tree": wish.tree})
            answer = await _answer(stream)
            sent = 0
            if answer.get("lacks") == "manifest":
                sent += await _send_manifest(stream, snapshot)
                answer = await _answer(stream)
            if "lacks" in answer:
                outgoing = snapshot.outgoing(answer["lacks"], answer.get("begun") or {})
                answer = await _send_all(stream, outgoing)
                sent += outgoing.sent
            reused = max(0, snapshot.size - int(answer["got"]))
        finally:
            await stream.close()
        if sent:
            self._event(
                wish,
                "files-sent",
                f"{len(snapshot.lines)} files and folders, {snapshot.size} bytes: {sent} bytes "
                f"sent, {reused} bytes were there",
            )

    async def _snapshot(self, path: str) -> Snapshot:
        """The snapshot: several hosts want the same one at the same time. Raises OSError, and
        ValueError for one that cannot be read.
        """
        known = self._snapshots.get(path)
        if known is None or not await asyncio.to_thread(known.path.exists):
            self._snapshots.pop(path, None)
            known = await asyncio.to_thread(Snapshot, Path(path))
            self._snapshots[path] = known
            while len(self._snapshots) > KEPT_MANIFESTS:
                del self._snapshots[next(iter(self._snapshots))]
        return known

    async def _opened(self, host: HostRef) -> Stream:
        if host.infra not in self._infras:
            raise InfraError(f"infra {host.infra!r} is no longer configured")
        try:
            async with asyncio.timeout(OPEN_TIMEOUT):
                return await self._infras[host.infra].attach(host)
        except TimeoutError as error:
            raise Unreachable(f"the agent on {host.host} does not answer") from error

    async def _tell_failed(self, wish: _Wish, text: str) -> None:
        """What is not here any more never comes: whoever waits for it ends."""
        stream = await self._opened(wish.host)
        try:
            await _say(stream, {"op": "store", "tree": wish.tree, "failed": text})
            await _answer(stream)
        finally:
            await stream.close()


def _paths(task: TaskSpec) -> set[str]:
    """The snapshots of a task."""
    workdir = {task.workdir.path} if task.workdir else set()
    return workdir | {mount.source for mount in task.file_mounts}


async def _say(stream: Stream, message: Mapping[str, Any]) -> None:
    await _write(stream, json.dumps(message, separators=(",", ":")).encode() + b"\n")


async def _write(stream: Stream, data: bytes) -> None:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT):
            await stream.write(data)
    except TimeoutError as error:
        raise Unreachable("the host takes nothing any more") from error


async def _answer(stream: Stream) -> dict[str, Any]:
    """The next line of the agent. Raises Unreachable, and the error that it names."""
    return await _in_time(_heard(stream))


async def _in_time(answer: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT):
            return await answer
    except TimeoutError as error:
        raise Unreachable("the agent does not answer") from error


async def _heard(stream: Stream) -> dict[str, Any]:
    line = await stream.readline()
    if not line.endswith(b"\n"):
        raise Unreachable("the stream to the agent has ended")
    message: dict[str, Any] = json.loads(line)
    if "error" in message:
        raise from_fields(message)
    return message


async def _send_manifest(stream: Stream, snapshot: Snapshot) -> int:
    """Returns the bytes sent."""
    times = await asyncio.to_thread(snapshot.times)
    await _say(stream, {"manifest": len(snapshot.packed), "times": len(times)})
    await _write(stream, snapshot.packed + times)
    return len(snapshot.packed) + len(times)


async def _send_all(stream: Stream, outgoing: Outgoing) -> dict[str, Any]:
    """Send all frames; the answer to them. An agent that takes no more says why meanwhile."""
    try:
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(_heard(stream))
            with contextlib.suppress(Unreachable):  # it hung up: it may have said why
                await _send(stream, outgoing)
            return await _in_time(answer)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _send(stream: Stream, outgoing: Outgoing) -> None:
    """All frames; the next is made while one is written."""
    try:
        frame = await asyncio.to_thread(outgoing.frame)
        while frame:
            async with asyncio.TaskGroup() as group:
                group.create_task(_write(stream, frame))
                following = group.create_task(asyncio.to_thread(outgoing.frame))
            frame = following.result()
    except ExceptionGroup as errors:  # no `except*`: Python 3.11.2 keeps the group around it
        raise errors.exceptions[0] from None
    finally:
        outgoing.close()

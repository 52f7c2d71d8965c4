"""The logs of a group: one stream for each attempt, merged by the time at which they were read.

What is there already is merged in order; with `follow`, what comes later is sent as it comes, and
new attempts join. Each stream holds one chunk at most, and reads the next when that was taken.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from argosy.errors import ArgosyError, InfraError, InputError, NotFound, Unreachable
from argosy.infra.api import KeepsLogs, Stream
from argosy.model.codec import dumps
from argosy.model.group import Attempt, Group, Stage
from argosy.model.ids import AttemptId, NodeId
from argosy.server.agents import SILENT, opened, parsed
from argosy.server.answers import Out, line
from argosy.server.context import Context, attempts_of, node_of

log = logging.getLogger(__name__)

AGAIN_FIRST_S: Final = 0.2  # between tries to reach an agent that went away
AGAIN_MOST_S: Final = 5.0
TRIES_MOST: Final = 5  # for an attempt that has ended
SILENT_S: Final = 5.0  # without a line until the agent is asked whether it is there
DISK_CHUNK: Final = 1 << 16
DISK_BYTES: Final = 1 << 20  # of the end of a log, where the agent does not answer


Chunks = AsyncGenerator[tuple[float, bytes], None]  # times, and lines to send


class LogQuery(BaseModel):
    """Which log to read."""

    model_config = ConfigDict(extra="ignore")

    task: str = ""  # "": every task
    index: int | None = Field(None, ge=0)  # None: every node
    attempt: int | None = Field(None, ge=1)  # a number; None: every attempt
    previous: bool = False  # the attempt before the newest
    tail: int | None = Field(None, ge=0)  # lines, of the newest attempt
    since: float | None = Field(None, ge=0)  # seconds ago
    grep: str = ""  # a regular expression
    follow: bool = False

    def check(self, group: Group) -> None:
        """Raises NotFound for a task, node or attempt that is not there."""
        if self.task:
            node_of(group, self.task, self.index or 0)
        elif self.index is not None:
            raise InputError(
                "a node needs its task",
                code="server/node-without-task",
                hint=f"name it like {group.spec.name}/{group.spec.tasks[0].name}/{self.index}",
            )
        newest = max((_newest_number(group, node) for node in self.nodes(group)), default=0)
        following = self.follow and not group.phase.final  # then the next one may come
        if self.attempt is not None and self.attempt > max(1, newest + following):
            raise NotFound(
                f"there is no attempt {self.attempt}; the newest is {newest}",
                code="server/no-attempt",
                hint=f"`argosy events {group.spec.name}` tells of each attempt",
            )

    def nodes(self, group: Group) -> list[NodeId]:
        """The places whose logs are asked for."""
        return [
            node
            for node in group.spec.nodes()
            if (not self.task or node.task == self.task)
            and (self.index is None or node.index == self.index)
        ]

    def chosen(self, group: Group) -> list[Attempt]:
        """The attempts that are asked for, as far as they have begun."""
        found: list[Attempt] = []
        for node in self.nodes(group):
            begun = [one for one in attempts_of(group, node) if _begun(one)]
            if self.attempt is not None:
                found += [one for one in begun if one.number == self.attempt]
            elif self.previous:
                found += begun[-2:-1]
            else:
                found += begun[-1:] if self.tail is not None else begun
        return found

    def over(self, group: Group) -> bool:
        """Nothing that is asked for can begin any more."""
        if group.phase.final or self.previous:
            return True
        if self.attempt is not None:
            nodes = self.nodes(group)
            return all(_newest_number(group, node) >= self.attempt for node in nodes)
        settled = {node.id for node in group.nodes if node.settled is not None}
        return settled.issuperset(self.nodes(group))


def _begun(attempt: Attempt) -> bool:
    return attempt.seen or attempt.stage >= Stage.PREPARING


def _newest_number(group: Group, node: NodeId) -> int:
    return max((one.number for one in attempts_of(group, node) if _begun(one)), default=0)


@dataclass(slots=True, eq=False)
class Source:
    """The log of one attempt, and how far it was sent."""

    attempt: Attempt
    offset: int | None = None  # of the next byte; None: nothing was read yet
    ended: bool = False  # the agent said that nothing follows
    noted: bool = False  # it was said why nothing of it comes
    prefix: bytes = field(default=b"", init=False)

    def __post_init__(self) -> None:
        node, number = self.attempt.node, self.attempt.number
        named = dumps({"task": node.task, "index": node.index, "attempt": number})
        self.prefix = named[:-1].encode() + b","

    def named(self, raw: bytes) -> bytes:
        """A line of the agent with the attempt's name in it, without decoding the data."""
        return self.prefix + raw.lstrip()[1:].rstrip() + b"\n"

    def moved(self, message: dict[str, Any]) -> None:
        """Take note of how far a message reaches."""
        self.noted = False
        if "data" in message:
            data = message["data"]
            size = len(data) * 3 // 4 - data[-2:].count("=")
            self.offset = int(message["offset"]) + size
        elif "gap" in message:
            self.offset = int(message["gap"][1])
        elif "end" in message:
            self.offset = int(message["end"])


async def send_logs(here: Context, group: Group, query: LogQuery, out: Out) -> None:
    """Send what is asked for; with `follow` until nothing can follow."""
    since = here.now() - query.since if query.since is not None else None
    sources = [Source(attempt) for attempt in query.chosen(group)]
    await _send_merged(here, sources, query, since, out)
    if query.follow:
        await _Follower(here, query, out).run(group, sources)


# --- what is there already -----------------------------------------------------------------------


async def _send_merged(
    here: Context, sources: list[Source], query: LogQuery, since: float | None, out: Out
) -> None:
    """All chunks that exist now, in the order of their time."""
    asked = {"since": since, "tail": query.tail, "grep": query.grep or None}
    streams = [_existing(here, source, asked) for source in sources]
    try:
        heap = await _firsts(streams)
        while heap:
            _, number, data = heap[0]
            await out(data)
            following = await anext(streams[number], None)
            if following is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (following[0], number, following[1]))
    finally:
        await asyncio.gather(*(stream.aclose() for stream in streams))


async def _firsts(streams: list[Chunks]) -> list[tuple[float, int, bytes]]:
    """The first chunk of each stream that has one, as a heap: (time, number, line)."""
    firsts = await asyncio.gather(
        *(anext(stream, None) for stream in streams), return_exceptions=True
    )
    heap: list[tuple[float, int, bytes]] = []
    for number, first in enumerate(firsts):
        if isinstance(first, BaseException):
            raise first
        if first is not None:
            heapq.heappush(heap, (first[0], number, first[1]))
    return heap


async def _existing(here: Context, source: Source, asked: dict[str, Any]) -> Chunks:
    """The chunks of one attempt with their times; an agent that does not answer is told."""
    at = 0.0
    try:
        async with aclosing(_messages(here, source, {**asked, "follow": False})) as messages:
            async for raw, message in messages:
                at = float(message.get("at", at))
                yield at, source.named(raw)
    except NotFound as error:
        source.offset = 0
        if source.attempt.started_at:  # else nothing was written yet
            yield at, _note(source, error)
    except Unreachable as error:
        held = await _on_disk(here, source, asked)
        yield at, _note(source, error, from_disk=bool(held))
        for chunk in held:
            yield chunk
    except InfraError as error:
        yield at, _note(source, error)
    if not source.attempt.live:
        source.ended = True


async def _messages(
    here: Context, source: Source, asked: dict[str, Any]
) -> AsyncGenerator[tuple[bytes, dict[str, Any]], None]:
    """The lines of one `logs` stream but the last, which says where it ends."""
    wish = {"op": "logs", "attempt": source.attempt.id, "offset": source.offset, **asked}
    async with opened(here.control, source.attempt, wish) as stream:
        while message := parsed(raw := await _next_line(here, source.attempt, stream)):
            source.moved(message)
            if "end" in message:
                source.ended = bool(asked["follow"])
                return
            yield raw, message
    raise Unreachable(f"the agent of {source.attempt.node} ended the stream")


async def _next_line(here: Context, attempt: Attempt, stream: Stream) -> bytes:
    """The agent's next line, however long it has nothing to say. Raises Unreachable."""
    while True:
        try:
            async with asyncio.timeout(SILENT_S):
                return await stream.readline()
        except TimeoutError:
            await here.doors.knock(here.control, attempt, SILENT_S)


async def _on_disk(
    here: Context, source: Source, asked: dict[str, Any]
) -> list[tuple[float, bytes]]:
    """The end of a log whose agent does not answer, where its disk can be read from here.

    Nothing when a part was sent already, or it is to be filtered: that is the agent's work.
    """
    attempt = source.attempt
    infra = here.control.infras.get(attempt.infra)
    if source.offset is not None or asked["grep"] or not isinstance(infra, KeepsLogs):
        return []
    end = await infra.log_end(attempt.host, attempt.id, DISK_BYTES)
    if end is None or end.at < (asked["since"] or 0.0):
        return []
    skipped = 0
    if asked["tail"] is not None:
        lines = BytesIO(end.data).readlines()  # a carriage return ends none
        skipped = sum(map(len, lines[: max(0, len(lines) - asked["tail"])]))
    chunks = []
    for start in range(skipped, len(end.data), DISK_CHUNK):
        data = b64encode(end.data[start : start + DISK_CHUNK]).decode()
        message = {"offset": end.offset + start, "at": end.at, "data": data}
        source.moved(message)
        chunks.append((end.at, source.named(dumps(message).encode())))
    return chunks


def _note(source: Source, error: ArgosyError, *, from_disk: bool = False) -> bytes:
    """A line for people: why a log is not here."""
    node = source.attempt.node
    source.noted = True
    told = f"the log of {node} cannot be read: {error.text}"
    if from_disk:
        told = f"{error.text}: what follows is the end of the log of {node} as the disk has it"
    return line(
        {
            "task": node.task,
            "index": node.index,
            "attempt": source.attempt.number,
            "note": told,
        }
    )


# --- what comes later ----------------------------------------------------------------------------


class _Follower:
    """Follows the attempts of a group until no new ones can come and all have ended."""

    def __init__(self, here: Context, query: LogQuery, out: Out) -> None:
        self._here = here
        self._query = query
        self._out = out
        self._one_at_a_time = asyncio.Lock()
        self._known: set[AttemptId] = set()

    async def run(self, group: Group, sources: list[Source]) -> None:
        """`sources` were read up to their offsets when the group was `group`.

        Raises InputError for what an agent refuses.
        """
        try:
            await self._follow_all(group, sources)
        except ExceptionGroup as errors:  # no `except*`: Python 3.11.2 keeps the group around it
            raise errors.exceptions[0] from None

    async def _follow_all(self, group: Group, sources: list[Source]) -> None:
        async with asyncio.TaskGroup() as followers:
            for source in sources:
                self._known.add(source.attempt.id)
                if not source.ended:
                    followers.create_task(self._follow(source))
            while not self._query.over(group):
                try:
                    group = await self._here.control.changed(group.id, group.version)
                except NotFound:  # it was removed
                    return
                for attempt in self._query.chosen(group):
                    if attempt.id not in self._known:
                        self._known.add(attempt.id)
                        followers.create_task(self._follow(Source(attempt, offset=0)))

    async def _follow(self, source: Source) -> None:
        """Until the attempt's log has ended; an agent that goes away is asked again."""
        asked = {"grep": self._query.grep or None, "follow": True}
        pause, tries = AGAIN_FIRST_S, 0
        while not source.ended:
            before = source.offset
            try:
                async with aclosing(_messages(self._here, source, asked)) as messages:
                    async for raw, _ in messages:
                        async with self._one_at_a_time:
                            await self._out(source.named(raw))
            except InfraError as error:  # the agent itself tries again what may pass
                if not source.noted:
                    await self._tell(source, error)
                return
            except (NotFound, Unreachable) as error:
                moved = source.offset != before
                pause, tries = (AGAIN_FIRST_S, 0) if moved else (pause, tries + 1)
                if not self._lives(source.attempt):
                    if isinstance(error, NotFound):
                        return
                    if tries >= TRIES_MOST:
                        await self._tell(source, error)
                        return
                elif error.code == SILENT and not source.noted:
                    await self._tell(source, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, AGAIN_MOST_S)

    async def _tell(self, source: Source, error: ArgosyError) -> None:
        async with self._one_at_a_time:
            await self._out(_note(source, error))

    def _lives(self, attempt: Attempt) -> bool:
        try:
            group = self._here.control.find(attempt.id.partition(".")[0])
        except NotFound:
            return False
        return any(one.id == attempt.id and one.live for one in group.attempts)

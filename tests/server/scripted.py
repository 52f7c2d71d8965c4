"""An infra whose only host has an agent that a test scripts: it tells what the test wants seen.

It implements `infra.api.Infra` and the agent's side of the protocol, in memory: programs are not
started, they are told to have started, written, or ended.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from argosy.errors import Unreachable
from argosy.infra.api import Health, HostRef, HostView, LogEnd, Stream
from argosy.infra.local.agent import SocketStream
from argosy.model.action import LeaseRequest
from argosy.model.group import Stage
from argosy.model.ids import AttemptId, LeaseId
from argosy.model.needs import Capacity, Need
from argosy.model.observed import Look, SeenLease, SeenState
from argosy.model.plan import Offer

HOST = "h1"
ROOM = Capacity(64.0, 256.0)
HEARTBEAT_S = 2.0


@dataclass(slots=True)
class Program:
    """One attempt, as the agent tells of it."""

    lease: str
    order: dict[str, Any]
    stage: int = Stage.WAITING
    outcome: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    log: list[tuple[float, bytes]] = field(default_factory=list)
    grown: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ended(self) -> bool:
        return self.stage == Stage.ENDED

    def seen(self) -> dict[str, Any]:
        """The attempt in the words of a report."""
        return {
            "attempt": self.order["attempt"], "node": self.order["node"],
            "number": self.order["number"], "incarnation": self.order["incarnation"],
            "stage": int(self.stage), "outcome": self.outcome, "exit_code": self.exit_code,
            "signal": self.signal, "cause": "exit" if self.ended else "", "text": "",
            "address": "127.0.0.1", "healthy": self.stage == Stage.RUNNING, "at": 0.0,
        }  # fmt: skip

    def tell(self) -> None:
        """Wake who follows the log."""
        before, self.grown = self.grown, asyncio.Event()
        before.set()


class ScriptedInfra:
    """The infra `local` with one host; see the module."""

    name = "local"

    def __init__(self) -> None:
        self.programs: dict[str, Program] = {}  # by attempt
        self.leases: set[LeaseId] = set()
        self.broken: list[str] = []  # what was broken on purpose
        self.files: dict[str, bytes] = {}
        self.deaf = False  # no stream can be opened
        self.keeps = False  # what it is to release stays
        self.frozen = False  # streams are taken and nothing is said on them
        self.refusal: dict[str, str] = {}  # what `logs` is answered with, instead of a log
        self.disk: dict[str, bytes] = {}  # node -> its log, as it can be read without the agent
        self.open_streams = 0
        self.streams_taken = 0
        self.log_bytes = 0  # sent in answer to `logs`
        self._serials: dict[str, list[int]] = {}
        self._control: list[Stream] = []
        self._tasks: set[asyncio.Task[None]] = set()

    # --- what a test says ------------------------------------------------------------------------

    def program(self, node: str, number: int = 0) -> Program:
        """The newest attempt on a node, or the one of that number."""
        there = [one for one in self.programs.values() if one.order["node"] == node]
        found = [one for one in there if number in (0, one.order["number"])]
        return max(found, key=lambda one: int(one.order["number"]))

    async def write(self, node: str, data: bytes, at: float, number: int = 0) -> None:
        """The program of a node wrote `data` at that time."""
        program = self.program(node, number)
        program.log.append((at, data))
        program.tell()

    async def end(self, node: str, exit_code: int = 0) -> None:
        """The program of a node exits."""
        await self._ended(self.program(node), exit_code)

    async def close(self) -> None:
        """End every stream."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- the infra -------------------------------------------------------------------------------

    async def offers(self, need: Need) -> Sequence[Offer]:
        return [Offer(self.name, HOST, ROOM, ROOM, elastic_cpus=True)]

    async def acquire(self, request: LeaseRequest) -> None:
        self.leases.add(request.lease)

    async def release(self, lease: LeaseId) -> None:
        if not self.keeps:
            self.leases.discard(lease)

    async def sightings(self) -> Look:
        up = tuple(SeenLease(one, SeenState.UP, HOST) for one in sorted(self.leases))
        return Look(self.name, 0.0, up)

    async def attach(self, host: HostRef) -> Stream:
        if self.deaf:
            raise Unreachable("the agent does not answer", code="agent/silent")
        ours, theirs = socket.socketpair()
        server = await SocketStream.to(sock=theirs, limit=2**26)
        task = asyncio.ensure_future(self._serve(server))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await SocketStream.to(sock=ours)

    async def check(self) -> Health:
        return Health(self.name, works=True, facts=(("network", "host"),))

    async def hosts(self) -> Sequence[HostView]:
        return [HostView(HOST, ROOM, ROOM, "up", tuple(sorted(self.leases)))]

    async def log_end(self, host: str, attempt: AttemptId, most: int) -> LogEnd | None:
        data = self.disk.get(str(self.programs[attempt].order["node"]), b"")
        return LogEnd(100, 5.0, data[-most:]) if data else None

    async def break_host(self, host: str, what: str) -> None:
        self.broken.append(f"{host} {what}")

    # --- the agent -------------------------------------------------------------------------------

    async def _serve(self, stream: Stream) -> None:
        self.open_streams += 1
        self.streams_taken += 1
        try:
            wish = json.loads(await stream.readline())
            if self.frozen and wish["op"] != "control":
                await stream.read()
                return
            program = self.programs.get(wish.get("attempt", ""))
            if wish["op"] != "control" and program is None:
                await _say(stream, error="NotFound", code="agent/no-attempt", text="no attempt")
                return
            if wish["op"] == "control":
                await self._serve_control(stream)
            else:
                await getattr(self, f"_{wish['op']}")(stream, wish, program)
        except (OSError, Unreachable, ValueError):
            pass
        finally:
            self.open_streams -= 1
            await stream.close()

    async def _logs(self, stream: Stream, wish: Any, program: Program) -> None:
        if self.refusal:
            await _say(stream, **self.refusal)
            return
        offset, position, index = int(wish.get("offset") or 0), 0, 0
        while True:
            waiting = program.grown
            while index < len(program.log):
                at, data = program.log[index]
                rest = data[max(0, offset - position) :]
                if rest and at >= (wish.get("since") or 0.0):
                    start = position + len(data) - len(rest)
                    await _say(stream, offset=start, at=at, data=_packed(rest))
                    self.log_bytes += len(rest)
                position, index = position + len(data), index + 1
            if program.ended or not wish["follow"]:
                await _say(stream, end=max(position, offset))
                return
            if await _first(waiting.wait(), stream.read()) == b"":
                return  # nobody listens any more

    async def _exec(self, stream: Stream, wish: Any, program: Program) -> None:
        await _say(stream, stdout=_packed(" ".join(wish["argv"]).encode()))
        while raw := await stream.readline():
            message = json.loads(raw)
            if "stdin_end" in message:
                await _say(stream, exit_code=7)
                return
            await _say(stream, stdout=message["stdin"])

    async def _forward(self, stream: Stream, wish: Any, program: Program) -> None:
        if wish["port"] == 1:
            await _say(stream, error="Unreachable", code="agent/refused", text="nobody listens")
            return
        await _say(stream, ok=True)
        while data := await stream.read():
            await stream.write(data)

    async def _put(self, stream: Stream, wish: Any, program: Program) -> None:
        kept = b""
        while "end" not in (message := json.loads(await stream.readline())):
            kept += base64.b64decode(message["data"])
        self.files[wish["path"]] = kept
        await _say(stream, ok=True)

    async def _get(self, stream: Stream, wish: Any, program: Program) -> None:
        data = self.files.get(wish["path"])
        if data is None:
            await _say(stream, error="NotFound", code="agent/no-file", text="no such file")
            return
        await _say(stream, data=_packed(data))
        await _say(stream, end=True, mode=0o644)

    async def _chaos(self, stream: Stream, wish: Any, program: Program) -> None:
        self.broken.append(f"{program.order['node']} {wish['what']}")
        await _say(stream, ok=True)
        if wish["what"] == "kill":
            await self._ended(program, None, signal=9)

    # --- its control stream ----------------------------------------------------------------------

    async def _serve_control(self, stream: Stream) -> None:
        await _say(stream, type="hello", protocol=1, agent="0", boot_id="b1", pid=1, facts={})
        self._control = [stream]
        await self._report(full=True)
        beating = asyncio.ensure_future(self._beat(stream))
        try:
            while raw := await stream.readline():
                await self._take(json.loads(raw))
        finally:
            self._control = []
            beating.cancel()

    async def _beat(self, stream: Stream) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await _say(stream, type="heartbeat", at=0.0)

    async def _take(self, message: dict[str, Any]) -> None:
        if message["type"] == "ping":
            await self._report(full=True)
        elif message["type"] == "assign":
            lease = message["lease"]
            self._serials[lease] = message["serial"]
            for order in message["orders"]:
                self._obey(lease, order)
            await self._report()

    def _obey(self, lease: str, order: dict[str, Any]) -> None:
        program = self.programs.setdefault(order["attempt"], Program(lease, order))
        if program.ended:
            return
        if order["goal"] == Stage.ENDED:
            program.stage, program.outcome = Stage.ENDED, "stopped"
        else:
            program.stage = max(program.stage, order["goal"])
        program.tell()

    async def _ended(
        self, program: Program, exit_code: int | None, signal: int | None = None
    ) -> None:
        program.stage, program.exit_code, program.signal = Stage.ENDED, exit_code, signal
        program.outcome = "succeeded" if exit_code == 0 else "failed"
        program.tell()
        await self._report()

    async def _report(self, *, full: bool = False) -> None:
        leases = {
            lease: {
                "serial": serial,
                "attempts": [p.seen() for p in self.programs.values() if p.lease == lease],
            }
            for lease, serial in self._serials.items()
        }
        for stream in self._control:
            await _say(stream, type="report", at=0.0, boot_id="b1", full=full, leases=leases)


async def _say(stream: Stream, **message: Any) -> None:
    await stream.write(json.dumps(message).encode() + b"\n")


async def _first(*works: Coroutine[Any, Any, Any]) -> Any:
    """The answer of whichever ends first; the others are dropped."""
    tasks = [asyncio.ensure_future(one) for one in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for task in tasks:
            task.cancel()


def _packed(data: bytes) -> str:
    return base64.b64encode(data).decode()

"""What the infra suite tells its stories with: a bench, a control stream, programs, and looking."""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from argosy.errors import ArgosyError, Unreachable
from argosy.infra.api import Breaks, HostRef, Infra, Stream
from argosy.model.action import LeaseRequest
from argosy.model.ids import (
    GroupId,
    LeaseId,
    NodeId,
    Serial,
    ServerId,
    group_id,
    group_lease,
    lease_id,
)
from argosy.model.observed import SeenLease, SeenState
from argosy.model.plan import Offer, Placement

T = TypeVar("T")

DEADLINE: Final = 60.0  # seconds for anything that is to come true
ROUNDS: Final = 12  # of tests that interrupt something at different moments
LIFE: Final = 5
# As of a home of its own: what bears the mark of an id is ended by it, and suites run side by side.
GROUP: Final = group_id(ServerId(uuid.uuid4().hex), Serial(LIFE, 1))


class Bench(Protocol):
    """One infra under test."""

    infra: Infra
    network: str  # "isolated", "host" or "": what works
    breaks: Breaks  # breaks its hosts: the infra itself, or what stands behind real hosts
    lost_at_once: bool  # a lost host is known to be lost; else only once it is back, or given up
    shared_sight: bool  # what one life sees another sees at once; else it may be pending there yet
    lost_stay: bool  # a lost lease is shown until it is released; else until its host is back

    def placement(self, index: int) -> Placement:
        """Where node `index` of task `t` goes; 0, 1 and 2 fit together."""

    def full(self) -> Placement:
        """Takes everything that placement 0 might need; nothing beside it fits."""

    def never(self) -> Placement:
        """Would not fit even when nobody else is there."""

    async def again(self) -> Infra:
        """The same infra, as another process or a later life of the server opens it."""


def request(serial: int, placement: Placement, group: GroupId = GROUP) -> LeaseRequest:
    """Ask for a lease; equal serials are the same lease."""
    lease = lease_id(group, Serial(LIFE, serial))
    return LeaseRequest(lease, group, "suite", placement.node, placement, grace=1.0)


async def until(look: Callable[[], Awaitable[T]], wanted: Callable[[T], bool]) -> T:
    """Look until it is as wanted; fails with what was seen last."""
    try:
        async with asyncio.timeout(DEADLINE):
            while True:
                seen = await look()
                if wanted(seen):
                    return seen
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {DEADLINE:g} s; last seen: {seen}") from None


async def seen(infra: Infra) -> dict[LeaseId, SeenLease]:
    """What bears our mark, but for what is group-wide."""
    look = await infra.sightings()
    return {one.lease: one for one in look.leases if one.lease != group_lease(GROUP)}


async def up(infra: Infra, lease: LeaseId) -> SeenLease:
    """The lease, once it is up."""
    found = await until(
        lambda: seen(infra), lambda all: lease in all and all[lease].state is SeenState.UP
    )
    return found[lease]


async def held(infra: Infra, serial: int, placement: Placement) -> SeenLease:
    """Acquire, and wait until it is up."""
    asked = request(serial, placement)
    await infra.acquire(asked)
    return await up(infra, asked.lease)


async def mend(bench: Bench) -> None:
    """Mend hosts that a failed story left broken: a frozen one would keep what it holds."""
    for host in {one.host for one in (await seen(bench.infra)).values()}:
        await bench.breaks.break_host(host, "restore")


async def let_go(infra: Infra) -> None:
    """Release everything with our mark, and what is group-wide last, until nothing is seen."""

    async def again() -> dict[LeaseId, SeenLease]:
        left = await seen(infra)
        for lease in left:
            await infra.release(lease)
        return left

    await until(again, lambda left: not left)

    async def group_wide() -> tuple[SeenLease, ...]:
        for one in (look := await infra.sightings()).leases:
            await infra.release(one.lease)
        return look.leases

    await until(group_wide, lambda left: not left)


async def released(infra: Infra, lease: LeaseId) -> None:
    """Release one lease, again and again as a server does, until it is not seen."""

    async def again() -> bool:
        await infra.release(lease)
        return lease in await seen(infra)

    await until(again, lambda there: not there)


async def free(infra: Infra, placement: Placement) -> list[Offer]:
    """What the infra would give for the placement's need; which network may be found out late."""
    offers = [replace(offer, network="") for offer in await infra.offers(placement.need)]
    return sorted(offers, key=lambda offer: offer.host or "")


class Conversation:
    """A server's control stream to an agent, as short as a test needs it."""

    def __init__(self, stream: Stream, network: str = "") -> None:
        self.stream, self.network = stream, network
        self.attempts: dict[str, dict[str, Any]] = {}
        self._serials = itertools.count(1)

    @classmethod
    async def open(cls, infra: Infra, host: str, network: str = "") -> Conversation:
        """Attach and say hello."""
        talk = cls(await infra.attach(HostRef(infra.name, host)), network)
        await talk.say({"op": "control", "protocol": 1, "server": "suite", "life": LIFE})
        hello = await talk.hear()
        assert hello["type"] == "hello", hello
        return talk

    async def say(self, message: dict[str, Any]) -> None:
        """Send one message."""
        await self.stream.write(json.dumps(message).encode() + b"\n")

    async def hear(self) -> dict[str, Any]:
        """The next message; reports are remembered. Raises Unreachable at the end of the stream."""
        line = await self.stream.readline()
        if not line:
            raise Unreachable("the agent hung up")
        message: dict[str, Any] = json.loads(line)
        if message.get("type") == "report":
            for lease in message["leases"].values():
                self.attempts |= {one["attempt"]: one for one in lease["attempts"]}
        return message

    async def run(self, lease: LeaseId, node: NodeId, program: str, goal: int = 30) -> str:
        """Order a program (bash) on a lease, or bring it to another goal; the attempt's id."""
        attempt = f"{lease}-run"
        order = {
            "attempt": attempt, "node": str(node), "task": node.task, "index": node.index,
            "number": 1, "incarnation": 1, "goal": goal, "restart_reason": "", "grace": None,
            "gpu_indices": [], "env": {},
        }  # fmt: skip
        task = {
            "num_nodes": 1, "env": {}, "secrets": {}, "setup": "", "run": program,
            "strict": False, "grace": 1.0, "ready": None, "balance": [], "workdir": "",
            "file_mounts": [], "gpus": 0, "log_cap_bytes": 1 << 20, "ends_with": "all",
        }  # fmt: skip
        group = {"id": GROUP, "name": "suite", "incarnation": 1, "job_id": "1",
                 "network": self.network, "names": None, "user": ""}  # fmt: skip
        message = {
            "type": "assign",
            "lease": lease,
            "serial": [LIFE, next(self._serials)],
            "group": group,
            "tasks": {node.task: task},
            "orders": [order],
            "book": {"version": 1, "nodes": [], "balanced": []},
        }
        await self.say(message)
        return attempt

    async def stage(self, attempt: str, stage: int) -> dict[str, Any]:
        """The attempt, once it has come so far."""
        async with asyncio.timeout(DEADLINE):
            while self.attempts.get(attempt, {}).get("stage", -1) < stage:
                await self.hear()
        return self.attempts[attempt]

    async def close(self) -> None:
        """Hang up."""
        await self.stream.close()


async def log_lines(
    infra: Infra, host: str, attempt: str, patience: float | None
) -> tuple[list[bytes], int]:
    """What an agent answers to `logs`, and how often the wait for a line was cancelled."""
    stream = await infra.attach(HostRef(infra.name, host))
    await stream.write(json.dumps({"op": "logs", "attempt": attempt}).encode() + b"\n")
    found, cancelled = [b""], 0
    async with asyncio.timeout(DEADLINE):
        while len(found) == 1 or found[-1]:
            try:
                async with asyncio.timeout(patience):
                    found.append(await stream.readline())
            except TimeoutError:
                cancelled += 1
    await stream.close()
    return found[1:], cancelled


class Program:
    """A program with a child, and a daemon in a session of its own that ignores SIGTERM.

    Its processes are found on this machine, by an entry of their environment: where hosts are other
    machines, or in PID namespaces, the numbers that a program knows of itself say nothing here.
    """

    PROCESSES: Final = 3

    def __init__(self) -> None:
        self.entry = f"SUITE_PROGRAM={uuid.uuid4().hex}"

    @property
    def text(self) -> str:
        """bash: all but the shell itself bear the entry."""
        return f"""export {self.entry}
setsid bash -c 'trap "" TERM HUP; sleep 1000; true' &
sleep 1000
true
"""

    async def pids(self, count: int = PROCESSES) -> list[int]:
        """Their pids, once so many run."""

        async def look() -> list[int]:
            return await asyncio.to_thread(self._bearers)

        return await until(look, lambda found: len(found) >= count)

    def _bearers(self) -> list[int]:
        found = []
        for folder in Path("/proc").iterdir():
            try:
                if self.entry.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except (OSError, ValueError):
                continue
        return found

    @staticmethod
    def state(pid: int) -> str:
        """The state letter of a process; "" when it is gone, or a zombie."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return ""
        letter = stat.rpartition(")")[2].split()[0]
        return "" if letter in "ZX" else letter

    async def is_gone(self, pids: list[int]) -> None:
        """Wait until neither is left."""

        async def left() -> list[int]:
            return [pid for pid in pids if self.state(pid)]

        await until(left, lambda found: not found)


async def refusal(verb: Coroutine[Any, Any, object]) -> ArgosyError | None:
    """The error that a verb raised; None when it did what it was asked for."""
    try:
        await verb
    except ArgosyError as error:
        return error
    return None


async def unreachable(infra: Infra, host: str) -> None:
    """Attaching fails, and says so."""
    error = await refusal(infra.attach(HostRef(infra.name, host)))
    assert isinstance(error, Unreachable), f"{host} could be reached"
    assert error.hints


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[tuple[SeenLease, Program, list[int]]]:
    """A lease with a program that runs on it: (lease, program, its pids)."""
    program = Program()
    where = bench.placement(0)
    mine = await held(bench.infra, 1, where)
    talk = await Conversation.open(bench.infra, mine.host, bench.network)
    attempt = await talk.run(mine.lease, where.node, program.text)
    await talk.stage(attempt, 30)
    await talk.close()
    pids = await program.pids()
    yield mine, program, pids

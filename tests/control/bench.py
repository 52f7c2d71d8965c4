"""A controller on a real store, over an infra in memory whose hosts have agents on unix sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from argosy.clock import Clock
from argosy.control.controller import Controller
from argosy.control.entry import Entry
from argosy.errors import CapacityError, Unreachable
from argosy.infra.api import HostRef, Infra, Stream
from argosy.infra.local.agent import SocketStream
from argosy.model.action import LeaseRequest, Limits
from argosy.model.group import Attempt, Group
from argosy.model.ids import InfraName, LeaseId, Serial, group_id
from argosy.model.needs import Capacity, Need, usage
from argosy.model.observed import Look, SeenLease, SeenState
from argosy.model.plan import Offer
from argosy.model.spec import GroupSpec
from argosy.store.store import Store
from tests.control.agents import Agent

PATIENCE = 20.0  # seconds until a condition must hold
QUICK = Limits(suspect_after=1.0, release_margin=1.0)


async def until(holds: Callable[[], object], what: str = "") -> None:
    """Wait for a condition; fails after PATIENCE."""
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.01)
    assert holds(), what


class Skewed(Clock):
    """A clock whose machine may have been asleep."""

    slept = 0.0

    def now(self) -> float:
        return super().now() + self.slept


class Bench:
    """An infra in memory: fixed hosts, each with an agent."""

    fence_after = 0.0  # seconds; 0: none

    def __init__(self, folder: Path, name: InfraName, hosts: Sequence[str], cpus: float) -> None:
        self.name = name
        self.cpus = cpus
        self.agents = {host: Agent(folder / f"{host}.sock") for host in hosts}
        self.held: dict[LeaseId, tuple[str, LeaseRequest]] = {}
        self.strangers: list[SeenLease] = []
        self.acquired: list[LeaseId] = []
        self.released: list[LeaseId] = []
        self.refuse: CapacityError | None = None  # every acquire
        self.fail: Exception | None = None  # every look
        self.keep = False  # releases do nothing
        self.looks = 0
        self._moved = asyncio.Event()

    async def offers(self, need: Need) -> Sequence[Offer]:
        total = Capacity(self.cpus, 64.0)
        offers = []
        for host in self.agents:
            free = total
            for where, request in self.held.values():
                if where == host:
                    free = free.minus(usage(request.placement.need, None))
            offers.append(Offer(self.name, host, free, total))
        return offers

    async def acquire(self, request: LeaseRequest) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.acquired.append(request.lease)
        assert request.placement.host is not None
        self.held.setdefault(request.lease, (request.placement.host, request))
        self.moved()

    async def release(self, lease: LeaseId) -> None:
        self.released.append(lease)
        if self.keep:
            return
        host, _ = self.held.pop(lease, ("", None))
        if host:
            self.agents[host].leases.pop(lease, None)
        self.strangers = [one for one in self.strangers if one.lease != lease]
        self.moved()

    async def sightings(self) -> Look:
        self.looks += 1
        if self.fail is not None:
            raise self.fail
        held = [SeenLease(one, SeenState.UP, host) for one, (host, _) in self.held.items()]
        return Look(self.name, 0.0, (*held, *self.strangers))

    async def attach(self, host: HostRef) -> Stream:
        path = str(self.agents[host.host].path)
        try:
            return await SocketStream.to(path)
        except OSError as error:
            raise Unreachable(f"no agent on {host.host}") from error

    async def changed(self) -> None:
        await self._moved.wait()
        self._moved.clear()

    def moved(self) -> None:
        """Something changed: whoever watches looks again."""
        self._moved.set()


@dataclass
class World:
    """What a test moves."""

    store: Store
    clock: Skewed
    bench: Bench
    controller: Controller
    groups: int = 0
    wrong: list[str] = field(default_factory=list)

    async def submit(self, spec: GroupSpec) -> Entry:
        """Take a group in."""
        self.groups += 1
        id_ = group_id(self.store.server_id, Serial(self.controller.life, self.groups))
        group = Group(id_, spec, self.clock.now())
        return self.controller.add(await self.store.create(group, "source", ()))

    async def running(self, spec: GroupSpec) -> Entry:
        """Take a group in, and wait until all its programs run."""
        entry = await self.submit(spec)
        nodes = {str(node) for node in spec.nodes()}
        await until(lambda: {n for n, s in self.stages().items() if s == 30} >= nodes)
        await until(lambda: all(one.stage == 30 for one in entry.group.attempts))
        return entry

    def stages(self) -> dict[str, int]:
        """How far each node is, by its agent."""
        return {k: v for agent in self.bench.agents.values() for k, v in agent.stages().items()}

    def agent_of(self, attempt: Attempt) -> Agent:
        return self.bench.agents[attempt.host]

    async def over(self, entry: Entry, phase: str) -> None:
        """Wait until the group has ended so, and nothing of it is left."""
        await until(lambda: entry.group.clean)
        assert entry.group.phase == phase


@asynccontextmanager
async def world(
    folder: Path,
    *,
    hosts: Sequence[str] = ("h1",),
    cpus: float = 8.0,
    limits: Limits = QUICK,
    infras: dict[InfraName, Infra] | None = None,
    kind: type[Bench] = Bench,
) -> AsyncIterator[World]:
    """Everything up; afterwards everything is down, and nothing of ours still runs."""
    bench = kind(folder, "local", hosts, cpus)
    store = Store.open(folder / "store.db")
    clock = Skewed(store.newest_time())
    for agent in bench.agents.values():
        await agent.start()
    life = store.open_life(clock.now())
    known = {"local": bench, **(infras or {})}
    controller = Controller(store, clock, known, life=life, limits=limits, folder=folder)
    await controller.start()
    try:
        yield World(store, clock, bench, controller)
    finally:
        await controller.stop()
        for agent in bench.agents.values():
            agent.thaw()
            await agent.stop()
        store.close()
        assert [t for t in asyncio.all_tasks() if t.get_name().startswith(("group", "look"))] == []

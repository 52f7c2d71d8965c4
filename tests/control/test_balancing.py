"""What infras that balance connections themselves are told of who is healthy, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from argosy.clock import Clock
from argosy.control import balancing
from argosy.control.balancing import Balancing, addresses
from argosy.errors import InfraError
from argosy.model.group import Book, Group, Peer
from argosy.model.ids import GroupId, LeaseId, TaskName
from argosy.testing.builders import a_running_group, a_spec, a_task, node_of
from tests.control.bench import Bench, until, world

pytestmark = pytest.mark.anyio

ROLLOUT = a_task("rollout", 2, balance=(8000,))
TRAINER = a_task("trainer")


class Balancer(Bench):
    """Hosts of which each has an address of its own, with something that balances before them."""

    own_addresses = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.told: list[dict[LeaseId, bool]] = []
        self.fails: list[Exception] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.known: dict[TaskName, str] = {"rollout": "10.96.0.5"}

    def balanced_addresses(self, group: GroupId) -> Mapping[TaskName, str]:
        return self.known

    async def balance(self, healthy: Mapping[LeaseId, bool]) -> None:
        self.told.append(dict(healthy))
        if self.fails:
            raise self.fails.pop(0)
        await self.may_answer.wait()


class Here:
    """Balancing, with the tasks that it started."""

    def __init__(self, folder: Path) -> None:
        self.infra = Balancer(folder, "cluster", (), 1.0)
        self.tasks: list[asyncio.Task[None]] = []
        self.balancing = Balancing(Clock(), self._spawn)
        self.group = a_running_group(ROLLOUT, TRAINER)

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> object:
        self.tasks.append(asyncio.get_running_loop().create_task(work, name=name))
        return self.tasks[-1]

    def tell(self, infra: Bench | None = None, **healthy: bool) -> None:
        """Say what a book says: rollout_0=True."""
        nodes = {name.replace("_", "-"): one for name, one in healthy.items()}
        self.balancing.tell(infra or self.infra, self.group, a_book(self.group, nodes))

    def lease(self, node: str) -> LeaseId:
        return next(one.id for one in self.group.leases if one.node == node_of(node))

    def said(self) -> list[tuple[bool, ...]]:
        """What the infra was told, for rollout-0 and rollout-1."""
        both = [self.lease("rollout-0"), self.lease("rollout-1")]
        assert all(set(one) == set(both) for one in self.infra.told)
        return [tuple(one[lease] for lease in both) for one in self.infra.told]

    async def done(self) -> None:
        """Everything that was started has ended."""
        await asyncio.gather(*self.tasks)


def a_book(group: Group, healthy: Mapping[str, bool], *, live: bool = True) -> Book:
    """Every node lives; those that are named are as healthy as it says."""
    peers = tuple(
        Peer(one.node, one.number, one.address, live, healthy.get(str(one.node), True))
        for one in group.attempts
    )
    return Book(2, peers)


@asynccontextmanager
async def here(folder: Path) -> AsyncIterator[Here]:
    made = Here(folder)
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)


async def test_it_is_told_once_for_each_change(folder: Path) -> None:
    async with here(folder) as at:
        for healthy in (False, False, True, True, True, False):
            at.tell(rollout_0=healthy)
            await at.done()
        assert at.said() == [(False, True), (True, True), (False, True)]


async def test_a_change_elsewhere_is_no_change(folder: Path) -> None:
    async with here(folder) as at:
        at.tell()
        await at.done()
        at.tell(trainer_0=False)
        await at.done()
        assert at.said() == [(True, True)]


async def test_who_does_not_live_is_not_healthy(folder: Path) -> None:
    async with here(folder) as at:
        at.balancing.tell(at.infra, at.group, a_book(at.group, {}, live=False))
        await at.done()
        assert at.said() == [(False, False)]


async def test_a_node_on_another_lease_is_news(folder: Path) -> None:
    async with here(folder) as at:
        at.tell()
        await at.done()
        moved = tuple(
            replace(one, lease=LeaseId("new")) if one.id == node_of("rollout-0") else one
            for one in at.group.nodes
        )
        group = replace(at.group, nodes=moved)
        at.balancing.tell(at.infra, group, a_book(group, {}))
        await at.done()
        assert at.infra.told[-1] == {LeaseId("new"): True, at.lease("rollout-1"): True}


async def test_what_failed_is_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balancing, "RETRY", 0.01)
    async with here(folder) as at:
        at.infra.fails = [InfraError("busy", code="kubernetes/busy"), OSError("reset")]
        at.tell(rollout_1=False)
        await at.done()
        assert at.said() == [(True, False)] * 3


async def test_after_a_failure_only_the_newest_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balancing, "RETRY", 0.05)
    async with here(folder) as at:
        at.infra.fails = [InfraError("busy", code="kubernetes/busy")]
        at.tell(rollout_0=False)
        await until(lambda: at.infra.told)
        at.tell(rollout_0=True, rollout_1=False)
        at.tell(rollout_0=True)
        await at.done()
        assert at.said() == [(False, True), (True, True)]


async def test_the_newest_wins_while_one_is_under_way(folder: Path) -> None:
    async with here(folder) as at:
        at.infra.may_answer.clear()
        at.tell(rollout_0=False)
        await until(lambda: at.infra.told)
        for healthy in (True, False, True):
            at.tell(rollout_0=healthy, rollout_1=False)
        assert len(at.infra.told) == 1  # never two at once
        at.infra.may_answer.set()
        await at.done()
        assert at.said() == [(False, True), (True, False)]
        assert len(at.tasks) == 1


async def test_a_change_that_was_taken_back_meanwhile_is_not_said(folder: Path) -> None:
    async with here(folder) as at:
        at.infra.may_answer.clear()
        at.tell(rollout_0=False)
        await until(lambda: at.infra.told)
        at.tell(rollout_0=True)
        at.tell(rollout_0=False)
        at.infra.may_answer.set()
        await at.done()
        assert at.said() == [(False, True)]


async def test_a_forgotten_group_is_said_no_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balancing, "RETRY", 0.05)
    async with here(folder) as at:
        at.infra.fails = [InfraError("gone", code="kubernetes/not-found")] * 100
        at.tell()
        await until(lambda: at.infra.told)
        at.balancing.forget(at.group.id)
        await at.done()
        assert len(at.infra.told) == 1
        at.infra.fails = []
        at.tell()
        await at.done()
        assert len(at.infra.told) == 2


async def test_another_group_is_not_forgotten_with_it(folder: Path) -> None:
    async with here(folder) as at:
        other = replace(at.group, id=GroupId("g1-1-2"))
        for group in (at.group, other):
            at.balancing.tell(at.infra, group, a_book(group, {}))
        await at.done()
        at.balancing.forget(at.group.id)
        for group in (at.group, other):
            at.balancing.tell(at.infra, group, a_book(group, {}))
        await at.done()
        assert len(at.infra.told) == 3


async def test_without_balanced_tasks_nothing_is_said(folder: Path) -> None:
    async with here(folder) as at:
        at.group = a_running_group(TRAINER)
        at.tell()
        assert not at.tasks


async def test_an_infra_whose_hosts_have_proxies_is_told_nothing(folder: Path) -> None:
    async with here(folder) as at:
        at.tell(Bench(folder, "plain", (), 1.0))
        assert not at.tasks
        assert addresses(Bench(folder, "plain", (), 1.0), at.group.id) == {}
        assert addresses(at.infra, at.group.id) == {"rollout": "10.96.0.5"}


# The controller


async def test_agents_are_told_the_infras_address_and_the_infra_who_is_healthy(
    folder: Path,
) -> None:
    async with world(folder, hosts=("h1", "h2"), kind=Balancer) as at:
        assert isinstance(at.bench, Balancer)
        entry = await at.running(a_spec(ROLLOUT, network="host"))
        leases = {one.id for one in entry.group.leases}
        await until(lambda: at.bench.told and at.bench.told[-1] == dict.fromkeys(leases, True))
        told = [m for one in at.bench.agents.values() for m in one.told if m["type"] == "assign"]
        assert {one["address"] for m in told for one in m["book"]["balanced"]} == {"10.96.0.5"}
        assert all(m["group"]["spread"] for m in told)


async def test_without_one_of_the_infra_the_agents_have_the_address(folder: Path) -> None:
    async with world(folder) as at:
        await at.running(a_spec(ROLLOUT))
        told = [m for one in at.bench.agents.values() for m in one.told if m["type"] == "assign"]
        assert told
        assert not [one for m in told for one in m["book"]["balanced"] if "address" in one]
        assert not [m for m in told if m["group"]["spread"]]

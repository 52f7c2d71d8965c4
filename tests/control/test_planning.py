"""What infras are asked before a plan: each for all that may make a difference, all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from argosy.clock import Clock
from argosy.control import planning
from argosy.errors import Unreachable
from argosy.model.action import Replan
from argosy.model.ids import ZERO
from argosy.model.needs import Accelerator, Capacity, Need
from argosy.model.plan import NoPlan, Offer, Plan
from argosy.model.spec import GroupSpec
from argosy.testing.builders import a_spec, a_task

pytestmark = pytest.mark.anyio

CARD = Accelerator("X9000", 1)


@dataclass
class Market:
    """An infra that makes a host with the cards that it is asked for, and has one without."""

    name: str
    asked: list[Need] = field(default_factory=list)
    meets: asyncio.Barrier | None = None
    away: bool = False

    async def offers(self, need: Need) -> Sequence[Offer]:
        self.asked.append(need)
        if self.meets is not None:
            await self.meets.wait()
        if self.away:
            raise Unreachable(f"{self.name} is away")
        plain, made = Capacity(4.0, 16.0), Capacity(8.0, 64.0, need.accelerators)
        return (
            Offer(self.name, "h1", plain, plain),
            Offer(self.name, None, made, made, 10, ready_after=60.0),
        )


def group(*needs: Need) -> GroupSpec:
    return a_spec(*(
        a_task(f"t{number}", needs=(need,)) for number, need in enumerate(needs)
    ))  # fmt: skip


async def answered(spec: GroupSpec, *markets: Market) -> Plan | NoPlan:
    request = Replan(ZERO, tuple(spec.nodes()), ())
    infras = {one.name: one for one in markets}
    return await planning.answer(request, spec, infras, Clock(0.0))  # type: ignore[arg-type]


async def test_the_need_of_every_task_is_asked_for() -> None:
    market = Market("cloud/a")
    plain = Need(infra="cloud/a", cpus=1.0)
    cards = replace(plain, accelerators=(CARD,))
    found = await answered(group(plain, plain, cards), market)
    assert isinstance(found, Plan), found
    assert [one.host for one in found.placements] == ["h1", "h1", None]
    assert market.asked == [plain, cards]  # equal ones once


async def test_a_host_counts_once_however_often_it_was_offered() -> None:
    market = Market("cloud/a")
    plain = Need(infra="cloud/a", cpus=3.0)
    spot = replace(plain, use_spot=True)
    found = await answered(group(plain, spot), market)
    assert isinstance(found, Plan), found
    assert sorted(str(one.host) for one in found.placements) == ["None", "h1"]


async def test_infras_are_asked_at_once_and_a_silent_one_is_told_once() -> None:
    both = asyncio.Barrier(2)  # passes nobody who comes alone
    first, second = Market("cloud/a", meets=both), Market("cloud/b", meets=both, away=True)
    need = Need(infra="cloud", cpus=100.0)
    async with asyncio.timeout(10.0):
        found = await answered(group(need, need), first, second)
    assert isinstance(found, NoPlan)
    assert [line for line in found.report.refused if "away" in line] == ["cloud/b: cloud/b is away"]

"""The control stream to one agent, over a real unix socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from argosy.clock import Clock
from argosy.control import links
from argosy.control.fences import Fences
from argosy.control.links import AgentLink
from argosy.infra.api import HostRef
from argosy.model.ids import LeaseId, Serial
from argosy.tasks import until_one_ends
from tests.control.agents import Agent
from tests.control.bench import Bench, Skewed, until

pytestmark = pytest.mark.anyio

HELLO = {"op": "control", "protocol": 1, "server": "s", "life": 7}
LEASE = LeaseId("g1-1.1-1")


class Ears:
    """Keeps what was heard."""

    def __init__(self) -> None:
        self.reports: list[tuple[Mapping[str, Any], bool]] = []
        self.events: list[Mapping[str, Any]] = []
        self.wanted: list[Mapping[str, Any]] = []
        self.spoken = 0

    def heard(self, link: AgentLink, leases: Mapping[str, Any], *, full: bool) -> None:
        self.reports.append((leases, full))

    def told(self, event: Mapping[str, Any]) -> None:
        self.events.append(event)

    def needs(self, link: AgentLink, message: Mapping[str, Any]) -> None:
        self.wanted.append(message)

    def spoke(self, link: AgentLink) -> None:
        self.spoken += 1


@asynccontextmanager
async def linked(
    folder: Path, clock: Clock | None = None, kind: type[Agent] = Agent
) -> AsyncIterator[tuple[AgentLink, Agent, Ears]]:
    """A link that runs, its agent, and what was heard."""
    bench, ears = Bench(folder, "local", ["h1"], 1.0), Ears()
    agent = bench.agents["h1"] = kind(bench.agents["h1"].path)
    await agent.start()
    fence = Fences(None, 0.0).of(bench, HostRef("local", "h1"))
    link = AgentLink(bench, "h1", hello=HELLO, clock=clock or Clock(), listener=ears, fence=fence)
    task = asyncio.create_task(link.run())
    try:
        yield link, agent, ears
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        agent.thaw()
        await agent.stop()


def assign(count: int, *orders: dict[str, Any]) -> tuple[LeaseId, Serial, dict[str, Any]]:
    message = {"type": "assign", "lease": LEASE, "serial": [1, count], "orders": list(orders)}
    return LEASE, Serial(1, count), message


def assigned(agent: Agent) -> list[int]:
    """The serials of the assignments that the agent was told."""
    return [one["serial"][1] for one in agent.told if one["type"] == "assign"]


async def test_a_link_says_who_it_is_and_takes_the_full_report(folder: Path) -> None:
    async with linked(folder) as (link, agent, ears):
        await until(lambda: ears.reports)
        assert agent.hellos == [HELLO]
        assert ears.reports == [({}, True)]
        assert link.boot_id == "boot-1"
        assert link.heard_at > 0


async def test_an_assignment_arrives_once(folder: Path) -> None:
    async with linked(folder) as (link, agent, _):
        link.post(*assign(1))
        await until(lambda: assigned(agent) == [1])
        link.post(*assign(2))
        await until(lambda: assigned(agent) == [1, 2])
        assert link.has(LEASE, Serial(1, 2))
        assert not link.has(LEASE, Serial(1, 3))


async def test_an_assignment_is_repeated_when_asked(folder: Path) -> None:
    async with linked(folder) as (link, agent, _):
        link.post(*assign(1))
        await until(lambda: assigned(agent) == [1])
        link.repeat(LEASE)
        await until(lambda: assigned(agent) == [1, 1])


async def test_the_newest_assignment_is_sent_on_every_new_connection(folder: Path) -> None:
    async with linked(folder) as (link, agent, _):
        link.post(*assign(1))
        link.post(*assign(2))
        await until(lambda: 2 in assigned(agent))
        await agent.stop()
        agent.told.clear()
        await agent.start()
        await until(lambda: assigned(agent) == [2])


async def test_nothing_is_said_before_the_agent_has_told_all_that_it_knows(folder: Path) -> None:
    async with linked(folder) as (link, agent, ears):
        await until(lambda: ears.reports)
        await agent.stop()
        agent.freeze()
        link.post(*assign(1))
        await agent.start()
        reports = len(ears.reports)
        agent.thaw()
        await until(lambda: assigned(agent) == [1])
        assert len(ears.reports) > reports


async def test_what_is_dropped_is_not_said_again(folder: Path) -> None:
    async with linked(folder) as (link, agent, ears):
        link.post(*assign(1))
        await until(lambda: assigned(agent) == [1])
        link.drop(LEASE)
        await agent.stop()
        agent.told.clear()
        await agent.start()
        await until(lambda: len(agent.hellos) == 2)
        link.ping()
        await until(lambda: agent.told)
        assert agent.told == [{"type": "ping", "n": 0}]
        assert ears.spoken == 1


async def test_an_answer_to_a_ping_is_news(folder: Path) -> None:
    async with linked(folder) as (link, _, ears):
        await until(lambda: ears.reports)
        link.ping()
        await until(lambda: ears.spoken == 1)


async def test_a_heartbeat_is_heard_and_is_no_news(folder: Path) -> None:
    async with linked(folder) as (link, _, ears):
        await until(lambda: ears.reports)
        before = link.heard_at
        await until(lambda: link.heard_at > before)
        assert (len(ears.reports), ears.spoken, ears.events) == (1, 0, [])


async def test_an_agent_that_speaks_again_after_silence_is_news(folder: Path) -> None:
    async with linked(folder) as (link, agent, ears):
        await until(lambda: ears.reports)
        agent.freeze()
        link.silent = True  # the controller's judgement
        agent.thaw()
        await until(lambda: ears.spoken == 1)
        assert not link.silent


async def test_events_are_handed_on(folder: Path) -> None:
    async with linked(folder) as (_, agent, ears):
        await until(lambda: ears.reports)
        agent.say({"type": "event", "code": "oom"})
        await until(lambda: ears.events)
        assert ears.events == [{"type": "event", "code": "oom"}]


async def test_what_an_agent_needs_is_handed_on(folder: Path) -> None:
    async with linked(folder) as (_, agent, ears):
        await until(lambda: ears.reports)
        agent.say({"type": "need", "lease": LEASE, "tree": "t", "path": "p"})
        await until(lambda: ears.wanted)
        assert ears.wanted == [{"type": "need", "lease": LEASE, "tree": "t", "path": "p"}]


async def test_usage_is_made_of_two_words(folder: Path) -> None:
    async with linked(folder) as (link, agent, ears):
        await until(lambda: ears.reports)
        for at, cpu in ((10.0, 5.0), (20.0, 10.0)):
            fact = {"cpu_s": cpu, "rss_bytes": 1234}
            agent.say({"type": "usage", "at": at, "attempts": {"a": fact}})
        await until(lambda: [one.cpu_percent for one in link.usage.values()] == [50.0])
        assert list(link.usage.values()) == [links.Usage(50.0, 1234)]


@pytest.mark.parametrize("wrong", [["x"], {"type": "report"}, {"type": "hello", "protocol": 9}])
async def test_what_cannot_be_read_costs_a_new_connection(folder: Path, wrong: Any) -> None:
    async with linked(folder) as (_, agent, ears):
        await until(lambda: ears.reports)
        agent.say(wrong)
        await until(lambda: len(agent.hellos) == 2)


class Turning(Agent):
    """An agent that takes no control stream."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.hellos.append(json.loads(await reader.readline()))
        writer.write(b'{"error": "Conflict", "code": "agent/protocol", "text": "no"}\n')
        await writer.drain()


class Hurried(Clock):
    """A clock on which waiting takes no time; how long it was to be."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)


async def test_an_agent_that_turns_the_stream_away_is_asked_more_and_more_seldom(
    folder: Path,
) -> None:
    """On some infras each try is a process on the host."""
    clock = Hurried()
    async with linked(folder, clock, Turning) as (_, agent, _):
        await until(lambda: len(agent.hellos) > 10)
        assert clock.waits[7:10] == [links.RETRY_MOST] * 3


async def test_a_link_waits_for_an_agent_that_is_not_there_yet(folder: Path) -> None:
    async with linked(folder) as (link, agent, ears):
        await until(lambda: ears.reports)
        await agent.stop()
        link.post(*assign(1))
        await agent.start()
        await until(lambda: assigned(agent) == [1])


async def test_a_link_without_assignments_is_idle_after_a_while(folder: Path) -> None:
    clock = Skewed()
    async with linked(folder, clock) as (link, _, _):
        link.post(*assign(1))
        clock.slept = links.IDLE_CLOSE + 1
        assert not link.idle
        link.drop(LEASE)
        assert not link.idle
        clock.slept *= 2
        assert link.idle


async def test_a_frozen_agent_holds_up_nobody_else(folder: Path) -> None:
    async with linked(folder) as (link, agent, ears):
        await until(lambda: ears.reports)
        agent.freeze()
        for count in range(1, 50):
            link.post(*assign(count, {"padding": "x" * 1000}))
        assert link.has(LEASE, Serial(1, 49))


async def test_a_cancellation_is_not_lost_among_errors() -> None:
    """Of who waits for the others to end, because one has failed."""

    async def fails() -> None:
        raise ValueError("x")

    async def slow_to_end() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)

    with pytest.raises(ValueError, match="x"):
        await until_one_ends(slow_to_end(), fails())
    task = asyncio.create_task(until_one_ends(slow_to_end(), fails()))
    for _ in range(8):  # into the waiting
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

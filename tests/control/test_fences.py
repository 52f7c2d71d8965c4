"""When a host out of reach is given up: never before its fence has ended what runs there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.control.fences import KILL_SECONDS, MARGIN, SUSPECT, Fences, words
from argosy.infra.api import HostRef
from argosy.model.action import Reason
from argosy.model.group import Outcome
from argosy.model.ids import LeaseId
from argosy.model.needs import Need
from argosy.model.observed import Look, SeenLease, SeenState
from argosy.model.plan import Offer
from argosy.testing.builders import a_running_group, a_spec, a_task, newest
from tests.control.bench import Bench, until, world

HOST = HostRef("ssh/lab", "h1")
FENCE = 10.0
LONG = 1000.0


def held_on(host: HostRef):
    """A lease that is held there."""
    lease = a_running_group(a_task("trainer")).leases[0]
    placement = replace(lease.placement, infra=host.infra)
    return replace(lease, host=host.host, placement=placement, held_at=0.0)


def look_of(*leases: LeaseId, blind: Sequence[LeaseId] = ()) -> Look:
    seen = tuple(SeenLease(one, SeenState.UP, HOST.host) for one in leases)
    return Look(HOST.infra, 0.0, seen, frozenset(blind))


def test_a_host_that_never_said_that_it_has_a_fence_is_never_given_up() -> None:
    fences, lease = Fences(None, 0.0), held_on(HOST)
    fences.ask(HOST, FENCE)
    assert fences.due(HOST) == float("inf")
    look = look_of(lease.id)
    assert fences.shown(look, [lease], LONG) is look


def test_what_was_on_a_host_is_gone_once_its_fence_has_run_out() -> None:
    fences, lease = Fences(None, 0.0), held_on(HOST)
    fences.told(HOST, FENCE, 100.0)
    fences.told(HOST, FENCE, 120.0)
    due = fences.due(HOST)
    assert due >= 120.0 + FENCE + KILL_SECONDS + MARGIN
    look = look_of(lease.id, blind=[lease.id])
    assert fences.shown(look, [lease], due) is look
    shown = fences.shown(look, [lease], due + 0.1)
    assert [(one.lease, one.state, one.text) for one in shown.leases] == [
        (lease.id, SeenState.GONE, "the fence of 10s ran out")
    ]
    assert not shown.blind


def test_what_cannot_be_seen_at_all_is_gone_too() -> None:
    """After a restart of the server nobody has seen the host."""
    fences, lease = Fences(None, 0.0), held_on(HOST)
    fences.told(HOST, FENCE, 0.0)
    shown = fences.shown(look_of(blind=[lease.id]), [lease], LONG)
    assert [one.state for one in shown.leases] == [SeenState.GONE]
    assert not shown.blind


def test_a_lease_on_a_host_that_nobody_spoke_with_for_long_has_its_whole_fence() -> None:
    """Nothing was assigned to it before it was held: only then does its silence begin."""
    fences, lease = Fences(None, 0.0), replace(held_on(HOST), held_at=LONG)
    fences.told(HOST, FENCE, 0.0)
    look = look_of(lease.id)
    assert fences.shown(look, [lease], LONG + FENCE) is look
    assert fences.explained((), [lease], LONG + 1.0, 6.0) == ()
    assert "given up at 00:16:55" in fences.explained((), [lease], LONG + 7.0, 6.0)[0].text
    shown = fences.shown(look, [lease], LONG + 2 * FENCE)
    assert [one.state for one in shown.leases] == [SeenState.GONE]


def test_other_hosts_and_what_is_lost_already_are_left_alone() -> None:
    fences, lease = Fences(None, 0.0), held_on(HOST)
    fences.told(HOST, FENCE, 0.0)
    others = [replace(lease, host="h2"), replace(lease, lost=True), replace(lease, host="")]
    look = look_of(lease.id)
    for other in others:
        assert fences.shown(look, [other], LONG) is look


def test_a_restart_of_the_server_begins_the_wait_anew(tmp_path: Path) -> None:
    """What the host has is kept; until when the earlier server acknowledged is not known."""
    Fences(tmp_path, 0.0).told(HOST, FENCE, 5.0)
    later = Fences(tmp_path, 500.0)
    assert later.due(HOST) >= 500.0 + FENCE + KILL_SECONDS
    assert later.due(HOST) < 520.0


def test_a_longer_fence_counts_before_the_host_is_told_and_a_shorter_one_after(
    tmp_path: Path,
) -> None:
    fences = Fences(tmp_path, 0.0)
    fences.told(HOST, FENCE, 0.0)
    fences.ask(HOST, 60.0)
    assert Fences(tmp_path, 0.0).due(HOST) > 60.0
    fences.told(HOST, 60.0, 0.0)
    fences.ask(HOST, FENCE)
    assert Fences(tmp_path, 0.0).due(HOST) > 60.0
    fences.told(HOST, FENCE, 0.0)
    assert Fences(tmp_path, 0.0).due(HOST) < 60.0


def test_a_fence_that_is_to_be_taken_away_counts_no_more(tmp_path: Path) -> None:
    fences = Fences(tmp_path, 0.0)
    fences.told(HOST, FENCE, 0.0)
    fences.ask(HOST, 0.0)
    assert Fences(tmp_path, 0.0).due(HOST) == float("inf")


def test_an_agent_that_knows_no_fence_has_none(tmp_path: Path) -> None:
    fences = Fences(tmp_path, 0.0)
    fences.told(HOST, FENCE, 0.0)
    fences.told(HOST, 0.0, 1.0)
    assert fences.due(HOST) == float("inf")


@pytest.mark.parametrize("body", ["", "[]", '{"ssh/lab": 3}', '{"ssh/lab": {"h1": "x"}}'])
def test_a_file_that_cannot_be_read_gives_nobody_up(tmp_path: Path, body: str) -> None:
    (tmp_path / "fences.json").write_text(body)
    assert Fences(tmp_path, 0.0).due(HOST) == float("inf")


def test_explain_says_when_a_silent_host_is_given_up() -> None:
    fences, lease = Fences(None, 0.0), held_on(HOST)
    fences.told(HOST, 600.0, 0.0)
    node = str(lease.placement.node)
    reasons = (Reason(SUSPECT, node, "a doubt"), Reason(SUSPECT, "other-0", "a doubt"))
    assert fences.explained(reasons, [lease], 5.0, 6.0) == reasons
    other, told = fences.explained(reasons, [lease], 7.0, 6.0)
    assert (other.about, told.about, told.since) == ("other-0", node, 0.0)
    assert "h1 is silent: given up at 00:10:05 UTC, when its fence of 10m is out" in told.text


def test_a_fence_is_said_as_it_is_written() -> None:
    assert [words(one) for one in (8.0, 90.0, 600.0, 5400.0, 7200.0)] == [
        "8s", "90s", "10m", "90m", "2h",
    ]  # fmt: skip


# In every order of things


class HostModel:
    """What a host does: `acked` is the sending of the newest acknowledged heartbeat."""

    def __init__(self) -> None:
        self.acked = 0.0

    def ends_at(self) -> float:
        return self.acked + FENCE

    def hear(self, sent_at: float, now: float) -> None:
        """An acknowledgement; one that comes after the fence ran out undoes nothing."""
        if now <= self.ends_at():
            self.acked = max(self.acked, sent_at)


DELAYS = st.just(0.0) | st.floats(0.0, 3 * FENCE)
BEATS = st.lists(st.tuples(st.floats(0.0, 60.0), DELAYS, DELAYS), min_size=10, max_size=30)


@settings(max_examples=300, deadline=None)
@given(beats=BEATS, restarts=st.lists(st.floats(0.0, 60.0), max_size=3))
def test_no_order_of_things_gives_a_host_up_too_early(
    beats: list[tuple[float, float, float]], restarts: list[float]
) -> None:
    """Heartbeats and acknowledgements may be late by any time, and servers begin anew; the host
    has ended all by the time that the server gives it up, and an acknowledgement that is sent
    after that finds nothing to keep alive.
    """
    host, fences = HostModel(), Fences(None, 0.0)
    fences.told(HOST, FENCE, 0.0)
    given_up: list[float] = []
    steps = [(at, 1, None) for at in restarts]
    for sent_at, there, back in beats:
        steps.append((sent_at + there, 2, (sent_at, back)))
    replies: list[tuple[float, float]] = []
    for now, kind, beat in sorted(steps, key=lambda step: step[:2]):
        for heard_at, sent_at in sorted(replies):
            if heard_at <= now:
                host.hear(sent_at, heard_at)
                replies.remove((heard_at, sent_at))
        if now > fences.due(HOST):
            given_up.append(fences.due(HOST) - KILL_SECONDS - MARGIN)
        if kind == 1:
            fences = Fences(None, now)
            fences.told(HOST, FENCE, now)
            fences._acked.clear()  # it has said nothing to this server: only its start counts
        else:
            assert beat is not None
            fences.told(HOST, FENCE, now)
            replies.append((now + beat[1], beat[0]))
        if given_up:
            assert host.ends_at() <= given_up[0]
    for heard_at, sent_at in sorted(replies):
        host.hear(sent_at, heard_at)
    if given_up:
        assert host.ends_at() <= given_up[0]


# The whole control plane


class Fenced(Bench):
    """An infra with a fence; a host that is silent is not offered."""

    fence_after = FENCE

    async def offers(self, need: Need) -> Sequence[Offer]:
        return [one for one in await super().offers(need) if self.agents[one.host].awake]


async def _lose_h1(here):
    """Its agent is silent, and much time passes; what was asked of it is not released."""
    entry = await here.running(a_spec(a_task("trainer")))
    assert newest(entry.group, "trainer-0").host == "h1"
    here.bench.agents["h1"].freeze()
    here.bench.keep = True
    here.clock.slept += 2 * FENCE
    here.controller.look("local")
    await until(lambda: newest(entry.group, "trainer-0").number == 2)
    return entry


@pytest.mark.anyio
async def test_a_node_is_replaced_when_the_fence_of_its_host_has_run_out(folder: Path) -> None:
    async with world(folder, hosts=("h1", "h2"), cpus=1.0, kind=Fenced) as here:
        for agent in here.bench.agents.values():
            agent.fence = FENCE
        entry = await _lose_h1(here)
        await until(lambda: newest(entry.group, "trainer-0").stage == 30)
        old, new = entry.group.attempts
        assert (old.outcome, old.cause, old.host) == (Outcome.LOST, "host-lost", "h1")
        assert "the fence of 10s ran out" in old.text
        assert new.host == "h2"
        assert here.bench.agents["h1"].hellos[0]["fence"] == FENCE


@pytest.mark.anyio
async def test_what_comes_back_is_refused_and_released(folder: Path) -> None:
    """Its reports, and its place in the address book, which is the newer attempt's."""
    async with world(folder, hosts=("h1", "h2"), cpus=1.0, kind=Fenced) as here:
        for agent in here.bench.agents.values():
            agent.fence = FENCE
        entry = await _lose_h1(here)
        await until(lambda: newest(entry.group, "trainer-0").stage == 30)
        old = entry.group.attempts[0]
        agent = here.bench.agents["h1"]
        agent.thaw()
        agent.exit("trainer-0", 3)
        links = here.controller.links
        await until(lambda: here.bench.released.count(old.lease) > 1)
        await until(lambda: not links[("local", "h1")].silent)
        assert entry.group.attempts[0] == old
        assert newest(entry.group, "trainer-0").number == 2
        assert [peer.attempt for peer in entry.group.book.peers] == [2]
        here.bench.keep = False
        await until(lambda: old.lease not in here.bench.held)
        assert not agent.leases


@pytest.mark.anyio
async def test_a_server_that_never_heard_the_host_gives_it_up_too(folder: Path) -> None:
    """What the earlier server knew of it is kept; it says so before."""
    spec = a_spec(a_task("trainer"))
    async with world(folder, hosts=("h1", "h2"), cpus=1.0, kind=Fenced) as here:
        here.bench.agents["h1"].fence = FENCE
        before = (await here.running(spec)).group.id
        held = here.bench.held

    class Later(Fenced):
        """The same hosts; one of them is silent from the beginning."""

        def __init__(self, *words: Any) -> None:
            super().__init__(*words)
            self.held, self.keep = held, True
            self.agents["h1"].freeze()

    async with world(folder, hosts=("h1", "h2"), cpus=1.0, kind=Later) as here:
        entry = here.controller.entries[before]
        await until(lambda: any("h1 is silent: given up at" in one.text for one in entry.reasons))
        assert newest(entry.group, "trainer-0").number == 1
        here.clock.slept += 2 * FENCE
        here.controller.look("local")
        await until(lambda: newest(entry.group, "trainer-0").number == 2)
        assert "the fence of 10s ran out" in entry.group.attempts[0].text


@pytest.mark.anyio
async def test_a_host_that_was_not_used_for_long_takes_a_group(folder: Path) -> None:
    """It is looked at before its agent, which is just being started, has said a word."""
    (folder / "fences.json").write_text(json.dumps({"local": {"h1": FENCE}}))

    class Unused(Bench):
        """Hosts whose agents nobody has asked for yet."""

        fence_after = FENCE

    async with world(folder, hosts=("h1", "h2"), cpus=1.0, kind=Unused) as here:
        agent = here.bench.agents["h1"]
        agent.fence = FENCE
        agent.freeze()
        here.clock.slept += 10 * FENCE
        entry = await here.submit(a_spec(a_task("trainer")))
        await until(lambda: entry.group.leases and entry.group.leases[0].host == "h1")
        held = entry.group.leases[0].id
        looks = here.bench.looks
        here.controller.look("local")
        await until(lambda: here.bench.looks > looks + 1)
        agent.thaw()
        await until(lambda: newest(entry.group, "trainer-0").stage == 30)
        assert [(one.number, one.lease) for one in entry.group.attempts] == [(1, held)]


@pytest.mark.anyio
async def test_without_the_word_of_the_host_nothing_is_given_up(folder: Path) -> None:
    """The pool has a fence, and its agent is of an older version."""
    async with world(folder, hosts=("h1", "h2"), cpus=1.0, kind=Fenced) as here:
        entry = await here.running(a_spec(a_task("trainer")))
        here.bench.agents["h1"].freeze()
        here.clock.slept += 100 * FENCE
        looks = here.bench.looks
        here.controller.look("local")
        await until(lambda: here.bench.looks > looks + 1)
        await until(lambda: any(reason.code == SUSPECT for reason in entry.reasons))
        assert newest(entry.group, "trainer-0").number == 1
        here.bench.agents["h1"].thaw()


@pytest.mark.anyio
async def test_a_heartbeat_is_acknowledged_and_a_fence_outlives_the_server(folder: Path) -> None:
    async with world(folder, kind=Fenced) as here:
        agent = here.bench.agents["h1"]
        agent.fence = FENCE
        await here.running(a_spec(a_task("trainer")))
        await until(lambda: sum(one["type"] == "ack" for one in agent.told) > 1)
    kept = json.loads((folder / "fences.json").read_text())
    assert kept == {"local": {"h1": FENCE}}

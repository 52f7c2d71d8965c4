"""The loop: look, decide, save, act; on a real store, with agents that speak the protocol."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.errors import CapacityError, InfraError
from argosy.model.action import Event
from argosy.model.group import Intent, Outcome, Phase, Verb
from argosy.model.ids import LeaseId, Serial, group_lease, lease_id
from argosy.model.observed import SeenLease, SeenState
from argosy.model.spec import Restart, Scope
from argosy.testing.builders import a_spec, a_task, newest, the_node
from tests.control.bench import QUICK, Bench, World, until, world

pytestmark = pytest.mark.anyio

SPEC = a_spec(a_task("trainer"))
FOREVER = 1e9


async def wish(world_: World, entry, verb: Verb, **changes) -> None:
    intent = Intent(verb, world_.clock.now(), **changes)
    world_.controller.taken(entry, await world_.store.intend(entry.group.id, intent))


def codes(world_: World, entry) -> list[str]:
    return [event.code for _, event in world_.store.events(entry.group.id)]


# The way of a group


async def test_a_group_runs_ends_and_leaves_nothing(folder: Path) -> None:
    async with world(folder) as here:
        entry = await here.running(SPEC)
        here.bench.agents["h1"].exit("trainer-0", 0)
        await here.over(entry, "SUCCEEDED")
        assert here.bench.held == {}
        assert entry.group.id not in here.controller.entries
        assert here.store.load(entry.group.id) == entry.group


async def test_the_record_is_saved_before_anything_is_asked_for(folder: Path) -> None:
    async with world(folder) as here:
        entry = await here.running(SPEC)
        [lease] = here.bench.acquired
        assert here.store.issued(lease)
        assert here.store.load(entry.group.id).leases[0].id == lease


async def test_a_failure_is_restarted_and_told(folder: Path) -> None:
    policy = Restart(on_failure=True, max=1, backoff_first=0.0)
    async with world(folder) as here:
        entry = await here.running(a_spec(a_task("trainer", restart=policy)))
        here.bench.agents["h1"].exit("trainer-0", 3)
        await until(lambda: newest(entry.group, "trainer-0").number == 2)
        await until(lambda: newest(entry.group, "trainer-0").stage == 30)
        assert here.store.load(entry.group.id).restarts == (("trainer/0", 1),)
        assert "restart-node" in codes(here, entry)


async def test_cancel_ends_a_group(folder: Path) -> None:
    async with world(folder) as here:
        entry = await here.running(SPEC)
        await wish(here, entry, Verb.CANCEL)
        await here.over(entry, "CANCELLED")


# Saving


async def test_a_conflict_drops_the_decision_and_the_wish_is_kept(folder: Path) -> None:
    async with world(folder) as here:
        entry = await here.running(SPEC)
        intent = Intent(Verb.CANCEL, here.clock.now())
        await here.store.intend(entry.group.id, intent)  # another hand wrote first; nobody woke us
        here.bench.agents["h1"].exit("trainer-0", 0)
        await here.over(entry, "CANCELLED")


async def test_a_full_disk_pauses_the_group_which_goes_on_when_there_is_room(folder: Path) -> None:
    async with world(folder) as here:
        entry = await here.running(SPEC)
        await limit_pages(here, 1)
        agent = here.bench.agents["h1"]
        event = {"type": "event", "at": 0, "lease": entry.group.leases[0].id, "attempt": "",
                 "code": "log-capped", "text": "x" * 200_000}  # fmt: skip
        agent.say(event)
        await until(lambda: [r.code for r in entry.reasons] == ["store/disk-full"])
        assert entry.reasons[0].hint.startswith("free some space")
        assert agent.stages() == {"trainer-0": 30}
        assert "log-capped" not in codes(here, entry)

        await limit_pages(here, 1_000_000)
        await until(lambda: "log-capped" in codes(here, entry))
        await until(lambda: entry.reasons == ())
        agent.exit("trainer-0", 0)
        await here.over(entry, "SUCCEEDED")


async def limit_pages(here: World, most: int) -> None:
    """The store's file may have so many pages (never fewer than it has)."""
    await here.store._writer.write(
        lambda connection: connection.exec_driver_sql(f"PRAGMA max_page_count={most}").fetchall(),
        durable=False,
    )


async def test_a_group_whose_record_was_removed_leaves_the_loop(folder: Path) -> None:
    async with world(folder) as here:
        entry = await here.submit(SPEC)
        await until(lambda: entry.group.attempts)
        final = replace(entry.group, phase=Phase.CANCELLED)
        await here.controller.stop()
        assert entry.group.id in here.controller.entries
        here.controller.forget(final.id)
        assert here.controller.entries == {}


async def test_a_decision_that_breaks_a_rule_stops_that_group_only(folder: Path) -> None:
    async with world(folder) as here:
        broken = await here.running(SPEC)
        ghost = replace(broken.group.nodes[0], lease=LeaseId("ghost"))
        broken.group = replace(broken.group, nodes=(ghost,))
        here.controller.news(broken)
        await until(lambda: broken.broken)
        assert broken.reasons[0].code == "broken"
        other = await here.running(a_spec(a_task("web"), name="other"))
        assert not other.broken


# A new life of the server


async def test_the_next_life_takes_up_what_runs_and_touches_nothing(folder: Path) -> None:
    async with world(folder) as here:
        entry = await here.running(SPEC)
        first = newest(entry.group, "trainer-0")
        await here.controller.stop()
        life = here.store.open_life(here.clock.now())
        again = type(here.controller)(
            here.store, here.clock, {"local": here.bench}, life=life,
            limits=here.controller.limits,
        )  # fmt: skip
        await again.start()
        try:
            taken = again.entries[entry.group.id]
            await until(lambda: taken.words)
            assert newest(taken.group, "trainer-0").id == first.id
            here.bench.agents["h1"].exit("trainer-0", 0)
            await until(lambda: taken.group.clean)
            assert taken.group.phase is Phase.SUCCEEDED
            assert len(taken.group.attempts) == 1
        finally:
            await again.stop()


async def test_a_group_on_an_infra_that_is_no_longer_configured_does_not_stop_the_server(
    folder: Path,
) -> None:
    async with world(folder) as here:
        entry = await here.running(SPEC)
        await here.controller.stop()
        life = here.store.open_life(here.clock.now())
        other = Bench(folder, "ssh/lab", (), 0.0)
        again = type(here.controller)(
            here.store, here.clock, {"ssh/lab": other}, life=life, limits=here.controller.limits
        )
        await again.start()
        try:
            await wish_on(again, here, entry)
            taken = again.entries[entry.group.id]
            await until(lambda: taken.group.phase is Phase.ENDING)
        finally:
            await again.stop()


async def wish_on(controller, here: World, entry) -> None:
    intent = Intent(Verb.CANCEL, here.clock.now())
    after = await here.store.intend(entry.group.id, intent)
    controller.taken(controller.entries[entry.group.id], after)


# Looks


async def test_what_bears_our_mark_and_belongs_to_no_group_is_released(folder: Path) -> None:
    async with world(folder) as here:
        entry = await here.running(SPEC)
        here.bench.agents["h1"].exit("trainer-0", 0)
        await here.over(entry, "SUCCEEDED")
        late = entry.group.leases or here.bench.acquired
        orphan = SeenLease(LeaseId(late[0]), SeenState.UP, "h1")
        here.bench.released.clear()
        here.bench.strangers = [orphan, SeenLease(group_lease(entry.group.id), SeenState.UP)]
        here.bench.moved()
        await until(lambda: here.bench.strangers == [])
        assert here.bench.released[0] == orphan.lease  # what is group-wide goes last


async def test_room_that_no_record_tells_of_is_taken_at_once(folder: Path) -> None:
    patient = replace(QUICK, backoff_first=FOREVER, backoff_most=FOREVER)
    async with world(folder, limits=patient) as here:
        ended = await here.running(a_spec(a_task("trainer", needs=SMALL)))
        lease = ended.group.leases[0].id
        left = here.bench.held[lease]
        here.bench.agents["h1"].exit("trainer-0", 0)
        await here.over(ended, "SUCCEEDED")
        here.bench.keep = True
        here.bench.held[lease] = left  # its host is back, and has it still
        here.bench.moved()
        await until(lambda: here.bench.released.count(lease) >= 2)
        whole = a_task("trainer", needs=(replace(SMALL[0], cpus=8.0),))
        entry = await here.submit(a_spec(whole, name="whole"))
        await until(lambda: entry.group.placing.tries)
        here.bench.keep = False
        await here.bench.release(lease)
        await until(lambda: entry.group.leases)


async def test_what_this_store_never_issued_is_left_alone(folder: Path) -> None:
    async with world(folder) as here:
        entry = await here.running(SPEC)
        stranger = SeenLease(lease_id(entry.group.id, Serial(99, 1)), SeenState.UP, "h1")
        here.bench.strangers = [stranger]
        before = here.bench.looks
        here.bench.moved()
        await until(lambda: here.bench.looks >= before + 2)
        assert here.bench.released == []


async def test_a_lost_host_is_replaced(folder: Path) -> None:
    async with world(folder, hosts=("h1", "h2")) as here:
        entry = await here.running(SPEC)
        first = newest(entry.group, "trainer-0")
        del here.bench.held[first.lease]
        here.bench.moved()
        await until(lambda: newest(entry.group, "trainer-0").number == 2)
        await until(lambda: newest(entry.group, "trainer-0").stage == 30)
        assert entry.group.attempts[0].outcome is Outcome.LOST


@pytest.mark.parametrize("error", [InfraError("no answer"), OSError("cut"), ZeroDivisionError()])
async def test_a_look_that_fails_is_blind_and_proves_nothing(
    folder: Path, error: Exception
) -> None:
    async with world(folder) as here:
        entry = await here.running(SPEC)
        here.bench.fail = error
        before = here.bench.looks
        here.bench.moved()
        await until(lambda: here.bench.looks > before)
        await until(lambda: here.controller.sights["local"].look.blind_all)
        assert newest(entry.group, "trainer-0").live
        here.bench.fail = None
        await until(lambda: not here.controller.sights["local"].look.blind_all)
        assert newest(entry.group, "trainer-0").number == 1


# Agents


async def test_a_silent_agent_is_shown_and_nothing_is_done(folder: Path) -> None:
    async with world(folder) as here:
        entry = await here.running(SPEC)
        here.bench.agents["h1"].freeze()
        await until(lambda: [r.code for r in entry.reasons] == ["agent-suspect"])
        assert newest(entry.group, "trainer-0").live
        here.bench.agents["h1"].thaw()
        await until(lambda: entry.reasons == ())
        assert len(entry.group.attempts) == 1


async def test_an_agent_that_lost_what_it_was_seen_with_has_lost_the_attempt(folder: Path) -> None:
    async with world(folder) as here:
        entry = await here.running(SPEC)
        agent = here.bench.agents["h1"]
        await agent.stop()
        agent.wipe()
        await agent.start()
        await until(lambda: newest(entry.group, "trainer-0").number == 2)
        first = entry.group.attempts[0]
        assert (first.outcome, first.cause) == (Outcome.LOST, "forgotten")


async def test_an_agent_that_lost_what_it_was_only_told_is_told_again(folder: Path) -> None:
    async with world(folder) as here:
        agent = here.bench.agents["h1"]
        entry = await here.submit(SPEC)
        await until(lambda: entry.group.leases)
        agent.mute.add(entry.group.leases[0].id)
        await agent.stop()
        agent.wipe()
        await agent.start()
        agent.mute.clear()
        await until(lambda: entry.group.attempts and entry.group.attempts[-1].stage == 30)
        assert [one.outcome for one in entry.group.attempts] == [None]


async def test_a_killed_agent_that_comes_back_with_its_programs_changes_nothing(
    folder: Path,
) -> None:
    async with world(folder) as here:
        entry = await here.running(SPEC)
        agent = here.bench.agents["h1"]
        await agent.stop()
        await agent.start()
        await until(lambda: len(agent.hellos) == 2)
        agent.exit("trainer-0", 0)
        await here.over(entry, "SUCCEEDED")
        assert len(entry.group.attempts) == 1


async def test_siblings_are_asked_at_once_whether_they_live(folder: Path) -> None:
    policy = Restart(on_failure=True, max=1, backoff_first=0.0, scope=Scope.TASK)
    spec = a_spec(a_task("trainer", 2, restart=policy, needs=SMALL))
    async with world(folder, hosts=("h1", "h2"), cpus=4.0) as here:
        entry = await here.running(spec)
        hosts = {one.host for one in entry.group.attempts}
        assert hosts == {"h1", "h2"}
        first = newest(entry.group, "trainer-0")
        sibling = here.agent_of(newest(entry.group, "trainer-1"))
        here.agent_of(first).exit("trainer-0", 1)
        await until(lambda: newest(entry.group, "trainer-0").number == 2)
        assert {"type": "ping", "n": 0} in sibling.told
        assert entry.group.restarts == (("trainer", 1),)


async def test_a_failure_beside_a_frozen_sibling_is_not_judged(folder: Path) -> None:
    policy = Restart(on_failure=True, max=1, backoff_first=0.0, scope=Scope.TASK)
    spec = a_spec(a_task("trainer", 2, restart=policy, needs=SMALL))
    async with world(folder, hosts=("h1", "h2"), cpus=4.0) as here:
        entry = await here.running(spec)
        sibling = newest(entry.group, "trainer-1")
        here.agent_of(sibling).freeze()
        here.agent_of(newest(entry.group, "trainer-0")).exit("trainer-0", 1)
        await until(lambda: "peer-suspect" in [r.code for r in entry.reasons])
        del here.bench.held[sibling.lease]  # it was its host: the root cause, and free
        here.bench.moved()
        await until(lambda: newest(entry.group, "trainer-0").number == 2)
        assert entry.group.restarts == ()


async def test_what_people_should_know_is_told_once(folder: Path) -> None:
    async with world(folder) as here:
        entry = await here.running(SPEC)
        attempt = newest(entry.group, "trainer-0")
        here.bench.agents["h1"].say({
            "type": "event", "at": 0, "lease": attempt.lease, "attempt": attempt.id,
            "code": "unkillable", "text": "pid 7",
        })  # fmt: skip
        await until(lambda: "unkillable" in codes(here, entry))
        [told] = [e for _, e in here.store.events(entry.group.id) if e.code == "unkillable"]
        assert told == Event(told.at, "unkillable", "trainer-0", "pid 7", 1)


async def test_what_an_agent_says_shows_no_secret(folder: Path) -> None:
    spec = a_spec(a_task("trainer", secrets=(("KEY", "hunter2"),)))
    async with world(folder) as here:
        entry = await here.running(spec)
        attempt = newest(entry.group, "trainer-0")
        agent = here.bench.agents["h1"]
        agent.say({
            "type": "event", "at": 0, "lease": attempt.lease, "attempt": attempt.id,
            "code": "log-capped", "text": "/data/hunter2/log",
        })  # fmt: skip
        agent.fail("trainer-0", "/data/hunter2: not there on this host")
        await here.over(entry, "FAILED")
        assert "hunter2" not in str(here.store.events(entry.group.id))
        assert newest(entry.group, "trainer-0").text == "/data/***: not there on this host"


async def test_what_an_agent_says_that_cannot_be_read_only_costs_a_new_connection(
    folder: Path,
) -> None:
    async with world(folder) as here:
        entry = await here.running(SPEC)
        agent = here.bench.agents["h1"]
        for wrong in ({"type": "report"}, ["report"], {"type": "usage", "at": None}):
            before = len(agent.hellos)
            agent.say(wrong)
            await until(lambda: len(agent.hellos) > before)  # noqa: B023
        agent.exit("trainer-0", 0)
        await here.over(entry, "SUCCEEDED")


# Time


async def test_after_a_gap_every_wait_gets_a_fresh_window(folder: Path) -> None:
    async with world(folder) as here:
        entry = await here.running(SPEC)
        here.bench.agents["h1"].freeze()
        await until(lambda: entry.reasons)
        here.clock.slept += 3600.0
        gap_at = here.clock.now()
        await until(lambda: here.controller._looking_since >= gap_at)
        assert newest(entry.group, "trainer-0").live
        here.bench.agents["h1"].thaw()
        await until(lambda: entry.reasons == ())
        assert len(entry.group.attempts) == 1


# The queue


SMALL = (replace(a_task().needs[0], cpus=3.0),)


async def test_two_groups_that_need_most_of_the_infra_run_one_after_the_other(
    folder: Path,
) -> None:
    async with world(folder, cpus=4.0) as here:
        first = await here.running(a_spec(a_task("a", needs=SMALL), name="first"))
        second = await here.submit(a_spec(a_task("b", needs=SMALL), name="second"))
        await until(lambda: [r.code for r in second.reasons] == ["no-capacity"])
        here.bench.agents["h1"].exit("a-0", 0)
        await here.over(first, "SUCCEEDED")
        await until(lambda: here.stages().get("b-0") == 30)
        here.bench.agents["h1"].exit("b-0", 0)
        await here.over(second, "SUCCEEDED")


async def test_a_refused_acquire_is_shown_with_its_hint_and_tried_again(folder: Path) -> None:
    async with world(folder) as here:
        here.bench.refuse = CapacityError("no room", hint="ask for less", retry=0.1)
        entry = await here.submit(SPEC)
        await until(lambda: "placing-given-up" in codes(here, entry))
        here.bench.refuse = None
        await until(lambda: here.stages().get("trainer-0") == 30)
        assert the_node(entry.group, "trainer-0").lease is not None


async def test_a_look_is_asked_for_by_who_watches(folder: Path) -> None:
    async with world(folder) as here:
        before = here.bench.looks
        here.bench.moved()
        async with asyncio.timeout(5.0):
            while here.bench.looks == before:
                await asyncio.sleep(0.01)


async def test_gangs_that_come_together_take_turns(folder: Path) -> None:
    async with world(folder, cpus=16.0) as here:
        names = [f"g{number}" for number in range(5)]
        specs = [a_spec(a_task(name, needs=SMALL), name=name) for name in names]
        entries = await asyncio.gather(*(here.submit(spec) for spec in specs))
        await until(lambda: {f"{name}-0": 30 for name in names} == here.stages())
        assert [entry.group.placing.turns for entry in entries] == [()] * 5

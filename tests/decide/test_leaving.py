"""Hosts that the infra is about to take back: what runs there is prepared elsewhere beside it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from argosy.model import codec
from argosy.model.action import Acquire, Limits, Release, Replan
from argosy.model.group import (
    Group,
    Lease,
    LeaseState,
    Outcome,
    Phase,
    Stage,
    Verb,
)
from argosy.model.observed import SeenState
from argosy.model.spec import Restart, Scope
from argosy.testing.builders import (
    a_lease,
    a_running_group,
    a_task,
    an_intent,
    attempts_of,
    newest,
    node_of,
    the_node,
    well,
)
from tests.decide.deciding import actions, codes, decided, running, said
from tests.decide.leaving import GROUP, NODE, TASK, World, a_world, drained, restarts

# Beside, and not before


@pytest.mark.parametrize("scope", [NODE, TASK, GROUP], ids=lambda one: one.scope)
def test_a_node_is_asked_for_elsewhere_while_the_old_one_ends(scope: Restart) -> None:
    group = running(a_task("trainer", 2, restart=scope))
    decision = decided(group, drained(well(group), "trainer-0"))
    assert codes(decision)[0] == "host-leaving"
    assert newest(decision.group, "trainer-0").goal is Stage.ENDED
    assert newest(decision.group, "trainer-0").live
    assert the_node(decision.group, "trainer-0").lease is None
    (replan,) = actions(decision, Replan)
    assert replan.nodes == (node_of("trainer-0"),)
    assert not actions(decision, Release)
    kept = next(one for one in decision.group.leases if one.node == node_of("trainer-0"))
    assert kept.state is LeaseState.HELD
    assert kept.leaving


def test_the_replacement_is_ready_before_the_old_one_has_ended_and_starts_after_it() -> None:
    world = a_world(a_task("trainer", 1))
    world.leave("trainer-0")
    old = newest(world.group, "trainer-0").id
    last = world.steps()
    new = newest(world.group, "trainer-0")
    assert new.id != old
    assert (new.stage, new.goal, new.restart_reason) == (Stage.READY, Stage.READY, "lost")
    assert said(last)["older-attempt"] == "trainer-0 has not ended on h1, which goes away"
    assert world.group.phase is Phase.RECOVERING
    world.slow.clear()
    world.steps(4)
    before = next(one for one in world.group.attempts if one.id == old)
    assert (before.outcome, before.cause) == (Outcome.LOST, "host-leaving")
    assert newest(world.group, "trainer-0").id == new.id
    assert newest(world.group, "trainer-0").stage is Stage.RUNNING
    assert world.group.phase is Phase.RUNNING


def test_the_restart_of_another_task_does_not_wait_for_it() -> None:
    world = a_world(a_task("trainer", 1), a_task("other", restart=Restart(scope=Scope.TASK)))
    world.leave("trainer-0")
    world.steps()
    assert newest(world.group, "trainer-0").stage is Stage.READY
    world.group = replace(world.group, intents=(an_intent(Verb.RESTART, task="other"),))
    world.steps(4)
    assert newest(world.group, "other-0").number == 2
    assert newest(world.group, "other-0").stage is Stage.RUNNING
    assert newest(world.group, "trainer-0").stage is Stage.READY


def test_the_old_capacity_is_released_when_the_old_one_has_ended() -> None:
    world = a_world(a_task("trainer", 1))
    lease = newest(world.group, "trainer-0").lease
    world.leave("trainer-0")
    world.steps()
    assert lease in {one.id for one in world.group.leases if one.state is LeaseState.HELD}
    world.slow.clear()
    released = [one.lease for _ in range(3) for one in actions(world.step(), Release)]
    assert lease in released


def test_a_host_that_vanishes_without_a_word_lets_the_replacement_start_too() -> None:
    world = a_world(a_task("trainer", 1))
    world.leave("trainer-0")
    old = newest(world.group, "trainer-0")
    world.steps()
    assert newest(world.group, "trainer-0").stage is Stage.READY
    world.vanished.add(old.lease)
    world.steps(4)
    before = next(one for one in world.group.attempts if one.id == old.id)
    assert (before.stage, before.outcome, before.cause) == (
        Stage.ENDED, Outcome.LOST, "host-lost",
    )  # fmt: skip
    assert newest(world.group, "trainer-0").stage is Stage.RUNNING
    assert len(attempts_of(world.group, "trainer-0")) == 2
    assert restarts(world) == ["restart-node"]


def test_one_that_vanishes_before_there_is_capacity_is_replaced_once() -> None:
    world = a_world(a_task("trainer", 1))
    world.room = False
    world.leave("trainer-0")
    old = newest(world.group, "trainer-0")
    world.steps(3)
    world.vanished.add(old.lease)
    world.steps(3)
    world.room = True
    world.steps(12)
    assert newest(world.group, "trainer-0").stage is Stage.RUNNING
    assert len(attempts_of(world.group, "trainer-0")) == 2
    assert restarts(world) == ["restart-node"]


# How much is renewed


def test_no_budget_is_spent() -> None:
    once = Restart(on_failure=True, max=0, scope=Scope.TASK)
    world = a_world(a_task("trainer", 2, restart=once))
    for _ in range(3):
        world.leave("trainer-0")
        world.steps(3)
        world.slow.clear()
        world.steps()
        assert newest(world.group, "trainer-0").stage is Stage.RUNNING
    assert world.group.restarts == ()
    assert the_node(world.group, "trainer-0").number == 4


@pytest.mark.parametrize(
    ("scope", "renewed"),
    [
        (NODE, {"a-0"}),
        (TASK, {"a-0", "a-1"}),
        (replace(TASK, along=("b",)), {"a-0", "a-1", "b-0"}),
        (GROUP, {"a-0", "a-1", "b-0", "c-0"}),
    ],
    ids=["node", "task", "along", "group"],
)
def test_as_much_as_for_a_lost_host(scope: Restart, renewed: set[str]) -> None:
    world = a_world(a_task("a", 2, restart=scope), a_task("b"), a_task("c"))
    first = world.group
    world.leave("a-0")
    world.steps()
    world.slow.clear()
    world.steps()
    again = {str(n.id) for n in world.group.nodes if newest(world.group, n.id).number == 2}
    assert again == renewed
    assert world.group.phase is Phase.RUNNING
    for node in world.group.nodes:
        stays = str(node.id) != "a-0"
        assert (node.lease == the_node(first, node.id).lease) is stays
    assert world.group.incarnation == (2 if scope is GROUP else 1)


def test_of_a_task_that_is_not_replaced_nothing_is_done() -> None:
    group = running(a_task("trainer", 2, restart=Restart(on_lost=False)))
    decision = decided(group, drained(well(group), "trainer-0"))
    assert codes(decision) == ["host-leaving"]
    assert not actions(decision, Replan)
    assert newest(decision.group, "trainer-0").goal is Stage.RUNNING
    assert the_node(decision.group, "trainer-0").lease == the_node(group, "trainer-0").lease
    after = decided(decision.group, drained(well(decision.group), "trainer-0").gone("trainer-0"))
    assert the_node(after.group, "trainer-0").settled is Outcome.FAILED


def test_its_agent_says_that_it_was_lost_which_is_an_end_for_such_a_task() -> None:
    group = running(a_task("trainer", 1, restart=Restart(on_lost=False)))
    seen = drained(well(group), "trainer-0")
    seen = seen.ended("trainer-0", Outcome.LOST, cause="host-leaving")
    after = decided(group, seen).group
    assert the_node(after, "trainer-0").settled is Outcome.FAILED
    assert the_node(after, "trainer-0").cause == "host-leaving"


# When


def test_it_is_told_once() -> None:
    world = a_world(a_task("trainer", 2))
    world.leave("trainer-0")
    world.steps(10)
    assert world.codes.count("host-leaving") == 1
    assert len(restarts(world)) == 1


@pytest.mark.parametrize("stage", [Stage.PREPARING, Stage.READY])
def test_before_the_gang_began_it_waits_for_the_new_place(stage: Stage) -> None:
    group = a_running_group(a_task("trainer", 2), stage=stage)
    world = World(replace(group, placing=running().placing))
    old = newest(world.group, "trainer-0").id
    world.leave("trainer-0")
    world.step()
    assert world.goal("trainer-0") is Stage.ENDED
    assert not world.group.started
    world.steps()
    assert newest(world.group, "trainer-0").id != old
    assert not world.group.started  # the old one is still there
    world.slow.clear()
    world.steps()
    assert {newest(world.group, n.id).stage for n in world.group.nodes} == {Stage.RUNNING}
    assert newest(world.group, "trainer-1").number == 1
    assert world.group.incarnation == 1


def test_capacity_on_which_nothing_was_made_yet_is_given_up() -> None:
    task = a_task("trainer", 1)
    world = a_world(task)
    lease = a_lease("trainer-0", count=77, state=LeaseState.ASKED, held_at=0.0, host="")
    node = replace(
        the_node(world.group, "trainer-0"), attempt=None, lease=lease.id, number=0, asked=False
    )
    fresh = replace(
        world.group, nodes=(node,), attempts=(), leases=(lease,), started=(), started_at=0.0,
        phase=Phase.STARTING,
    )  # fmt: skip
    world = World(fresh, leaving={lease.id})
    world.step()
    assert the_node(world.group, "trainer-0").lease is None
    world.steps()
    assert newest(world.group, "trainer-0").lease != lease.id
    assert newest(world.group, "trainer-0").number == 1
    assert newest(world.group, "trainer-0").stage is Stage.RUNNING


def test_an_ending_group_looks_for_nothing() -> None:
    group = running(a_task("trainer", 2), intents=(an_intent(Verb.CANCEL),))
    ending = decided(group).group
    decision = decided(ending, drained(well(ending), "trainer-0"))
    assert codes(decision) == ["host-leaving"]
    assert not actions(decision, Replan)
    assert not actions(decision, Acquire)


def test_a_settled_node_is_left_alone() -> None:
    group = running(a_task("trainer", 2))
    group = decided(group, well(group).succeeding("trainer-1")).group
    decision = decided(group, drained(well(group), "trainer-1"))
    assert codes(decision) == ["host-leaving"]
    assert the_node(decision.group, "trainer-1").settled is Outcome.SUCCEEDED
    assert not actions(decision, Replan)


def test_one_that_ended_by_itself_at_that_moment_is_judged_as_ever() -> None:
    group = running(a_task("trainer", 1), a_task("other"))
    decision = decided(group, drained(well(group), "trainer-0").succeeding("trainer-0"))
    assert the_node(decision.group, "trainer-0").settled is Outcome.SUCCEEDED
    assert not actions(decision, Replan)


def test_leaving_and_gone_in_one_look_is_lost() -> None:
    group = running(a_task("trainer", 1))
    seen = drained(well(group), "trainer-0").gone("trainer-0")
    decision = decided(group, seen)
    assert "host-leaving" not in codes(decision)
    assert newest(decision.group, "trainer-0").cause == "host-lost"
    assert the_node(decision.group, "trainer-0").replace


def test_one_that_does_not_leave_after_all_is_left_all_the_same() -> None:
    world = a_world(a_task("trainer", 1))
    world.leave("trainer-0")
    world.steps(2)
    world.leaving.clear()
    world.slow.clear()
    world.steps()
    assert newest(world.group, "trainer-0").host.startswith("h9")
    assert newest(world.group, "trainer-0").stage is Stage.RUNNING


# Several


@pytest.mark.parametrize("scope", [NODE, TASK, GROUP], ids=lambda one: one.scope)
def test_two_that_leave_at_once_are_one_restart(scope: Restart) -> None:
    world = a_world(a_task("trainer", 3, restart=scope))
    world.leave("trainer-0", "trainer-2")
    first = world.step()
    (replan,) = actions(first, Replan)
    assert set(replan.nodes) == {node_of("trainer-0"), node_of("trainer-2")}
    world.steps()
    world.slow.clear()
    world.steps()
    assert {newest(world.group, n.id).stage for n in world.group.nodes} == {Stage.RUNNING}
    assert world.group.incarnation == (2 if scope is GROUP else 1)
    assert {n.number for n in world.group.nodes} == ({1, 2} if scope is NODE else {2})
    assert len(restarts(world)) == (2 if scope is NODE else 1)


@pytest.mark.parametrize("scope", [TASK, GROUP], ids=lambda one: one.scope)
def test_a_second_that_leaves_meanwhile_joins_the_restart(scope: Restart) -> None:
    world = a_world(a_task("trainer", 3, restart=scope))
    world.slow.update(one.id for one in world.group.attempts)  # all have their grace
    world.leave("trainer-0")
    world.steps(3)
    assert newest(world.group, "trainer-1").number == 1
    world.leave("trainer-1")
    world.steps(3)
    world.slow.clear()
    world.steps(12)
    assert {newest(world.group, n.id).stage for n in world.group.nodes} == {Stage.RUNNING}
    assert {n.number for n in world.group.nodes} == {2}
    assert world.group.incarnation == (2 if scope is GROUP else 1)
    assert len(restarts(world)) == 1


def test_the_new_host_may_leave_too() -> None:
    world = a_world(a_task("trainer", 1))
    world.leave("trainer-0")
    old = newest(world.group, "trainer-0").id
    world.steps()
    second = newest(world.group, "trainer-0")
    assert second.id != old
    world.leaving.add(second.lease)
    world.steps()
    third = newest(world.group, "trainer-0")
    assert third.id != second.id
    assert third.stage is Stage.READY
    world.slow.clear()
    world.steps()
    assert newest(world.group, "trainer-0").id == third.id
    assert third.lease not in world.leaving
    assert newest(world.group, "trainer-0").stage is Stage.RUNNING


# Without capacity


def test_without_room_elsewhere_it_waits_with_a_reason_and_the_old_one_has_its_grace() -> None:
    world = a_world(a_task("trainer", 1))
    world.room = False
    world.leave("trainer-0")
    last = world.steps()
    assert newest(world.group, "trainer-0").live
    assert "no host has room" in " ".join(said(last).values())
    world.slow.clear()
    world.steps(3)
    assert newest(world.group, "trainer-0").outcome is Outcome.LOST
    assert the_node(world.group, "trainer-0").settled is None
    assert world.group.phase is Phase.RECOVERING
    world.room = True
    world.steps(12)
    assert newest(world.group, "trainer-0").stage is Stage.RUNNING
    assert newest(world.group, "trainer-0").number == 2


def test_capacity_goes_once_the_grace_and_a_margin_are_over() -> None:
    world = a_world(a_task("trainer", 1, grace=5.0))
    world.leave("trainer-0")
    old = newest(world.group, "trainer-0")
    world.step()
    world.now += 5.0 + Limits().release_margin
    released = [one.lease for _ in range(2) for one in actions(world.step(), Release)]
    assert old.lease in released


# Records


def test_a_record_from_before_hosts_could_leave_is_read() -> None:
    lease = a_lease()
    written = json.loads(json.dumps(codec.encode(lease, with_secrets=True)))
    assert written.pop("leaving") is False
    assert codec.decode(Lease, written) == lease
    group = replace(running(a_task()), leases=(lease,))
    whole = json.loads(json.dumps(codec.encode(group, with_secrets=True)))
    del whole["leases"][0]["leaving"]
    assert codec.decode(Group, whole) == group


def test_that_a_host_leaves_is_remembered() -> None:
    lease = replace(a_lease(), leaving=True)
    written = json.loads(json.dumps(codec.encode(lease, with_secrets=True)))
    assert codec.decode(Lease, written).leaving


def test_what_lives_on_a_lease_is_found_beside_its_successor() -> None:
    """The old lease vanishes after a successor was made: what was on it ends, and that alone."""
    world = a_world(a_task("trainer", 2, restart=NODE))
    world.leave("trainer-0")
    old = newest(world.group, "trainer-0")
    world.steps()
    seen = world.observed()
    gone = {
        infra: replace(
            look,
            leases=tuple(
                replace(one, state=SeenState.GONE) if one.lease == old.lease else one
                for one in look.leases
            ),
        )
        for infra, look in seen.looks.items()
    }
    after = decided(world.group, replace(seen, looks=gone), now=world.now + 1.0).group
    assert not next(one for one in after.attempts if one.id == old.id).live
    assert [newest(after, f"trainer-{i}").live for i in (0, 1)] == [True, True]

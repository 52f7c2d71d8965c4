"""Capacity for the gang: asked for as a plan, acquired as a whole, given up as a whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.model.action import Acquire, Replan
from argosy.model.group import Group, LeaseState, Outcome, Placing
from argosy.model.ids import ZERO, Serial
from argosy.model.observed import Queue
from argosy.model.spec import Restart, Scope
from argosy.testing.builders import (
    LIMITS,
    NOW,
    a_group,
    a_plan,
    a_queue,
    a_refusal,
    a_report,
    a_task,
    an_observed,
    no_plan,
    the_node,
    waiting,
    well,
)
from tests.decide.deciding import actions, codes, decided, running, said
from tests.decide.placing import NEVER, TWO, acquired, asked, held

# The plan


def test_a_group_that_was_just_submitted_asks_for_a_plan_of_all_its_nodes() -> None:
    decision = decided(a_group(*TWO), an_observed())
    [ask] = actions(decision, Replan)
    assert [str(node) for node in ask.nodes] == ["trainer-0", "trainer-1"]
    assert ask.request == decision.group.placing.request != ZERO
    assert decision.wake_at == NOW + LIMITS.replan_timeout


def test_a_plan_that_does_not_come_is_asked_for_again_under_a_new_request() -> None:
    group = asked()
    same = decided(group, an_observed(), now=NOW + 19)
    late = decided(group, an_observed(), now=NOW + 20)
    assert actions(same, Replan)[0].request == group.placing.request
    assert "planning" in said(same)
    assert actions(late, Replan)[0].request > group.placing.request


def test_the_answer_to_another_request_is_not_taken() -> None:
    group = asked()
    old = a_plan(group, request=Serial(1, 0))
    assert decided(group, an_observed(answer=old)).group is group


def test_a_plan_is_acquired_as_a_whole_and_takes_the_turns() -> None:
    group = asked()
    decision = decided(group, an_observed(answer=a_plan(group)))
    assert len(actions(decision, Acquire)) == 2
    assert {lease.state for lease in decision.group.leases} == {LeaseState.ASKED}
    assert decision.group.placing.turns == ("local",)
    assert decision.group.infras == ("local",)
    assert "plan-acquired" in codes(decision)


def test_a_plan_that_lacks_a_node_is_stale_and_nothing_is_acquired() -> None:
    group = asked()
    decision = decided(group, an_observed(answer=a_plan(group, nodes=["trainer-0"])))
    assert "plan-stale" in codes(decision)
    assert decision.group.leases == ()
    assert actions(decision, Replan)[0].request > group.placing.request


# No plan


def test_a_group_that_does_not_fit_waits_with_the_planners_words() -> None:
    group = asked()
    decision = decided(group, an_observed(answer=no_plan(group, retry_at=NOW + 10)))
    assert said(decision)["no-capacity"] == "no host has room"
    assert decision.wake_at == NOW + 10
    assert codes(decision) == ["no-capacity"]


def test_the_same_refusal_is_told_once() -> None:
    group = asked()
    group = decided(group, an_observed(answer=no_plan(group))).group
    group = decided(group, an_observed(), now=NOW + 10).group
    again = decided(group, an_observed(answer=no_plan(group, retry_at=NOW + 30)), now=NOW + 11)
    assert codes(again) == []
    assert again.group.placing.tries == 2


def test_it_tries_again_when_its_time_comes() -> None:
    group = asked()
    group = decided(group, an_observed(answer=no_plan(group, retry_at=NOW + 10))).group
    assert actions(decided(group, an_observed(), now=NOW + 9.9), Replan) == []
    assert len(actions(decided(group, an_observed(), now=NOW + 10), Replan)) == 1


def test_it_tries_again_at_once_when_something_was_freed() -> None:
    group = asked()
    group = decided(group, an_observed(answer=no_plan(group, retry_at=NOW + 30))).group
    freed = Queue(freed_at={"local": NOW + 1})
    elsewhere = Queue(freed_at={"ssh/lab": NOW + 1})
    assert len(actions(decided(group, an_observed(queue=freed), now=NOW + 1), Replan)) == 1
    assert actions(decided(group, an_observed(queue=elsewhere), now=NOW + 1), Replan) == []


def test_what_would_never_fit_is_still_tried_now_and_then() -> None:
    group = asked()
    answer = replace(no_plan(group, retry_at=NEVER, never=True), infras=())
    after = decided(group, an_observed(answer=answer)).group
    assert NOW < after.placing.retry_at <= NOW + LIMITS.backoff_most


@given(st.integers(1, 30))
def test_the_back_off_grows_to_a_limit_and_has_jitter(tries: int) -> None:
    group = asked()
    group = replace(group, placing=replace(group.placing, tries=tries - 1))
    after = decided(group, an_observed(answer=no_plan(group, retry_at=NOW))).group
    whole = min(LIMITS.backoff_most, LIMITS.backoff_first * 2.0 ** (tries - 1))
    assert whole / 2 <= after.placing.retry_at - NOW <= whole


def test_two_groups_do_not_try_again_at_the_same_moment() -> None:
    first = asked()
    second = replace(first, id="g1-2")
    ones = [
        decided(one, an_observed(answer=no_plan(one, retry_at=NOW))).group
        for one in (first, second)
    ]
    assert ones[0].placing.retry_at != ones[1].placing.retry_at


# Replacements


def replacing() -> Group:
    """A started group whose replacement was acquired; the rest runs."""
    group = running(a_task("trainer", 2, restart=Restart(scope=Scope.NODE)))
    group = decided(group, well(group).absent("trainer-1")).group
    answer = a_plan(group, nodes=["trainer-0", "trainer-1"])
    return decided(group, well(group).observed(answer=answer)).group


def test_a_replacement_keeps_the_leases_of_the_group() -> None:
    group = replacing()
    assert the_node(group, "trainer-0").lease == running(*TWO).leases[0].id
    assert len([one for one in group.leases if one.state is LeaseState.ASKED]) == 1


def test_a_replacement_waits_without_a_deadline() -> None:
    group = replacing()
    seen = replace(well(group), leases={k: v for k, v in well(group).leases.items()
                                        if k == group.leases[0].id})  # fmt: skip
    decision = decided(group, seen, now=NOW + 1e6)
    assert the_node(decision.group, "trainer-1").lease is not None
    assert "placing-given-up" not in codes(decision)


def test_a_refused_replacement_is_planned_anew_and_nothing_else_is_let_go() -> None:
    group = replacing()
    lease = the_node(group, "trainer-1").lease
    refusal = a_refusal(next(one for one in group.leases if one.id == lease))
    seen = replace(well(group), leases={k: v for k, v in well(group).leases.items() if k != lease})
    decision = decided(group, seen.observed(), refusals={lease: refusal})
    assert "replacement-refused" in codes(decision)
    assert the_node(decision.group, "trainer-1").lease is None
    assert the_node(decision.group, "trainer-0").lease is not None
    assert decision.group.placing.retry_at > NOW


def test_a_replacement_that_is_refused_while_another_is_planned_is_planned_anew_too() -> None:
    group = running(a_task("web", 3, restart=Restart(scope=Scope.NODE)))
    seen = well(group).absent("web-1").absent("web-2")
    group = decided(group, seen).group
    group = decided(group, well(group).observed(answer=a_plan(group))).group
    asked_for = {str(one.node): one for one in group.leases if one.state is LeaseState.ASKED}
    first = a_refusal(asked_for["web-1"])
    held_ = replace(well(group), leases={k: v for k, v in well(group).leases.items()
                                         if k == group.leases[0].id})  # fmt: skip
    group = decided(group, held_, refusals=[first]).group
    assert the_node(group, "web-2").lease is not None
    assert group.placing.acquired_at == 0.0
    second = a_refusal(asked_for["web-2"], retry_at=NEVER)
    after = decided(group, held_, refusals=[second]).group
    assert the_node(after, "web-2").lease is None
    assert the_node(after, "web-0").lease is not None


def test_a_group_that_needs_nothing_any_more_leaves_the_queue() -> None:
    group = running(a_task("trainer"), a_task("web", primary=False))
    group = decided(group, well(group).absent("web-0")).group
    group = decided(group, well(group).observed(answer=no_plan(group))).group
    assert group.placing.tries == 1
    nodes = (group.nodes[0], replace(group.nodes[1], settled=Outcome.STOPPED))
    assert decided(replace(group, nodes=nodes)).group.placing == Placing()


@pytest.mark.parametrize("lost", [["trainer-0"], ["trainer-0", "trainer-1"]])
def test_an_acquisition_is_complete_without_what_was_lost_meanwhile(lost: list[str]) -> None:
    group = acquired()
    group = decided(group, held(group, "trainer-0", "trainer-1", reporting=False)).group
    seen = well(group, now=NOW + 1)
    reports = {one.id: a_report(one, heard_at=NOW + 1) for one in group.leases}
    leases = {i: s for i, s in seen.leases.items() if str(lease_node(group, i)) not in lost}
    after = decided(group, replace(seen, leases=leases, reports=reports), now=NOW + 1).group
    assert after.placing.acquired_at == 0.0
    assert after.placing.request != ZERO


def lease_node(group: Group, lease: str) -> object:
    return next(one.node for one in group.leases if one.id == lease)


# The queue


def test_a_gang_waits_while_another_has_the_turn() -> None:
    group = asked()
    queue = Queue(turns={"local": "g1-9"})
    decision = decided(group, an_observed(answer=a_plan(group), queue=queue))
    assert decision.group.leases == ()
    assert said(decision)["queue"] == "group g1-9 is being placed on local; place 1 in the queue"


def test_a_gang_waits_behind_a_higher_priority() -> None:
    group = asked()
    spec = replace(group.spec, name="urgent", priority=5)
    first = waiting(replace(group, id="g1-9", spec=spec), infras=("local",))
    decision = decided(group, an_observed(answer=a_plan(group), queue=a_queue(first)))
    assert said(decision)["queue"] == "urgent is ahead; place 2 in the queue"


def test_a_gang_that_was_blocked_asks_anew_when_its_way_is_free() -> None:
    group = asked()
    queue = Queue(turns={"local": "g1-9"})
    group = decided(group, an_observed(answer=a_plan(group), queue=queue)).group
    assert len(actions(decided(group, an_observed()), Replan)) == 1


def test_being_passed_is_noted_and_forgotten_when_it_acquires() -> None:
    group = asked()
    group = decided(group, an_observed(answer=no_plan(group, retry_at=NOW + 30))).group
    other = Queue(turns={"local": "g1-9"})
    passed = decided(group, an_observed(queue=other), now=NOW + 3)
    assert passed.group.placing.passed_since == NOW + 3
    again = decided(passed.group, an_observed(), now=passed.group.placing.retry_at).group
    after = decided(again, an_observed(answer=a_plan(again)), now=NOW + 60).group
    assert after.placing.passed_since == 0.0


def test_what_would_not_fit_the_empty_infra_is_not_passed() -> None:
    group = asked()
    group = decided(group, an_observed(answer=no_plan(group, retry_at=NOW + 30))).group
    group = decided(group, an_observed(queue=Queue(turns={"local": "g1-9"})), now=NOW + 3).group
    group = decided(group, an_observed(), now=group.placing.retry_at).group
    never = replace(no_plan(group, retry_at=NEVER, never=True), infras=())
    after = decided(group, an_observed(answer=never), now=NOW + 31).group
    assert after.placing.passed_since == 0.0


def test_once_a_group_is_ending_nothing_is_acquired() -> None:
    group = running(a_task("trainer"), a_task("web", primary=False, termination_delay=60.0))
    group = decided(group, well(group).succeeding("trainer-0")).group
    decision = decided(group, well(group).absent("web-0"))
    assert actions(decision, Replan) == []
    assert decision.group.placing == Placing()

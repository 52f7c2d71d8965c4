"""Capacity for the gang: asked for as a plan, acquired as a whole, given up as a whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.model.action import Acquire, Assign, Release, Replan
from argosy.model.group import Group, LeaseState, Outcome, Placing, Stage
from argosy.model.ids import ZERO, Serial
from argosy.model.observed import Look, Observed, Queue, Refusal, SeenState
from argosy.model.spec import Restart, Scope
from argosy.testing.builders import (
    LIMITS,
    NOW,
    a_group,
    a_plan,
    a_queue,
    a_refusal,
    a_report,
    a_spec,
    a_task,
    an_observed,
    no_plan,
    seen_lease,
    the_node,
    waiting,
    well,
)
from tests.decide.deciding import LATER, actions, codes, decided, running, said

NEVER = float("inf")
TWO = (a_task("trainer", 2),)


def asked(*tasks, **changes) -> Group:
    """A group that has asked for a plan."""
    spec = a_spec(*(tasks or TWO), **changes)
    return decided(a_group(spec=spec), an_observed()).group


def acquired(*tasks, now: float = NOW, **changes) -> Group:
    """A group that has acquired what its plan says."""
    group = asked(*tasks, **changes)
    return decided(group, an_observed(answer=a_plan(group)), now=now).group


def held(group: Group, *nodes: str, reporting: bool = True, **changes) -> Observed:
    """The leases of `nodes` are up, and their agents report."""
    mine = [one for one in group.leases if str(one.node) in nodes]
    look = Look("local", NOW - 0.05, tuple(seen_lease(one, host="h1") for one in mine))
    reports = [a_report(one) for one in mine] if reporting else []
    return an_observed(looks=[look], reports=reports, **changes)


def refusals(group: Group, *nodes: str, **changes) -> list[Refusal]:
    return [a_refusal(one, **changes) for one in group.leases if str(one.node) in nodes]


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


# Two clocks


def test_the_turns_are_free_when_all_is_held_and_reports() -> None:
    group = acquired()
    decision = decided(group, held(group, "trainer-0", "trainer-1"))
    assert decision.group.placing == Placing()
    assert len(actions(decision, Assign)) == 2


def test_held_capacity_without_a_reporting_agent_is_not_complete() -> None:
    group = acquired()
    decision = decided(group, held(group, "trainer-0", "trainer-1", reporting=False))
    assert decision.group.placing.turns == ("local",)
    assert said(decision)["capacity"] == "waits for the agent on h1"


def test_slow_is_not_refused() -> None:
    group = acquired(hold_timeout=30.0, start_timeout=900.0)
    decision = decided(group, held(group, "trainer-0"), now=NOW + 899)
    assert decision.group.placing.turns == ("local",)
    assert decision.group.placing.hold_since == 0.0


def test_when_the_start_timeout_runs_out_everything_is_given_back() -> None:
    group = acquired(start_timeout=900.0)
    decision = decided(group, held(group, "trainer-0"), now=NOW + 900)
    assert len(actions(decision, Release)) == 2
    assert decision.group.placing.turns == ()
    assert decision.group.placing.retry_at > NOW + 900
    assert "placing-given-up" in codes(decision)
    assert said(decision)["no-capacity"] == "not all was there after 900 s"


def test_a_refusal_beside_what_is_held_starts_the_hold_timeout() -> None:
    group = acquired(hold_timeout=30.0)
    seen = held(group, "trainer-0", refusals=refusals(group, "trainer-1"))
    first = decided(group, seen)
    assert first.group.placing.hold_since == NOW
    assert said(first)["refused"] == "no room"
    assert decided(first.group, seen, now=NOW + 29).group.placing.turns == ("local",)
    last = decided(first.group, seen, now=NOW + 30)
    assert "placing-given-up" in codes(last)
    assert [node.lease for node in last.group.nodes] == [None, None]
    assert last.group.attempts[0].goal is Stage.ENDED  # its capacity goes when it has ended


def test_an_unschedulable_sighting_counts_as_a_refusal() -> None:
    group = acquired(hold_timeout=30.0)
    first, second = group.leases
    look = Look("local", NOW - 0.1, (
        seen_lease(first), seen_lease(second, SeenState.PENDING, unschedulable=True, text="full"),
    ))  # fmt: skip
    seen = an_observed(looks=[look], reports=[a_report(first)])
    assert decided(group, seen).group.placing.hold_since == NOW


def test_the_hold_clock_stops_when_the_refusal_is_over() -> None:
    group = acquired(hold_timeout=30.0)
    group = decided(group, held(group, "trainer-0", refusals=refusals(group, "trainer-1"))).group
    after = decided(group, held(group, "trainer-0"), now=NOW + 5).group
    assert after.placing.hold_since == 0.0


def test_after_a_gap_the_clocks_give_a_fresh_window() -> None:
    group = acquired(start_timeout=900.0)
    seen = held(group, "trainer-0", looking_since=LATER - 1)
    assert decided(group, seen, now=LATER).group.placing.turns == ("local",)
    assert decided(group, seen, now=LATER + 5).group.placing.turns == ()


def test_a_refusal_for_good_gives_everything_back_at_once() -> None:
    group = acquired()
    seen = held(group, "trainer-0", refusals=refusals(group, "trainer-1", retry_at=NEVER))
    assert len(actions(decided(group, seen), Release)) == 2


def test_a_gang_that_was_refused_as_a_whole_steps_aside_at_once() -> None:
    group = acquired()
    seen = an_observed(refusals=refusals(group, "trainer-0", "trainer-1"))
    decision = decided(group, seen)
    assert decision.group.placing.turns == ()
    assert decision.group.placing.report == ("all of it was refused", "no room")


def test_the_next_plan_avoids_the_host_that_refused() -> None:
    group = acquired()
    seen = an_observed(refusals=refusals(group, "trainer-0", "trainer-1"))
    group = decided(group, seen).group
    [ask] = actions(decided(group, an_observed(), now=group.placing.retry_at), Replan)
    assert ask.refused == (("local", "h1"),)


def given_back(group: Group) -> Group:
    """The gang was refused, gave all back, and the infra has it again."""
    seen = an_observed(refusals=refusals(group, "trainer-0", "trainer-1"))
    group = decided(group, seen).group
    look = Look("local", NOW + 0.5)
    queue = Queue(freed_at={"local": NOW + 0.6})
    return decided(group, an_observed(looks=[look], queue=queue), now=NOW + 0.6).group


def test_what_a_gang_gave_back_itself_does_not_cut_its_back_off_short() -> None:
    group = given_back(acquired())
    assert group.leases == ()
    assert group.placing.request == ZERO
    freed = Queue(freed_at={"local": NOW + 0.6})
    assert group.placing.retry_at > NOW + 0.7 or group.placing.tries > 1
    soon = group.placing.retry_at - 0.01
    assert actions(decided(group, an_observed(queue=freed), now=soon), Replan) == []


def test_what_others_free_afterwards_does() -> None:
    group = given_back(acquired())
    group = replace(group, placing=replace(group.placing, retry_at=NOW + 50))
    freed = Queue(freed_at={"local": NOW + 0.7})
    assert len(actions(decided(group, an_observed(queue=freed), now=NOW + 0.7), Replan)) == 1


def test_a_part_that_was_lost_before_the_start_is_asked_for_beside_the_rest() -> None:
    group = acquired()
    group = decided(group, held(group, "trainer-0", "trainer-1")).group
    decision = decided(group, well(group, now=NOW + 1).absent("trainer-1"), now=NOW + 1)
    [ask] = actions(decision, Replan)
    assert [str(node) for node in ask.nodes] == ["trainer-1"]
    assert decision.group.placing.hold_since == NOW + 1


def test_the_rest_is_held_only_for_a_while() -> None:
    group = acquired(hold_timeout=30.0)
    group = decided(group, held(group, "trainer-0", "trainer-1")).group
    group = decided(group, well(group, now=NOW + 1).absent("trainer-1"), now=NOW + 1).group
    late = decided(group, well(group, now=NOW + 31).observed(), now=NOW + 31)
    assert "placing-given-up" in codes(late)
    assert late.group.placing.request == ZERO  # the plan for the part is no answer any more
    assert all(node.lease is None for node in late.group.nodes)


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

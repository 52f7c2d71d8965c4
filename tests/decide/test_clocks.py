"""While a plan is being acquired: two clocks, refusals, turns, and giving up as a whole."""

from __future__ import annotations

from dataclasses import replace

from argosy.model.action import Assign, Decision, Release, Replan
from argosy.model.group import Group, Placing, Stage
from argosy.model.ids import ZERO
from argosy.model.observed import Look, Observed, Queue, SeenState
from argosy.testing.builders import (
    NOW,
    a_plan,
    a_refusal,
    a_report,
    a_task,
    an_observed,
    seen_lease,
    well,
)
from tests.decide.deciding import LATER, actions, codes, decided, said
from tests.decide.placing import NEVER, acquired, held, refusals


def test_the_turns_are_free_when_all_is_held_and_reports() -> None:
    group = acquired()
    decision = decided(group, held(group, "trainer-0", "trainer-1"))
    assert decision.group.placing == Placing()
    assert len(actions(decision, Assign)) == 2


def test_held_capacity_without_a_reporting_agent_is_not_complete() -> None:
    group = acquired()
    decision = decided(group, held(group, "trainer-0", "trainer-1", reporting=False))
    assert decision.group.placing.acquired_at == NOW
    assert said(decision)["capacity"] == "waits for the agent on h1"


def pending(group: Group, *, placed: str = "", text: str = "", **changes) -> Observed:
    """Its leases wait; those of the nodes that `placed` names have room already."""
    shown = tuple(
        seen_lease(one, SeenState.PENDING, text=text, placed=str(one.node) in placed, **changes)
        for one in group.leases
    )
    return an_observed(looks=[Look("local", NOW - 0.05, shown)])


def test_the_turns_are_free_once_all_has_room_whatever_it_waits_for() -> None:
    group = acquired()
    part = decided(group, pending(group, placed="trainer-0")).group
    assert part.placing.turns == ("local",)
    whole = decided(part, pending(group, placed="trainer-0 trainer-1")).group
    assert whole.placing.turns == ()
    assert whole.placing.acquired_at == NOW
    assert decided(whole, pending(group, placed="trainer-0")).group.placing.turns == ()


def test_without_a_turn_the_clocks_go_on() -> None:
    group = acquired(start_timeout=900.0)
    seen = pending(group, placed="trainer-0 trainer-1")
    group = decided(group, seen).group
    assert "placing-given-up" in codes(decided(group, seen, now=NOW + 900))


def test_what_was_taken_for_held_and_cannot_start_is_a_refusal() -> None:
    group = acquired()
    group = decided(group, held(group, "trainer-0", "trainer-1", reporting=False)).group
    stuck = pending(group, text="no `sh` in the image", unschedulable=True)
    decision = decided(group, stuck)
    assert told(decision, "placing-given-up").startswith("all of it was refused (no `sh` in the")
    assert len(actions(decision, Release)) == 2


def test_the_reason_of_a_refusal_is_said_once_with_its_own_hint() -> None:
    group = acquired()
    seen = an_observed(refusals=refusals(group, "trainer-0", "trainer-1", hint="ask for more"))
    decision = decided(group, seen)
    reasons = [(one.code, one.text, one.hint) for one in decision.reasons]
    assert reasons == [
        ("refused", "all of it was refused (no room)", "ask for more"),
    ]
    later = decided(decision.group, an_observed(), now=NOW + 0.1)
    assert [(one.code, one.text, one.hint) for one in later.reasons] == reasons


def test_the_next_try_says_why_the_try_before_failed() -> None:
    group = acquired()
    seen = an_observed(refusals=refusals(group, "trainer-0", "trainer-1"))
    group = decided(group, seen).group
    group = decided(group, an_observed(), now=group.placing.retry_at).group
    group = decided(group, an_observed(answer=a_plan(group)), now=NOW + 2).group
    again = decided(group, an_observed(), now=NOW + 2.5)
    assert said(again)["tried-before"] == "the try before: all of it was refused (no room)"
    refused = an_observed(refusals=refusals(group, "trainer-1"))
    assert "tried-before" not in said(decided(group, refused, now=NOW + 2.5))


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
    assert decision.group.placing.report == ("all of it was refused (no room)",)


def told(decision: Decision, code: str) -> str:
    return next(event.text for event in decision.events if event.code == code)


def test_the_event_of_giving_up_says_why_it_was_refused() -> None:
    group = acquired()
    whole = an_observed(refusals=refusals(group, "trainer-0", "trainer-1"))
    said_of_all = told(decided(group, whole), "placing-given-up")
    assert said_of_all.startswith("all of it was refused (no room): ")
    part = held(group, "trainer-0", refusals=refusals(group, "trainer-1", retry_at=NEVER))
    said_of_part = told(decided(group, part), "placing-given-up")
    assert said_of_part.startswith("a part was refused, and to wait would not help (no room): ")


def test_only_some_reasons_of_many_are_told() -> None:
    group = acquired(a_task("many", 5))
    refused = [a_refusal(one, text=f"{one.node}: full") for one in group.leases]
    text = told(decided(group, an_observed(refusals=refused)), "placing-given-up")
    assert "(many-0: full; many-1: full; many-2: full; and 2 more): " in text


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

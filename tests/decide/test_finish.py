"""Whether tasks and the group are over, and how they end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argosy.model.action import Release
from argosy.model.group import Group, LeaseState, Outcome, Phase, Stage, Verb
from argosy.model.observed import Look
from argosy.model.spec import EndsWith, Execution, OnFailure, Restart, Scope
from argosy.testing.builders import (
    NOW,
    a_node,
    a_report,
    a_spec,
    a_task,
    an_intent,
    an_observed,
    newest,
    seen_lease,
    the_node,
    well,
)
from tests.decide.deciding import actions, codes, decided, running, said


def settled(group: Group) -> dict[str, Outcome | None]:
    return {str(node.id): node.settled for node in group.nodes}


def all_gone(group: Group, now: float) -> object:
    """A look at `now` that shows nothing any more."""
    return an_observed(looks=[Look("local", now - 0.05)])


# Verdicts


def test_the_group_ends_with_its_last_primary() -> None:
    group = running(a_task("a"), a_task("b"))
    one = decided(group, well(group).succeeding("a-0")).group
    both = decided(one, well(one).succeeding("b-0")).group
    assert one.phase is Phase.RUNNING
    assert (both.phase, both.verdict) == (Phase.ENDING, Phase.SUCCEEDED)


def test_a_multi_node_task_succeeds_when_all_its_nodes_do() -> None:
    group = running(a_task("trainer", 2))
    one = decided(group, well(group).succeeding("trainer-0")).group
    assert one.verdict is None
    both = decided(one, well(one).succeeding("trainer-1")).group
    assert both.verdict is Phase.SUCCEEDED


def test_a_failed_primary_lets_the_others_go_on() -> None:
    group = running(a_task("a"), a_task("b"))
    one = decided(group, well(group).failing("a-0")).group
    assert one.verdict is None
    assert newest(one, "b-0").goal is Stage.RUNNING
    both = decided(one, well(one).succeeding("b-0")).group
    assert (both.verdict, both.cause) == (Phase.FAILED, "primary-failed")


def test_on_failure_stop_ends_the_group_with_its_first_failed_primary() -> None:
    group = running(spec=a_spec(a_task("a"), a_task("b"), on_failure=OnFailure.STOP))
    after = decided(group, well(group).failing("a-0")).group
    assert after.verdict is Phase.FAILED
    assert settled(after) == {"a-0": Outcome.FAILED, "b-0": Outcome.STOPPED}


def test_a_failed_auxiliary_is_shown_and_the_group_goes_on() -> None:
    group = running(a_task("trainer"), a_task("web", primary=False))
    decision = decided(group, well(group).failing("web-0"))
    assert decision.group.verdict is None
    assert "node-failed" in codes(decision)


def test_failed_auxiliaries_do_not_fail_the_group() -> None:
    group = running(a_task("trainer"), a_task("web", primary=False))
    group = decided(group, well(group).failing("web-0")).group
    after = decided(group, well(group).succeeding("trainer-0")).group
    assert after.verdict is Phase.SUCCEEDED


@pytest.mark.parametrize(
    "cause", ["setup-failed", "files-failed", "volume-failed", "network-failed"]
)
def test_a_setup_that_fails_ends_the_group_even_of_an_auxiliary(cause: str) -> None:
    group = running(a_task("trainer"), a_task("web", primary=False), stage=Stage.PREPARING)
    seen = well(group).ended("web-0", Outcome.FAILED, exit_code=1, cause=cause, text="pip says no")
    after = decided(group, seen).group
    assert (after.verdict, after.cause) == (Phase.FAILED, cause)
    assert after.text == "web-0: pip says no"
    assert settled(after)["trainer-0"] is Outcome.STOPPED


# The head


def test_a_task_may_end_with_its_head() -> None:
    group = running(a_task("trainer", 3, ends_with=EndsWith.HEAD))
    after = decided(group, well(group).succeeding("trainer-0")).group
    assert after.verdict is Phase.SUCCEEDED
    assert settled(after) == {
        "trainer-0": Outcome.SUCCEEDED, "trainer-1": Outcome.STOPPED, "trainer-2": Outcome.STOPPED,
    }  # fmt: skip


def test_the_rest_of_a_head_may_fail_once_it_has_succeeded() -> None:
    group = running(a_task("trainer", 2, ends_with=EndsWith.HEAD))
    seen = well(group).succeeding("trainer-0").failing("trainer-1")
    assert decided(group, seen).group.verdict is Phase.SUCCEEDED


def test_a_worker_that_fails_before_the_head_fails_the_task() -> None:
    group = running(a_task("trainer", 2, ends_with=EndsWith.HEAD))
    after = decided(group, well(group).failing("trainer-1")).group
    assert after.verdict is Phase.FAILED


def test_the_end_of_a_worker_alone_does_not_end_the_task() -> None:
    group = running(a_task("trainer", 2, ends_with=EndsWith.HEAD))
    assert decided(group, well(group).succeeding("trainer-1")).group.verdict is None


# Auxiliaries


def test_after_success_each_auxiliary_gets_its_own_termination_delay() -> None:
    group = running(
        a_task("trainer"),
        a_task("web", primary=False, termination_delay=10.0),
        a_task("log", primary=False, termination_delay=30.0),
        a_task("now", primary=False),
    )
    first = decided(group, well(group).succeeding("trainer-0"))
    assert settled(first.group)["now-0"] is Outcome.STOPPED
    assert settled(first.group)["web-0"] is None
    assert "termination-delay" in said(first)

    early = decided(first.group, now=NOW + 9.9).group
    assert settled(early)["web-0"] is None
    later = decided(first.group, now=NOW + 10.0)
    assert settled(later.group) | {"trainer-0": None, "now-0": None} == {
        "trainer-0": None, "now-0": None, "web-0": Outcome.STOPPED, "log-0": None,
    }  # fmt: skip
    assert later.wake_at <= NOW + 30.0


def test_a_group_wakes_when_a_termination_delay_is_over() -> None:
    group = running(a_task("trainer"), a_task("web", primary=False, termination_delay=5.0))
    group = decided(group, well(group).succeeding("trainer-0")).group
    gone = replace(well(group), leases={}).observed()
    assert decided(group, gone, now=NOW + 1).wake_at <= NOW + 5.0


def test_with_failure_the_delay_is_0() -> None:
    group = running(a_task("trainer"), a_task("web", primary=False, termination_delay=60.0))
    after = decided(group, well(group).failing("trainer-0")).group
    assert settled(after)["web-0"] is Outcome.STOPPED
    assert newest(after, "web-0").goal is Stage.ENDED


def test_an_auxiliary_ended_as_planned_is_stopped_and_not_failed() -> None:
    group = running(a_task("trainer"), a_task("web", primary=False))
    group = decided(group, well(group).succeeding("trainer-0")).group
    after = decided(group, well(group).ended("web-0", Outcome.STOPPED, signal=15)).group
    assert the_node(after, "web-0").settled is Outcome.STOPPED
    assert (the_node(after, "web-0").cause, after.verdict) == ("primaries-ended", Phase.SUCCEEDED)


def test_what_had_failed_by_itself_is_not_called_stopped() -> None:
    policy = Restart(scope=Scope.TASK)
    group = running(a_task("trainer"), a_task("web", 2, primary=False, restart=policy))
    group = replace(group, attempts=tuple(replace(a, host=str(a.node)) for a in group.attempts))
    group = decided(group, well(group).failing("web-0")).group  # not judged yet: peer-suspect
    after = decided(group, well(group).failing("trainer-0")).group
    assert settled(after)["web-0"] is Outcome.FAILED
    assert settled(after)["web-1"] is Outcome.STOPPED


# Serial groups


def serial(**changes: object) -> Group:
    """`first` runs; `second` has not begun."""
    spec = a_spec(a_task("first"), a_task("second"), execution=Execution.SERIAL)
    group = running(spec=spec)
    nodes = (group.nodes[0], a_node("second-0"))
    return replace(
        group, nodes=nodes, leases=group.leases[:1], attempts=group.attempts[:1], **changes
    )


def test_a_serial_task_begins_after_the_success_of_the_one_before() -> None:
    group = serial()
    decision = decided(group, well(group).succeeding("first-0"))
    assert decision.group.gang == 1
    assert "task-turn" in codes(decision)
    assert decision.group.verdict is None
    assert decision.group.placing.request > group.placing.request  # it asks for capacity


def test_after_a_failure_the_later_tasks_of_a_serial_group_never_start() -> None:
    group = serial()
    after = decided(group, well(group).failing("first-0")).group
    assert (after.verdict, after.cause) == (Phase.FAILED, "task-failed")
    assert settled(after) == {"first-0": Outcome.FAILED, "second-0": Outcome.STOPPED}


def test_a_serial_group_succeeds_with_its_last_task() -> None:
    spec = a_spec(a_task("first"), a_task("second"), execution=Execution.SERIAL)
    group = running(spec=spec, gang=1)
    first = replace(group.nodes[0], settled=Outcome.SUCCEEDED, lease=None, attempt=None)
    group = replace(
        group, nodes=(first, group.nodes[1]), leases=group.leases[1:], attempts=group.attempts[1:]
    )
    assert decided(group, well(group).succeeding("second-0")).group.verdict is Phase.SUCCEEDED


# Deadlines and wishes


def test_a_group_that_runs_longer_than_its_max_duration_fails() -> None:
    group = running(spec=a_spec(max_duration=100.0), started_at=NOW - 90.0)
    early = decided(group)
    late = decided(group, now=NOW + 10.0).group
    assert (early.group.verdict, early.wake_at) == (None, NOW + 10.0)
    assert (late.verdict, late.cause) == (Phase.FAILED, "deadline")


def test_max_duration_does_not_count_the_wait_for_capacity() -> None:
    group = running(spec=a_spec(max_duration=1.0), stage=Stage.PREPARING)
    assert decided(group, now=NOW + 500).group.verdict is None


def test_cancel_stops_everything_with_its_grace() -> None:
    wish = an_intent(Verb.CANCEL, by="ada")
    group = running(a_task("a"), a_task("b", primary=False, termination_delay=60), intents=(wish,))
    decision = decided(group)
    assert decision.group.verdict is Phase.CANCELLED
    assert decision.group.text == "cancelled by ada"
    assert {newest(decision.group, n).goal for n in ("a-0", "b-0")} == {Stage.ENDED}
    assert {order.grace for lease in decision.group.leases for order in lease.orders} == {None}
    assert decision.group.intents == ()


def test_cancel_now_has_a_grace_of_0() -> None:
    group = running(intents=(an_intent(Verb.CANCEL_NOW),))
    after = decided(group).group
    assert after.grace_zero
    assert [order.grace for lease in after.leases for order in lease.orders] == [0.0]


def test_cancel_now_hurries_a_group_that_is_ending_already() -> None:
    group = running(intents=(an_intent(Verb.CANCEL),))
    group = decided(group).group
    after = decided(replace(group, intents=(an_intent(Verb.CANCEL_NOW),))).group
    assert after.grace_zero
    assert [order.grace for lease in after.leases for order in lease.orders] == [0.0]


def test_cancel_cuts_a_termination_delay_short_and_keeps_the_success() -> None:
    group = running(a_task("trainer"), a_task("web", primary=False, termination_delay=600.0))
    group = decided(group, well(group).succeeding("trainer-0")).group
    after = decided(replace(group, intents=(an_intent(Verb.CANCEL),))).group
    assert the_node(after, "web-0").settled is Outcome.STOPPED
    assert the_node(after, "web-0").cause == "cancelled"
    assert after.verdict is Phase.SUCCEEDED


# The end


def ended(group: Group) -> Group:
    """The trainer succeeded and its lease was let go, at NOW."""
    return decided(group, well(group).succeeding("trainer-0")).group


def test_a_group_is_ending_until_its_capacity_was_released() -> None:
    group = ended(running())
    assert (group.phase, group.leases[0].state) == (Phase.ENDING, LeaseState.RELEASING)
    look = Look("local", NOW + 0.9, (seen_lease(group.leases[0]),))
    still = decided(group, an_observed(looks=[look]), now=NOW + 1)
    assert still.group.phase is Phase.ENDING
    assert said(still)["ending"] == "h1 still holds it"


def test_the_phase_is_final_once_nothing_is_held() -> None:
    group = ended(running())
    decision = decided(group, all_gone(group, NOW + 1), now=NOW + 1)
    assert (decision.group.phase, decision.group.ended_at) == (Phase.SUCCEEDED, NOW + 1)
    assert "group-ended" in codes(decision)
    assert decision.group.unreachable == ()


def test_a_host_that_cannot_be_reached_does_not_hold_up_the_end_for_ever() -> None:
    group = ended(running())
    blind = an_observed(looks=[Look("local", NOW + 10, blind_all=True)])
    early = decided(group, blind, now=NOW + 9.9)
    late = decided(group, blind, now=NOW + 10.0)
    assert early.group.phase is Phase.ENDING
    assert late.group.phase is Phase.SUCCEEDED
    assert late.group.unreachable == ("h1",)
    assert [one.lease for one in actions(late, Release)] == [group.leases[0].id]


def test_a_host_that_answers_is_waited_for() -> None:
    group = ended(running())
    lease = group.leases[0]
    seen = replace(well(running(), now=NOW + 60), group=group).observed()
    assert lease.id in seen.reports
    assert decided(group, seen, now=NOW + 60).group.phase is Phase.ENDING


def test_one_blind_look_does_not_make_a_host_that_is_heard_unreachable() -> None:
    group = ended(running())
    lease = group.leases[0]
    blind = Look("local", NOW + 59, blind=frozenset({lease.id}))
    heard = an_observed(looks=[blind], reports=[a_report(lease, heard_at=NOW + 58)])
    silent = an_observed(looks=[blind], reports=[a_report(lease, heard_at=NOW + 50)])
    assert decided(group, heard, now=NOW + 60).group.phase is Phase.ENDING
    assert decided(group, silent, now=NOW + 60).group.unreachable == ("h1",)


def test_a_final_phase_never_changes() -> None:
    group = ended(running())
    final = decided(group, all_gone(group, NOW + 1), now=NOW + 1).group
    again = decided(final, all_gone(final, NOW + 5), now=NOW + 5).group
    assert (again.phase, again.ended_at) == (final.phase, final.ended_at)


def test_the_record_is_clean_after_a_look_that_was_not_blind_and_showed_nothing() -> None:
    group = ended(running(infras=("local",)))
    final = decided(group, all_gone(group, NOW + 1), now=NOW + 1).group
    blind = an_observed(looks=[Look("local", NOW + 2, blind_all=True)])
    assert not final.clean
    assert not decided(final, blind, now=NOW + 2).group.clean
    assert decided(final, all_gone(final, NOW + 2), now=NOW + 2).group.clean

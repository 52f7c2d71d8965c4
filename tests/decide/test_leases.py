"""What is held is needed; what is seen with our mark and not needed is released."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argosy.model.action import Acquire, Release, Replan
from argosy.model.group import Group, LeaseState, Outcome, Phase, Stage, Verb
from argosy.model.ids import LeaseId, Serial, group_lease, lease_id
from argosy.model.observed import Look, SeenLease, SeenState
from argosy.model.spec import Restart, Scope, VolumeMount
from argosy.testing.builders import (
    LIMITS,
    NOW,
    a_group,
    a_lease,
    a_node,
    a_refusal,
    a_task,
    an_intent,
    an_observed,
    seen_lease,
    the_node,
    well,
)
from tests.decide.deciding import LATER, actions, codes, decided, running, said


def released(decision: object) -> list[LeaseId]:
    return [one.lease for one in actions(decision, Release)]


def looking(group: Group, *more: SeenLease, **changes: object) -> object:
    """What agrees with the record, and `more` on `local`."""
    seen = well(group).observed()
    look = seen.looks["local"]
    return replace(seen, looks={"local": replace(look, leases=(*look.leases, *more), **changes)})


# When capacity goes


def test_the_capacity_of_a_task_is_released_when_the_task_ends() -> None:
    group = running(a_task("a"), a_task("b"))
    decision = decided(group, well(group).succeeding("a-0"))
    assert released(decision) == [group.leases[0].id]
    assert the_node(decision.group, "a-0").lease is None
    assert "lease-released" in codes(decision)


def test_a_rank_that_ended_keeps_its_place_while_its_task_goes_on() -> None:
    group = running(a_task("trainer", 2))
    decision = decided(group, well(group).succeeding("trainer-0"))
    assert released(decision) == []


def test_a_lease_is_released_after_its_attempt_ended() -> None:
    group = running(intents=(an_intent(Verb.CANCEL),))
    stopping = decided(group)
    assert released(stopping) == []
    seen = well(stopping.group).ended("trainer-0", Outcome.STOPPED, signal=15)
    assert released(decided(stopping.group, seen)) == [group.leases[0].id]


@pytest.mark.parametrize(("verb", "grace"), [(Verb.CANCEL, 30.0), (Verb.CANCEL_NOW, 0.0)])
def test_a_lease_is_released_after_grace_and_a_margin_without_a_word(
    verb: Verb, grace: float
) -> None:
    group = decided(running(intents=(an_intent(verb),))).group
    until = NOW + grace + LIMITS.release_margin
    early = decided(group, well(group).observed(), now=until - 0.1)
    assert released(early) == []
    assert early.wake_at <= until
    assert released(decided(group, well(group).observed(), now=until)) == [group.leases[0].id]


def test_after_a_gap_a_stopping_attempt_gets_a_fresh_window() -> None:
    group = decided(running(intents=(an_intent(Verb.CANCEL),))).group
    seen = well(group).observed(looking_since=LATER - 1)
    assert released(decided(group, seen, now=LATER)) == []
    assert released(decided(group, seen, now=LATER + 5)) == [group.leases[0].id]


def test_only_the_lost_lease_is_replaced() -> None:
    group = running(a_task("trainer", 2, restart=Restart(scope=Scope.TASK)))
    decision = decided(group, well(group).gone("trainer-1"))
    assert released(decision) == [group.leases[1].id]
    [ask] = actions(decision, Replan)
    assert [str(node) for node in ask.nodes] == ["trainer-1"]
    assert ask.kept == (group.leases[0].placement,)


# Acquires


def asking(**changes: object) -> Group:
    lease = a_lease(state=LeaseState.ASKED, held_at=0.0, host="", **changes)
    return a_group(nodes=(a_node(lease=lease.id),), leases=(lease,), serial=Serial(1, 5))


def test_an_acquire_is_repeated_until_it_is_seen_or_refused() -> None:
    group = asking(asked_at=NOW)
    decision = decided(group, an_observed())
    assert [one.lease for one in actions(decision, Acquire)] == [group.leases[0].id]
    assert decision.wake_at == NOW + LIMITS.ask_again


def test_a_refused_acquire_is_repeated_when_the_refusal_says_so() -> None:
    group = asking(asked_at=NOW)
    group = replace(group, placing=replace(group.placing, acquired_at=NOW))
    refusal = a_refusal(group.leases[0], retry_at=NOW + 5)
    group = with_another(group)
    early = decided(group, an_observed(refusals=[refusal]))
    late = decided(group, an_observed(refusals=[refusal]), now=NOW + 5)
    assert group.leases[0].id not in [one.lease for one in actions(early, Acquire)]
    assert early.wake_at <= NOW + 5
    assert group.leases[0].id in [one.lease for one in actions(late, Acquire)]


def with_another(group: Group) -> Group:
    """A second node whose lease was asked for as well."""
    lease = replace(group.leases[0], id=lease_id(group.id, Serial(1, 4)), node=a_node("web-0").id)
    spec = replace(group.spec, tasks=(*group.spec.tasks, a_task("web")))
    nodes = (*group.nodes, a_node("web-0", lease=lease.id))
    return replace(group, spec=spec, nodes=nodes, leases=(*group.leases, lease))


# What is seen and not needed


def test_a_late_acquire_is_released_when_it_is_seen() -> None:
    group = running()
    late = SeenLease(lease_id(group.id, Serial(1, 3)), SeenState.PENDING)
    decision = decided(group, looking(group, late))
    assert released(decision) == [late.lease]
    assert decision.wake_at == NOW + LIMITS.ask_again


def test_what_an_earlier_life_issued_is_released() -> None:
    group = replace(running(), serial=Serial(5, 1), lives=(Serial(1, 10_000), Serial(3, 20)))
    old = SeenLease(lease_id(group.id, Serial(3, 20)), SeenState.UP)
    unknown = SeenLease(lease_id(group.id, Serial(3, 21)), SeenState.UP)
    assert released(decided(group, looking(group, old, unknown))) == [old.lease]


def test_what_this_store_never_issued_is_shown_and_not_released() -> None:
    group = running()
    stranger = SeenLease(lease_id(group.id, Serial(9, 1)), SeenState.UP, host="h5")
    decision = decided(group, looking(group, stranger))
    assert released(decision) == []
    assert said(decision)["stranger"].startswith("h5")
    assert "backup" in decision.reasons[0].hint


def test_a_release_is_repeated_until_nothing_is_seen() -> None:
    group = running()
    lease = replace(group.leases[0], state=LeaseState.RELEASING, released_at=NOW - 50)
    group = replace(
        group, leases=(lease,), phase=Phase.ENDING, verdict=Phase.SUCCEEDED, ending_at=NOW - 50,
        nodes=(replace(group.nodes[0], lease=None, settled=Outcome.STOPPED),),
    )  # fmt: skip
    look = Look("local", NOW - 0.1, (seen_lease(lease),))
    decision = decided(group, an_observed(looks=[look]))
    assert released(decision) == [lease.id]
    assert decision.wake_at <= NOW + LIMITS.ask_again


# The lease 0 of the group


def zero(group: Group) -> SeenLease:
    return SeenLease(group_lease(group.id), SeenState.UP)


def test_group_wide_things_stay_while_a_lease_there_is_needed() -> None:
    group = running()
    assert released(decided(group, looking(group, zero(group)))) == []


def test_group_wide_things_stay_while_another_lease_is_seen_there() -> None:
    group = ended()
    late = SeenLease(lease_id(group.id, Serial(1, 3)), SeenState.UP)
    look = Look("local", NOW - 0.1, (zero(group), late))
    assert released(decided(group, an_observed(looks=[look]))) == [late.lease]


def test_group_wide_things_go_while_what_is_left_of_an_ended_group_is_silent() -> None:
    group = running(infras=("local",))
    silent = replace(group.leases[0], state=LeaseState.RELEASING, released_at=NOW - 60)
    over = ended(leases=(silent,))
    look = Look("local", NOW - 0.1, (zero(group), SeenLease(silent.id, SeenState.UP)))
    assert released(decided(over, an_observed(looks=[look]))) == [silent.id, zero(group).lease]


def ended(**changes: object) -> Group:
    """A group that is over, of which something may be left."""
    group = running(infras=("local",))
    fields = {
        "leases": (), "attempts": (), "phase": Phase.SUCCEEDED, "ended_at": NOW - 50,
        "nodes": (replace(group.nodes[0], lease=None, attempt=None, settled=Outcome.SUCCEEDED),),
    }  # fmt: skip
    return replace(group, **{**fields, **changes})


def test_group_wide_things_go_when_nothing_else_is_needed_or_seen() -> None:
    group = ended()
    look = Look("local", NOW - 0.1, (zero(group),))
    decision = decided(group, an_observed(looks=[look]))
    assert released(decision) == [group_lease(group.id)]
    assert not decision.group.clean


def test_group_wide_things_stay_while_a_look_is_partly_blind() -> None:
    group = ended()
    hidden = frozenset([lease_id(group.id, Serial(1, 3))])
    look = Look("local", NOW - 0.1, (zero(group),), blind=hidden)
    assert released(decided(group, an_observed(looks=[look]))) == []


def test_volumes_of_a_group_stay_between_its_tasks() -> None:
    group = running()
    own = VolumeMount("/x", size_gib=1.0)
    spec = replace(group.spec, tasks=(replace(group.spec.tasks[0], volumes=(own,)),))
    nodes = (replace(group.nodes[0], lease=None, attempt=None),)
    between = ended(phase=Phase.PENDING, ended_at=0.0, spec=spec, nodes=nodes)
    look = Look("local", NOW - 0.1, (zero(group),))
    seen = an_observed(looks=[look])
    assert released(decided(between, seen)) == []
    plain = replace(between, spec=group.spec)
    assert released(decided(plain, seen)) == [group_lease(group.id)]
    over = ended(spec=spec)
    assert released(decided(over, seen)) == [group_lease(group.id)]


# After the end


def test_a_finished_group_is_clean_when_every_infra_it_ever_asked_shows_nothing() -> None:
    group = ended(infras=("local", "ssh/lab"))
    local, lab = Look("local", NOW - 0.1), Look("ssh/lab", NOW - 0.1)
    assert not decided(group, an_observed(looks=[local])).group.clean
    assert decided(group, an_observed(looks=[local, lab])).group.clean


def test_a_look_from_before_the_end_does_not_make_it_clean() -> None:
    group = ended()
    assert not decided(group, an_observed(looks=[Look("local", NOW - 60)])).group.clean


def test_a_finished_group_releases_what_appears_late() -> None:
    group = ended()
    late = SeenLease(lease_id(group.id, Serial(1, 3)), SeenState.UP)
    decision = decided(group, an_observed(looks=[Look("local", NOW - 0.1, (late,))]))
    assert released(decision) == [late.lease]
    assert not decision.group.clean


def test_a_stage_that_was_never_told_holds_no_capacity() -> None:
    group = running(stage=Stage.WAITING)
    node = replace(group.nodes[0], lease=None)
    attempt = replace(group.attempts[0], goal=Stage.ENDED, stop_at=0.0)
    group = replace(group, nodes=(node,), attempts=(attempt,))
    assert released(decided(group)) == [group.leases[0].id]

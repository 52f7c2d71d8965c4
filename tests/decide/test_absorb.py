"""What is seen moves the record forward; only evidence makes anything lost."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from argosy.model.action import Acquire
from argosy.model.group import LeaseState, Outcome, Phase, Stage
from argosy.model.ids import AttemptId, LeaseId, NodeId, Serial
from argosy.model.observed import Look, SeenAttempt, SeenState
from argosy.model.spec import Probe, Ready, Restart
from argosy.testing.builders import (
    NOW,
    a_group,
    a_lease,
    a_node,
    a_report,
    a_task,
    an_observed,
    attempts_of,
    newest,
    seen_lease,
    the_node,
    well,
)
from tests.decide.deciding import LATER, actions, codes, decided, running, said

ASKED = {"state": LeaseState.ASKED, "held_at": 0.0, "host": ""}


def an_asking_group():
    lease = a_lease(**ASKED)
    node = a_node(lease=lease.id)
    return a_group(nodes=(node,), leases=(lease,), serial=Serial(1, 5)), lease


# Leases


def test_a_lease_that_is_up_is_held_on_its_host() -> None:
    group, lease = an_asking_group()
    look = Look("local", NOW - 1, (seen_lease(lease, host="h7"),))
    decision = decided(group, an_observed(looks=[look]))
    held = decision.group.leases[0]
    assert (held.state, held.host, held.held_at) == (LeaseState.HELD, "h7", NOW)
    assert "lease-held" in codes(decision)


def test_a_pending_lease_is_noted_as_seen_and_not_asked_for_again() -> None:
    group, lease = an_asking_group()
    look = Look("local", NOW - 1, (seen_lease(lease, SeenState.PENDING, host=""),))
    decision = decided(group, an_observed(looks=[look]))
    assert decision.group.leases[0].state is LeaseState.ASKED
    assert decision.group.leases[0].held_at == NOW
    assert actions(decision, Acquire) == []


def test_what_was_never_seen_is_asked_for_again_under_the_same_id() -> None:
    group, lease = an_asking_group()
    decision = decided(group, an_observed(looks=[Look("local", LATER - 1)]), now=LATER)
    assert not decision.group.leases[0].lost
    assert [one.lease for one in actions(decision, Acquire)] == [lease.id]


def test_a_lease_that_was_seen_and_is_absent_from_a_later_look_is_lost() -> None:
    group = running()
    decision = decided(group, well(group).absent("trainer-0"))
    assert "host-lost" in codes(decision)
    ended = newest(decision.group, "trainer-0")
    assert (ended.outcome, ended.cause) == (Outcome.LOST, "host-lost")


def test_a_look_that_began_before_the_lease_was_seen_proves_nothing() -> None:
    group = running()
    lease = replace(group.leases[0], held_at=NOW - 0.05)
    group = replace(group, leases=(lease,))
    assert decided(group, well(group).absent("trainer-0")).group is group


def test_a_blind_look_proves_nothing() -> None:
    group = running()
    absent = well(group).absent("trainer-0")
    partly = replace(absent, blind=frozenset([group.leases[0].id]))
    wholly = replace(absent.observed(), looks={"local": Look("local", NOW - 0.1, blind_all=True)})
    assert decided(group, partly).group is group
    assert decided(group, wholly).group is group


def test_an_infra_that_says_gone_is_evidence() -> None:
    group = running(a_task("trainer", 2))
    decision = decided(group, well(group).gone("trainer-1"))
    assert newest(decision.group, "trainer-1").outcome is Outcome.LOST
    assert [e.about for e in decision.events if e.code == "host-lost"] == ["trainer-1"]


@given(st.floats(7.0, 1e6))
def test_silence_for_however_long_changes_nothing_and_is_shown(seconds: float) -> None:
    group = running(a_task("trainer", 2))
    seen = well(group).silent("trainer-0", since=NOW - seconds)
    decision = decided(group, seen)
    assert decision.group is group
    assert decision.actions == ()
    assert [one.about for one in decision.reasons if one.code == "agent-suspect"] == ["trainer-0"]


def test_an_agent_heard_within_six_seconds_is_not_suspect() -> None:
    group = running()
    assert said(decided(group, well(group).silent("trainer-0", since=NOW - 5.9))) == {}


def test_a_lease_being_released_is_gone_only_after_a_later_look() -> None:
    group = running()
    lease = replace(group.leases[0], state=LeaseState.RELEASING, released_at=NOW)
    node = replace(group.nodes[0], lease=None, settled=Outcome.STOPPED)
    ending = replace(
        group, leases=(lease,), nodes=(node,), phase=Phase.ENDING, verdict=Phase.CANCELLED,
        ending_at=NOW,
    )  # fmt: skip
    early = decided(ending, an_observed(looks=[Look("local", NOW - 0.1)]), now=NOW + 1)
    late = decided(ending, an_observed(looks=[Look("local", NOW + 0.1)]), now=NOW + 1)
    assert [one.state for one in early.group.leases] == [LeaseState.RELEASING]
    assert late.group.leases == ()


def test_what_a_released_lease_held_before_it_ran_was_stopped_not_lost() -> None:
    group = running(stage=Stage.READY)
    lease = replace(group.leases[0], state=LeaseState.RELEASING, released_at=NOW - 1)
    node = replace(group.nodes[0], lease=None, settled=Outcome.STOPPED)
    group = replace(group, leases=(lease,), nodes=(node,), phase=Phase.ENDING)
    decision = decided(group, an_observed(looks=[Look("local", NOW - 0.1)]))
    assert newest(decision.group, "trainer-0").outcome is Outcome.STOPPED


# Attempts


def test_a_report_moves_the_stage_forward_and_carries_the_address() -> None:
    group = running(a_task("trainer", 2), stage=Stage.PREPARING)
    seen = well(group).saying("trainer-0", Stage.READY, address="10.9.9.9")
    ready = newest(decided(group, seen).group, "trainer-0")
    assert (ready.stage, ready.address, ready.ready_at) == (Stage.READY, "10.9.9.9", NOW)


@given(st.lists(st.sampled_from([s for s in Stage if s < Stage.ENDED]), min_size=1, max_size=6))
def test_stages_never_shrink_whatever_is_reported(stages: list[Stage]) -> None:
    group = running(stage=Stage.PREPARING)
    reached = Stage.PREPARING
    for stage in stages:
        group = decided(group, well(group).saying("trainer-0", stage)).group
        reached = max(reached, stage)
        assert newest(group, "trainer-0").stage is reached


def test_an_attempt_that_has_ended_never_changes() -> None:
    group = running(a_task("trainer", 2))  # rank 0 keeps its place while the task goes on
    ended = decided(group, well(group).succeeding("trainer-0")).group
    later = decided(ended, well(ended, now=LATER).failing("trainer-0", 9), now=LATER).group
    assert newest(later, "trainer-0") == newest(ended, "trainer-0")


def test_an_attempt_absent_from_a_report_that_acknowledges_it_is_lost() -> None:
    group = running()
    report = a_report(group.leases[0])
    decision = decided(group, replace(well(group), reports={report.lease: report}))
    ended, successor = attempts_of(decision.group, "trainer-0")
    assert (ended.outcome, ended.cause) == (Outcome.LOST, "forgotten")
    assert successor.number == 2


def test_a_report_that_lags_does_not_prove_absence() -> None:
    group = running()
    report = a_report(group.leases[0], serial=Serial(1, 8999))
    decision = decided(group, replace(well(group), reports={report.lease: report}))
    assert newest(decision.group, "trainer-0").live


def test_an_attempt_that_no_agent_ever_showed_is_not_lost_by_absence() -> None:
    group = running(stage=Stage.WAITING)
    group = replace(group, attempts=(replace(group.attempts[0], seen=False),))
    report = a_report(group.leases[0])
    decision = decided(group, replace(well(group), reports={report.lease: report}))
    assert newest(decision.group, "trainer-0").live


def test_a_failed_setup_was_never_ready_and_never_started() -> None:
    group = running(stage=Stage.PREPARING)
    seen = well(group).ended("trainer-0", Outcome.FAILED, exit_code=2, cause="setup-failed",
                             address="")  # fmt: skip
    ended = newest(decided(group, seen).group, "trainer-0")
    assert (ended.ready_at, ended.started_at, ended.cause) == (0.0, 0.0, "setup-failed")


def test_an_exit_that_was_seen_before_its_start_still_started() -> None:
    group = running(stage=Stage.READY)
    ended = newest(decided(group, well(group).succeeding("trainer-0")).group, "trainer-0")
    assert ended.started_at == NOW


def test_the_end_is_told_with_how_it_came() -> None:
    group = running(a_task("a"), a_task("b"), a_task("c"))
    seen = (
        well(group)
        .failing("a-0", 7)
        .ended("b-0", Outcome.FAILED, signal=9, cause="signal")
        .ended("c-0", Outcome.LOST, cause="wrapper-vanished")
    )
    ends = {e.about: e.text for e in decided(group, seen).events if e.code == "attempt-ended"}
    assert ends == {
        "a-0": "failed: exit 7", "b-0": "failed: signal 9", "c-0": "lost: wrapper-vanished",
    }  # fmt: skip


def test_health_is_told_only_where_there_is_a_probe() -> None:
    probed = running(a_task(ready=Ready(Probe.TCP, port=80)))
    plain = running(a_task())
    told = decided(probed, well(probed).saying("trainer-0", Stage.RUNNING, healthy=False))
    untold = decided(plain, well(plain).saying("trainer-0", Stage.RUNNING, healthy=False))
    assert "attempt-unhealthy" in codes(told)
    assert codes(untold) == []


def test_losing_health_never_kills() -> None:
    group = running(a_task(ready=Ready(Probe.TCP, port=80)))
    decision = decided(group, well(group).saying("trainer-0", Stage.RUNNING, healthy=False))
    after = newest(decision.group, "trainer-0")
    assert (after.healthy, after.goal, after.stage) == (False, Stage.RUNNING, Stage.RUNNING)


def test_a_late_word_from_a_lost_host_is_not_taken() -> None:
    group = running(a_task(restart=Restart()))
    lost = decided(group, well(group).gone("trainer-0")).group
    seen = replace(well(lost), reports=well(group).reports).succeeding("trainer-0")
    after = decided(lost, seen).group
    assert newest(after, "trainer-0").outcome is Outcome.LOST


# What the record does not know


def unknown(number: int, *, incarnation: int = 1, stage: Stage = Stage.RUNNING) -> SeenAttempt:
    return SeenAttempt(
        AttemptId(f"g1-1.9-{number}"), NodeId("trainer", 0), number, incarnation, stage,
        address="10.0.0.77", healthy=True,
    )  # fmt: skip


def test_an_unknown_attempt_on_a_known_lease_is_adopted_as_it_stands() -> None:
    group = running()
    report = a_report(group.leases[0], unknown(2))
    decision = decided(group, replace(well(group), reports={report.lease: report}))
    node, attempt = the_node(decision.group, "trainer-0"), newest(decision.group, "trainer-0")
    assert (node.number, node.attempt) == (2, "g1-1.9-2")
    assert (attempt.stage, attempt.goal) == (Stage.RUNNING, Stage.RUNNING)
    assert "attempt-adopted" in codes(decision)


def test_the_attempt_that_an_adopted_one_succeeds_was_lost() -> None:
    group = running()
    report = a_report(group.leases[0], unknown(2))
    decision = decided(group, replace(well(group), reports={report.lease: report}))
    before = decision.group.attempts[0]
    assert (before.outcome, before.cause, before.judged) == (Outcome.LOST, "superseded", True)


def test_an_unknown_attempt_that_is_no_newer_is_not_adopted() -> None:
    group = running()
    report = a_report(group.leases[0], *well(group).reports[group.leases[0].id].attempts,
                      unknown(1))  # fmt: skip
    assert decided(group, replace(well(group), reports={report.lease: report})).group is group


def test_an_unknown_attempt_of_an_older_incarnation_is_not_adopted() -> None:
    group = running(incarnation=3)
    group = replace(group, attempts=(replace(group.attempts[0], incarnation=3),))
    mine = well(group).reports[group.leases[0].id].attempts
    report = a_report(group.leases[0], *mine, unknown(2, incarnation=2))
    assert decided(group, replace(well(group), reports={report.lease: report})).group is group


def test_a_newer_incarnation_replaces_what_the_record_knows() -> None:
    group = running(a_task("trainer"), a_task("reward"))
    report = a_report(group.leases[0], unknown(2, incarnation=2))
    seen = well(group)
    decision = decided(group, replace(seen, reports={**seen.reports, report.lease: report}))
    assert decision.group.incarnation == 2
    assert the_node(decision.group, "reward-0").replace


def test_a_report_on_a_lease_that_the_record_does_not_hold_is_no_news() -> None:
    group = running()
    stranger = replace(a_report(group.leases[0], unknown(2)), lease=LeaseId("g1-1.1-77"))
    seen = well(group)
    assert decided(group, replace(seen, reports={**seen.reports, stranger.lease: stranger})).group \
        is group  # fmt: skip

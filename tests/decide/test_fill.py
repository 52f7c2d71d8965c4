"""An attempt for every node that wants one and has capacity."""

from __future__ import annotations

from dataclasses import replace

from argosy.decide.fill import ATTEMPTS_KEPT
from argosy.model.group import Group, LeaseState, Outcome, Stage
from argosy.model.ids import Serial
from argosy.model.spec import Restart, Scope
from argosy.testing.builders import (
    NOW,
    a_group,
    a_lease,
    a_node,
    a_report,
    a_task,
    an_attempt,
    an_observed,
    attempts_of,
    newest,
    the_node,
    well,
)
from tests.decide.deciding import LATER, codes, decided, running, said


def housed(**changes: object) -> Group:
    """A node with a lease and no attempt."""
    lease = a_lease(count=10, **changes)
    return a_group(
        nodes=(a_node(lease=lease.id),), leases=(lease,), serial=Serial(1, 10), infras=("local",)
    )


def test_a_node_with_capacity_gets_its_first_attempt() -> None:
    decision = decided(housed())
    attempt = newest(decision.group, "trainer-0")
    assert (attempt.number, attempt.goal, attempt.stage) == (1, Stage.READY, Stage.WAITING)
    assert (attempt.host, attempt.infra) == ("h1", "local")
    assert attempt.barrier == decision.group.gang_barrier == 1
    assert "attempt-created" in codes(decision)


def test_a_lease_that_is_only_asked_for_carries_no_attempt() -> None:
    group = housed(state=LeaseState.ASKED, held_at=0.0, host="")
    assert decided(group, an_observed()).group.attempts == ()


def test_a_live_attempt_has_no_successor() -> None:
    group = running()
    nodes = (replace(group.nodes[0], replace=True),)
    after = decided(replace(group, nodes=nodes)).group
    assert len(after.attempts) == 1


def test_an_attempt_that_was_not_judged_has_no_successor() -> None:
    group = running(a_task("trainer", 2, restart=Restart(on_failure=True, scope=Scope.TASK)))
    group = replace(group, attempts=tuple(replace(a, host=str(a.node)) for a in group.attempts))
    after = decided(group, well(group).failing("trainer-0")).group  # peer-suspect
    assert len(attempts_of(after, "trainer-0")) == 1


def test_a_back_off_is_waited_for_and_shown() -> None:
    group = running(a_task(restart=Restart(on_failure=True, backoff_first=8.0)))
    group = decided(group, well(group).failing("trainer-0")).group
    waiting = decided(group, now=NOW + 3.0)
    assert (waiting.wake_at, said(waiting)["back-off"]) == (NOW + 8.0, "starts again in 5 s")
    after = decided(waiting.group, now=NOW + 8.0).group
    assert newest(after, "trainer-0").number == 2


def test_numbers_grow_and_ids_are_never_used_again() -> None:
    policy = Restart(on_failure=True, backoff_first=0.0)
    group = running(a_task(restart=policy))
    for _ in range(5):
        group = decided(group, well(group).failing("trainer-0")).group
    attempts = attempts_of(group, "trainer-0")
    assert [one.number for one in attempts] == [1, 2, 3, 4, 5, 6]
    assert len({one.id for one in attempts}) == 6


def test_a_new_life_of_the_server_issues_its_own_ids() -> None:
    decision = decided(housed(), life=2)
    assert decision.group.attempts[0].id == "g5eed01-1-1.2-1"
    assert decision.group.lives == (Serial(1, 10),)


def test_a_server_that_was_set_back_never_issues_an_older_life() -> None:
    group = replace(housed(), serial=Serial(7, 3))
    assert decided(group, life=2).group.attempts[0].id == "g5eed01-1-1.7-4"


def test_an_old_record_waits_until_it_was_told_what_runs_there() -> None:
    group = housed()
    waiting = decided(group, looking_since=NOW - 1)
    assert waiting.group.attempts == ()
    assert "was not heard yet" in said(waiting)["agent"]
    heard = replace(well(group), reports={group.leases[0].id: a_report(group.leases[0])})
    assert len(decided(group, heard.observed(looking_since=NOW - 1)).group.attempts) == 1


def test_the_reason_of_a_restart_goes_with_the_next_attempt_only() -> None:
    policy = Restart(on_failure=True, backoff_first=0.0)
    group = running(a_task(restart=policy))
    after = decided(group, well(group).failing("trainer-0")).group
    assert newest(after, "trainer-0").restart_reason == "failure"
    assert the_node(after, "trainer-0").restart_reason == ""


def test_the_record_keeps_only_the_newest_ended_attempts() -> None:
    group = running(a_task(restart=Restart(on_failure=True, backoff_first=0.0)))
    lease = group.leases[0].id
    old = tuple(
        an_attempt(
            lease=lease, count=n, number=n, stage=Stage.ENDED, outcome=Outcome.FAILED,
            judged=True, ended_at=NOW - 100 + n, healthy=False,
        )
        for n in range(1, 31)
    )  # fmt: skip
    current = replace(group.attempts[0], number=31)
    node = replace(group.nodes[0], number=31)
    group = replace(group, attempts=(*old, current), nodes=(node,))
    after = decided(group, well(group).failing("trainer-0")).group
    numbers = [one.number for one in attempts_of(after, "trainer-0")]
    assert numbers == [*range(32 - ATTEMPTS_KEPT, 32), 32]


def test_nothing_is_filled_for_what_is_settled() -> None:
    group = running(a_task("a"), a_task("b"))
    group = decided(group, well(group).succeeding("a-0")).group
    assert len(attempts_of(decided(group, now=LATER).group, "a-0")) == 1

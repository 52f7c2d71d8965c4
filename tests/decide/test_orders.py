"""What agents are told, under which serial, and when the address book travels."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from argosy.model.action import Assign
from argosy.model.group import LeaseState, Outcome, Stage, Verb
from argosy.model.ids import ZERO, Serial
from argosy.model.spec import Probe, Ready, Restart, Scope
from argosy.testing.builders import (
    LIMITS,
    NOW,
    a_report,
    a_task,
    an_intent,
    newest,
    the_node,
    well,
)
from tests.decide.deciding import actions, decided, running

AGAIN = Restart(on_failure=True, backoff_first=0.0, scope=Scope.NODE)


def test_nothing_is_sent_while_every_agent_has_its_assignment() -> None:
    assert actions(decided(running(a_task("trainer", 3))), Assign) == []


def test_an_assignment_is_repeated_until_the_agent_has_taken_its_serial() -> None:
    group = running()
    report = a_report(group.leases[0], *well(group).reports[group.leases[0].id].attempts,
                      serial=Serial(1, 8999))  # fmt: skip
    decision = decided(group, replace(well(group), reports={report.lease: report}))
    [assign] = actions(decision, Assign)
    assert assign.serial == group.leases[0].serial
    assert decision.wake_at == NOW + LIMITS.ask_again
    assert decision.group is group


def test_an_agent_that_never_reported_is_sent_even_an_empty_assignment() -> None:
    group = running()
    lease = replace(group.leases[0], serial=ZERO, orders=(), book=0)
    group = replace(
        group, leases=(lease,), attempts=(), book=replace(group.book, peers=()),
        nodes=(replace(group.nodes[0], attempt=None, number=0, not_before=NOW + 50),),
    )  # fmt: skip
    seen = replace(well(group), reports={})
    [assign] = actions(decided(group, seen.observed(looking_since=NOW)), Assign)
    assert (assign.lease, assign.orders) == (lease.id, ())


def test_what_changed_is_assigned_under_a_new_serial() -> None:
    group = running(intents=(an_intent(Verb.CANCEL),))
    [assign] = actions(decided(group), Assign)
    assert assign.serial > group.leases[0].serial
    assert [order.goal for order in assign.orders] == [Stage.ENDED]


def test_an_agent_is_told_of_every_live_attempt_on_its_lease_and_of_no_other() -> None:
    group = running(a_task("web", 2, restart=AGAIN))
    decision = decided(group, well(group).failing("web-0"))
    [assign] = [a for a in actions(decision, Assign) if a.lease == group.leases[0].id]
    assert [(order.number, order.goal) for order in assign.orders] == [(2, Stage.READY)]
    assert assign.orders[0].restart_reason == "failure"


def test_the_running_assignment_carries_a_complete_address_book() -> None:
    group = running(a_task("trainer", 2), a_task("web"), stage=Stage.READY)
    assigns = actions(decided(group), Assign)
    assert len(assigns) == 3
    for assign in assigns:
        assert {str(peer.node) for peer in assign.book.peers} == {"trainer-0", "trainer-1", "web-0"}
        assert all(peer.address and peer.live for peer in assign.book.peers)


def test_the_book_does_not_travel_to_what_is_only_ready() -> None:
    group = running(a_task("trainer", 3), stage=Stage.PREPARING)
    decision = decided(group, well(group).saying("trainer-0", Stage.READY))
    assert actions(decision, Assign) == []
    assert decision.group.book.version > group.book.version


def test_tasks_that_are_not_restarted_keep_running_and_see_the_new_address() -> None:
    group = running(a_task("web", restart=AGAIN), a_task("trainer"))
    group = decided(group, well(group).failing("web-0")).group
    decision = decided(group, well(group).saying("web-0", Stage.READY, address="10.7.7.7"))
    [assign] = [a for a in actions(decision, Assign) if a.lease == group.leases[1].id]
    assert {peer.address for peer in assign.book.peers if peer.node.task == "web"} == {"10.7.7.7"}
    assert [order.goal for order in assign.orders] == [Stage.RUNNING]
    assert newest(decision.group, "trainer-0").number == 1


def test_one_that_ended_is_in_the_book_as_not_live() -> None:
    group = running(a_task("a"), a_task("b"))
    after = decided(group, well(group).succeeding("a-0")).group
    assert [peer.live for peer in after.book.peers] == [False, True]


def test_health_is_in_the_book_where_it_is_balanced_over() -> None:
    web = a_task("web", balance=(8000,), ready=Ready(Probe.HTTP, port=8000))
    group = running(web, a_task("plain"))
    group = decided(group, well(group).saying("web-0", Stage.RUNNING, healthy=False)).group
    after = decided(group, well(group).saying("web-0", Stage.RUNNING, healthy=True)).group
    assert [(str(p.node), p.healthy) for p in after.book.peers] == [
        ("web-0", True), ("plain-0", False),
    ]  # fmt: skip


def test_the_book_keeps_its_version_when_nothing_in_it_changed() -> None:
    group = running(a_task("a", 2))
    group = decided(group, well(group).saying("a-0", Stage.STOPPING)).group
    after = decided(group, well(group).saying("a-1", Stage.STOPPING)).group
    assert after.book == group.book


def test_a_lost_or_released_lease_is_told_nothing() -> None:
    group = running(a_task("a"), a_task("b"))
    lost = decided(group, well(group).gone("a-0"))
    assert group.leases[0].id not in [one.lease for one in actions(lost, Assign)]
    ended = decided(group, well(group).ended("b-0", Outcome.SUCCEEDED, exit_code=0))
    state = next(one.state for one in ended.group.leases if one.id == group.leases[1].id)
    assert state is LeaseState.RELEASING
    assert group.leases[1].id not in [one.lease for one in actions(ended, Assign)]


@given(st.lists(st.sampled_from(["fail", "lose", "ready", "heal"]), max_size=8))
def test_serials_of_a_lease_and_versions_of_the_book_only_grow(steps: list[str]) -> None:
    group = running(a_task("web", 2, restart=AGAIN))
    for step in steps:
        before, seen = group, well(group)
        if the_node(group, "web-0").lease in seen.reports:
            seen = {
                "fail": lambda s: s.failing("web-0"),
                "lose": lambda s: s.absent("web-0"),
                "ready": lambda s: s.saying("web-0", Stage.READY),
                "heal": lambda s: s.saying("web-0", Stage.RUNNING, healthy=True),
            }[step](seen)
        group = decided(group, seen).group
        newer = {lease.id: lease.serial for lease in group.leases}
        assert all(newer.get(one.id, one.serial) >= one.serial for one in before.leases)
        assert group.book.version >= before.book.version
        assert group.serial >= before.serial

"""A group on a screen and on a line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argosy.model.action import Reason
from argosy.model.group import Group, LeaseState, Outcome, Phase, Stage
from argosy.model.ids import NodeId
from argosy.model.needs import Need
from argosy.model.plan import Placement
from argosy.model.spec import Condition, EndsWith, Restart
from argosy.testing.builders import (
    NOW,
    a_group,
    a_lease,
    a_node,
    a_running_group,
    a_spec,
    a_task,
    an_attempt,
)
from argosy.views.overview import Usage, overview, row


def with_attempt(group: Group, node: str, **changes: object) -> Group:
    """The group with the newest attempt of a node changed."""
    attempts = tuple(
        replace(one, **changes) if str(one.node) == node else one for one in group.attempts
    )
    return replace(group, attempts=attempts)


def with_node(group: Group, node: str, **changes: object) -> Group:
    """The group with a node changed."""
    nodes = tuple(replace(one, **changes) if str(one.id) == node else one for one in group.nodes)
    return replace(group, nodes=nodes)


def phases(group: Group) -> list[str]:
    """The phase of the only task, then those of its nodes."""
    (task,) = overview(group, (), {}, NOW).tasks
    return [task.phase, *(node.phase for node in task.nodes)]


def test_running_group_shows_nodes_addresses_and_use() -> None:
    group = a_running_group(a_task("trainer", 2), a_task("reward", balance=(8000,)))
    usage = {group.attempts[0].id: Usage(97.5, 1 << 20)}
    view = overview(group, (), usage, NOW)
    first = view.tasks[0].nodes[0]
    assert (view.phase, view.exit_code, view.age) == ("RUNNING", None, 62.0)
    assert (first.host_name, first.stage, first.host) == ("trainer-0.demo", "RUNNING", "h1")
    assert (first.cpu_percent, first.rss_bytes, first.since) == (97.5, 1 << 20, NOW - 50)
    assert view.tasks[0].nodes[1].cpu_percent is None
    assert view.tasks[1].balanced == ("reward.demo:8000",)
    assert [task.up for task in view.tasks] == [2, 1]


def test_fresh_group_is_pending_and_waits_for_its_groups_reason() -> None:
    reason = Reason("queue", "", "behind other", since=NOW - 5, hint="wait")
    view = overview(a_group(a_task("trainer", 2)), (reason,), {}, NOW)
    node = view.tasks[0].nodes[1]
    assert (node.phase, node.stage, node.attempt) == ("PENDING", "WAITING", 0)
    assert (node.waits_for, node.waits_since) == ("behind other", NOW - 5)
    assert view.reasons[0].age == 5.0
    assert view.reasons[0].hint == "wait"


def test_reason_of_the_node_goes_before_that_of_its_task() -> None:
    reasons = (Reason("a", "trainer", "task waits"), Reason("b", "trainer-1", "node waits"))
    group = a_running_group(a_task("trainer", 2), stage=Stage.PREPARING)
    nodes = overview(group, reasons, {}, NOW).tasks[0].nodes
    assert [node.waits_for for node in nodes] == ["task waits", "node waits"]


def test_reason_of_the_group_is_not_told_of_a_running_node() -> None:
    view = overview(a_running_group(), (Reason("queue", "", "x"),), {}, NOW)
    assert view.tasks[0].nodes[0].waits_for == ""


def test_a_node_that_is_ready_before_its_gang_names_what_it_will_wait_for() -> None:
    wanted = (("a", Condition.HEALTHY), ("b", Condition.STARTED))
    tasks = (a_task("a"), a_task("b"), a_task("c", depends_on=wanted))
    group = a_running_group(*tasks, stage=Stage.READY)
    group = with_node(group, "c-0", asked=False)
    node = overview(group, (), {}, NOW).tasks[2].nodes[0]
    assert node.waits_for == "a to be healthy, b to be started"
    assert node.waits_since > 0
    again = overview(with_node(group, "c-0", asked=True), (), {}, NOW).tasks[2].nodes[0]
    assert again.waits_for == ""  # `depends_on` is not asked again
    assert node.waits_since == NOW - 55


def test_phase_of_a_node_before_it_runs() -> None:
    assert phases(a_running_group(stage=Stage.READY)) == ["STARTING", "STARTING"]
    asked = a_running_group(stage=Stage.WAITING)
    leases = tuple(replace(one, state=LeaseState.ASKED) for one in asked.leases)
    assert phases(replace(asked, leases=leases)) == ["PENDING", "PENDING"]


def test_second_attempt_that_does_not_run_yet_is_recovering() -> None:
    group = with_node(a_running_group(a_task("trainer", 2)), "trainer-1", number=2)
    group = with_attempt(group, "trainer-1", number=2, stage=Stage.PREPARING)
    assert phases(group) == ["RECOVERING", "RUNNING", "RECOVERING"]
    view = overview(group, (), {}, NOW)
    assert (view.restarts, view.tasks[0].nodes[1].restarts) == (1, 1)


def test_ended_attempt_that_is_not_settled_is_recovering() -> None:
    group = with_attempt(
        a_running_group(), "trainer-0", stage=Stage.ENDED, outcome=Outcome.FAILED, exit_code=3
    )
    node = overview(group, (), {}, NOW).tasks[0].nodes[0]
    assert (node.phase, node.outcome, node.exit_code) == ("RECOVERING", "failed", 3)


def test_node_that_is_told_to_end_is_ending() -> None:
    group = with_attempt(a_running_group(), "trainer-0", goal=Stage.ENDED, stop_at=NOW - 1)
    assert phases(group) == ["ENDING", "ENDING"]
    assert phases(replace(a_running_group(), phase=Phase.ENDING)) == ["ENDING", "ENDING"]


@pytest.mark.parametrize(
    ("settled", "expected"),
    [
        ((Outcome.SUCCEEDED, Outcome.SUCCEEDED), "SUCCEEDED"),
        ((Outcome.SUCCEEDED, Outcome.FAILED), "FAILED"),
        ((Outcome.LOST, Outcome.STOPPED), "FAILED"),
        ((Outcome.SUCCEEDED, Outcome.STOPPED), "STOPPED"),
        ((Outcome.SUCCEEDED, None), "RUNNING"),
    ],
)
def test_phase_of_a_task_by_how_its_nodes_settled(
    settled: tuple[Outcome | None, Outcome | None], expected: str
) -> None:
    group = a_running_group(a_task("trainer", 2))
    for index, outcome in enumerate(settled):
        group = with_node(group, f"trainer-{index}", settled=outcome)
    assert phases(group)[0] == expected


def test_stopped_nodes_of_a_cancelled_group_are_cancelled() -> None:
    group = replace(a_running_group(), phase=Phase.CANCELLED, ended_at=NOW - 2)
    group = with_node(group, "trainer-0", settled=Outcome.STOPPED)
    assert phases(group) == ["CANCELLED", "CANCELLED"]
    view = overview(group, (), {}, NOW)
    assert (view.exit_code, view.age, view.final) == (103, 60.0, True)


def test_task_that_ends_with_its_head_has_the_heads_phase() -> None:
    group = a_running_group(a_task("trainer", 2, ends_with=EndsWith.HEAD))
    group = with_node(group, "trainer-0", settled=Outcome.SUCCEEDED)
    group = with_node(group, "trainer-1", settled=Outcome.STOPPED)
    assert phases(group) == ["SUCCEEDED", "SUCCEEDED", "STOPPED"]


@pytest.mark.parametrize(
    ("phase", "code"), [(Phase.SUCCEEDED, 0), (Phase.FAILED, 100), (Phase.CANCELLED, 103)]
)
def test_exit_code_of_an_ended_group(phase: Phase, code: int) -> None:
    group = replace(a_group(), phase=phase, ended_at=NOW)
    assert overview(group, (), {}, NOW).exit_code == code
    assert row(group, NOW).exit_code == code


def test_root_cause_tells_the_attempt_that_failed_first() -> None:
    group = replace(a_running_group(a_task("trainer", 2)), root=NodeId("trainer", 1))
    group = with_attempt(
        group, "trainer-1", stage=Stage.ENDED, outcome=Outcome.FAILED, exit_code=None, signal=9,
        cause="oom", text="", number=4,
    )  # fmt: skip
    view = overview(group, (), {}, NOW)
    assert (view.root, view.root_attempt) == ("trainer-1", 4)
    assert view.root_text == "trainer-1 was killed by SIGKILL: oom"


def test_root_without_an_attempt_tells_its_cause() -> None:
    node = a_node("trainer-0", settled=Outcome.FAILED, cause="dependency-ended")
    group = a_group(root=NodeId("trainer", 0), nodes=(node,))
    assert overview(group, (), {}, NOW).root_text == "trainer-0 failed: dependency-ended"


def test_restarts_spent_tell_the_budget() -> None:
    spec = a_spec(a_task("trainer", 2, restart=Restart(max=3)), restarts=1)
    group = a_group(spec=spec, restarts=(("trainer/1", 2), ("*", 1)))
    spent = overview(group, (), {}, NOW).restarts_spent
    assert [(one.unit, one.spent, one.most) for one in spent] == [("trainer/1", 2, 3), ("*", 1, 1)]
    older = a_group(spec=spec, restarts=(("trainer-1", 2),))
    assert overview(older, (), {}, NOW).restarts_spent[0].most == 3
    by_task = a_group(spec=spec, restarts=(("*trainer", 2),))
    assert overview(by_task, (), {}, NOW).restarts_spent[0].most == 3


def test_price_counts_what_was_held() -> None:
    place = Placement(NodeId("trainer", 0), "aws", None, Need(), None, price_per_hour_usd=36.0)
    held = a_lease(placement=place, held_at=NOW - 100)
    gone = a_lease(count=2, placement=place, held_at=NOW - 100, released_at=NOW - 50)
    asked = a_lease(count=3, placement=place, held_at=0.0)
    view = overview(a_group(leases=(held, gone, asked)), (), {}, NOW)
    assert view.price_usd == pytest.approx(1.5)


def test_row_counts_the_nodes_that_are_up() -> None:
    group = a_running_group(a_task("trainer", 2), a_task("reward"))
    group = with_attempt(group, "trainer-1", stage=Stage.READY, goal=Stage.READY)
    line = row(group, NOW)
    assert (line.tasks, line.infra, line.age) == ("trainer 1/2, reward 1/1", "local", 62.0)


def test_infra_of_an_ended_group_is_where_it_ran() -> None:
    group = replace(a_running_group(), leases=(), phase=Phase.SUCCEEDED)
    assert row(group, NOW).infra == "local"


def test_row_of_an_ended_group_tells_what_became_of_its_tasks() -> None:
    group = replace(a_running_group(a_task("client"), a_task("server")), phase=Phase.SUCCEEDED)
    group = with_node(group, "client-0", settled=Outcome.SUCCEEDED)
    group = with_node(group, "server-0", settled=Outcome.STOPPED)
    assert row(group, NOW).tasks == "client done, server stopped"


def test_place_of_an_ended_group_is_where_it_ran() -> None:
    group = replace(a_running_group(), leases=(), phase=Phase.SUCCEEDED)
    assert overview(group, (), {}, NOW).tasks[0].nodes[0].host == "h1"


def test_usage_of_an_ended_attempt_is_not_shown() -> None:
    lease = a_lease()
    attempt = an_attempt(lease=lease.id, stage=Stage.ENDED, outcome=Outcome.SUCCEEDED)
    node = a_node(number=1, attempt=attempt.id, lease=lease.id)
    group = a_group(nodes=(node,), attempts=(attempt,), leases=(lease,))
    view = overview(group, (), {attempt.id: Usage(5.0, 5)}, NOW)
    assert view.tasks[0].nodes[0].cpu_percent is None

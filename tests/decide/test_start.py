"""Goals: nothing of a gang starts before all of it is ready; to stop is to raise a number."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from argosy.model.group import Outcome, Phase, Stage
from argosy.model.spec import Execution, Restart, Scope
from argosy.testing.builders import LIMITS, NOW, a_group, a_spec, a_task, newest, the_node, well
from tests.decide.deciding import codes, decided, running, said


@given(st.lists(st.sampled_from([Stage.WAITING, Stage.PREPARING, Stage.READY]), min_size=1,
                max_size=5))  # fmt: skip
def test_a_gang_starts_when_and_only_when_its_last_node_is_ready(stages: list[Stage]) -> None:
    group = running(a_task("trainer", len(stages)), stage=Stage.WAITING)
    seen = well(group)
    for index, stage in enumerate(stages):
        seen = seen.saying(f"trainer-{index}", stage)
    after = decided(group, seen).group
    goals = {newest(after, node.id).goal for node in after.nodes}
    ready = all(stage is Stage.READY for stage in stages)
    assert goals == {Stage.RUNNING if ready else Stage.READY}
    assert bool(after.started) == ready


def test_the_group_says_who_is_waited_for() -> None:
    group = running(a_task("trainer"), a_task("web"), stage=Stage.READY)
    attempts = (group.attempts[0], replace(group.attempts[1], stage=Stage.PREPARING))
    group = replace(group, attempts=attempts)
    assert said(decided(group))["not-ready"] == "web-0 is preparing: the others wait for it"


def test_a_node_that_is_alone_keeps_nobody_waiting() -> None:
    group = running(a_task("web"), stage=Stage.PREPARING)
    assert said(decided(group))["not-ready"] == "web-0 is preparing"


def test_the_start_is_told_and_remembered() -> None:
    decision = decided(running(stage=Stage.READY))
    assert "barrier-open" in codes(decision)
    assert (decision.group.started, decision.group.started_at) == ((1,), NOW)
    assert decision.group.phase is Phase.RUNNING


def test_a_suspect_agent_delays_the_start_and_it_is_looked_at_again_soon() -> None:
    group = running(a_task("trainer", 2), stage=Stage.READY)
    decision = decided(group, well(group).silent("trainer-1", since=NOW - 6.1))
    assert decision.group.started == ()
    assert said(decision)["agent-suspect"].startswith("h1")
    assert decision.wake_at == NOW + LIMITS.ask_again


def test_a_serial_groups_later_tasks_are_no_part_of_the_gang() -> None:
    spec = a_spec(a_task("first"), a_task("second"), execution=Execution.SERIAL)
    group = running(spec=spec, stage=Stage.READY)
    first, second = group.nodes
    group = replace(
        group, nodes=(first, replace(second, lease=None, attempt=None, number=0, barrier=0)),
        leases=group.leases[:1], attempts=group.attempts[:1],
    )  # fmt: skip
    after = decided(group).group
    assert newest(after, "first-0").goal is Stage.RUNNING
    assert the_node(after, "second-0").attempt is None


def test_a_restarted_node_waits_only_for_those_restarted_with_it() -> None:
    policy = Restart(on_failure=True, backoff_first=0.0, scope=Scope.NODE)
    group = running(a_task("web", 2, restart=policy))
    group = decided(group, well(group).failing("web-1")).group
    after = decided(group, well(group).saying("web-1", Stage.READY)).group
    assert newest(after, "web-1").goal is Stage.RUNNING
    assert newest(after, "web-0").number == 1


def test_nodes_restarted_together_start_together() -> None:
    policy = Restart(on_failure=True, backoff_first=0.0, scope=Scope.TASK)
    group = running(a_task("trainer", 2, restart=policy))
    group = decided(group, well(group).failing("trainer-1")).group
    group = decided(group, well(group).ended("trainer-0", Outcome.STOPPED, signal=15)).group
    one = decided(group, well(group).saying("trainer-0", Stage.READY)).group
    both = decided(one, well(one).saying("trainer-1", Stage.READY)).group
    assert newest(one, "trainer-0").goal is Stage.READY
    assert {newest(both, n.id).goal for n in both.nodes} == {Stage.RUNNING}


def test_what_is_settled_or_replaced_is_told_to_end_now() -> None:
    group = running(a_task("trainer", 2), a_task("web"))
    after = decided(group, well(group).failing("trainer-0")).group
    stopping = newest(after, "trainer-1")
    assert (stopping.goal, stopping.stop_at, stopping.stage) == (Stage.ENDED, NOW, Stage.RUNNING)


def test_an_older_attempt_that_still_lives_is_told_to_end() -> None:
    group = running()
    older = replace(group.attempts[0], id="g1-1.1-1", number=0, goal=Stage.READY,
                    stage=Stage.READY)  # fmt: skip
    after = decided(replace(group, attempts=(older, *group.attempts))).group
    assert after.attempts[0].goal is Stage.ENDED


def test_phases_for_people() -> None:
    assert decided(a_group()).group.phase is Phase.PENDING
    assert decided(running(stage=Stage.PREPARING)).group.phase is Phase.STARTING
    assert decided(running()).group.phase is Phase.RUNNING
    policy = Restart(on_failure=True, backoff_first=60.0)
    group = running(a_task(restart=policy), a_task("web"))
    assert decided(group, well(group).failing("trainer-0")).group.phase is Phase.RECOVERING
    assert decided(group, well(group).failing("web-0")).group.phase is Phase.RUNNING


def test_a_group_that_gave_its_last_capacity_back_is_pending_at_once() -> None:
    group = a_group(phase=Phase.STARTING)
    assert decided(group).group.phase is Phase.PENDING

"""`depends_on`: when a dependant starts, and when what it waits for can no longer come true."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argosy.model.group import Group, Outcome, Phase, Stage
from argosy.model.spec import Condition, EndsWith, Probe, Ready, Restart, TaskSpec
from argosy.testing.builders import NOW, a_task, newest, the_node, well
from tests.decide.deciding import codes, decided, running, said

PROBED = Ready(Probe.HTTP, port=8000)


def dependent(condition: Condition, on: TaskSpec, **changes: object) -> Group:
    """`trainer` depends on another task; all are READY and the barrier is not open."""
    trainer = a_task("trainer", depends_on=((on.name, condition),), **changes)
    return running(trainer, on, stage=Stage.READY)


def begun(group: Group, stage: Stage = Stage.RUNNING, *, healthy: bool = False) -> Group:
    """The barrier opened, and the other task reports that far."""
    group = decided(group).group
    nodes = [n.id for n in group.nodes if n.id.task != "trainer"]
    seen = well(group)
    for node in nodes:
        seen = seen.saying(node, stage, healthy=healthy)
    return decided(group, seen).group


def test_a_node_without_dependencies_starts_when_the_barrier_opens() -> None:
    after = decided(dependent(Condition.STARTED, a_task("web"))).group
    assert newest(after, "web-0").goal is Stage.RUNNING
    assert newest(after, "trainer-0").goal is Stage.READY


def test_a_dependant_says_what_it_waits_for() -> None:
    decision = decided(dependent(Condition.HEALTHY, a_task("web")))
    assert said(decision)["depends-on"] == "waits for web-0 to be healthy"


def test_started_holds_once_every_node_runs() -> None:
    group = decided(dependent(Condition.STARTED, a_task("web", 2))).group
    one = decided(group, well(group).saying("web-0", Stage.RUNNING)).group
    both = decided(one, well(one).saying("web-1", Stage.RUNNING)).group
    assert newest(one, "trainer-0").goal is Stage.READY
    assert newest(both, "trainer-0").goal is Stage.RUNNING


def test_healthy_waits_for_the_probe() -> None:
    group = dependent(Condition.HEALTHY, a_task("web", ready=PROBED))
    unready = begun(group, healthy=False)
    assert newest(unready, "trainer-0").goal is Stage.READY
    ready = decided(unready, well(unready).saying("web-0", Stage.RUNNING, healthy=True)).group
    assert newest(ready, "trainer-0").goal is Stage.RUNNING


def test_succeeded_waits_for_the_end() -> None:
    group = begun(dependent(Condition.SUCCEEDED, a_task("data")), healthy=True)
    assert newest(group, "trainer-0").goal is Stage.READY
    after = decided(group, well(group).succeeding("data-0")).group
    assert newest(after, "trainer-0").goal is Stage.RUNNING


def test_succeeded_of_a_task_that_ends_with_its_head_asks_the_head() -> None:
    data = a_task("data", 2, ends_with=EndsWith.HEAD)
    group = begun(dependent(Condition.SUCCEEDED, data), healthy=True)
    after = decided(group, well(group).succeeding("data-0")).group
    assert newest(after, "trainer-0").goal is Stage.RUNNING


def test_what_started_and_succeeded_before_it_was_asked_still_counts() -> None:
    group = begun(dependent(Condition.STARTED, a_task("data")), Stage.READY)
    after = decided(group, well(group).succeeding("data-0")).group
    assert newest(after, "trainer-0").goal is Stage.RUNNING


def test_without_a_probe_what_succeeded_was_healthy() -> None:
    group = begun(dependent(Condition.HEALTHY, a_task("data")), Stage.READY)
    after = decided(group, well(group).succeeding("data-0")).group
    assert newest(after, "trainer-0").goal is Stage.RUNNING


def test_health_belongs_to_the_attempt_that_showed_it() -> None:
    web = a_task("web", ready=PROBED, restart=Restart(on_failure=True, backoff_first=0.0))
    trainer = a_task(
        "trainer", depends_on=(("web", Condition.HEALTHY), ("data", Condition.STARTED))
    )
    group = decided(running(trainer, web, a_task("data"), stage=Stage.READY)).group
    group = decided(group, well(group).saying("web-0", Stage.RUNNING, healthy=True)).group
    group = decided(group, well(group).failing("web-0")).group
    after = decided(group, well(group).saying("data-0", Stage.RUNNING)).group
    assert newest(after, "trainer-0").goal is Stage.READY


def test_a_restart_does_not_ask_again() -> None:
    trainer = a_task(
        "trainer", depends_on=(("data", Condition.HEALTHY),),
        restart=Restart(on_failure=True, backoff_first=0.0),
    )  # fmt: skip
    group = running(trainer, a_task("data", ready=PROBED))
    group = decided(group, well(group).saying("data-0", Stage.RUNNING, healthy=False)).group
    group = decided(group, well(group).failing("trainer-0")).group
    after = decided(group, well(group).saying("trainer-0", Stage.READY)).group
    assert newest(after, "trainer-0").goal is Stage.RUNNING


def test_a_new_incarnation_asks_again() -> None:
    group = dependent(Condition.STARTED, a_task("data"))
    group = replace(group, nodes=tuple(replace(one, asked=False) for one in group.nodes))
    assert newest(decided(group).group, "trainer-0").goal is Stage.READY


@pytest.mark.parametrize("condition", [Condition.HEALTHY, Condition.SUCCEEDED])
def test_a_dependant_of_what_failed_ends_unstarted(condition: Condition) -> None:
    group = begun(dependent(condition, a_task("web", ready=PROBED, primary=False)))
    decision = decided(group, well(group).failing("web-0"))
    node = the_node(decision.group, "trainer-0")
    assert (node.settled, node.cause) == (Outcome.FAILED, "dependency-ended")
    assert newest(decision.group, "trainer-0").goal is Stage.ENDED
    assert newest(decision.group, "trainer-0").started_at == 0.0
    assert "dependency-ended" in codes(decision)


def test_the_usual_rules_for_primaries_apply_to_a_dead_dependant() -> None:
    group = begun(dependent(Condition.HEALTHY, a_task("web", ready=PROBED, primary=False)))
    after = decided(group, well(group).failing("web-0")).group
    assert (after.phase, after.verdict) == (Phase.ENDING, Phase.FAILED)


def test_a_dead_auxiliary_dependant_leaves_the_group_running() -> None:
    web = a_task("web", primary=False)
    watcher = a_task("watcher", primary=False, depends_on=(("web", Condition.SUCCEEDED),))
    group = decided(running(a_task("main"), web, watcher, stage=Stage.READY)).group
    after = decided(group, well(group).failing("web-0")).group
    assert the_node(after, "watcher-0").cause == "dependency-ended"
    assert after.verdict is None


def test_a_chain_of_dependants_ends_in_one_decision_whatever_their_order() -> None:
    last = a_task("last", depends_on=(("middle", Condition.SUCCEEDED),))
    middle = a_task("middle", depends_on=(("web", Condition.SUCCEEDED),))
    group = decided(running(last, middle, a_task("web"), stage=Stage.READY)).group
    after = decided(group, well(group).failing("web-0")).group
    assert the_node(after, "middle-0").cause == "dependency-ended"
    assert the_node(after, "last-0").cause == "dependency-ended"


def test_what_started_once_is_enough_for_a_dependant_that_asks_later() -> None:
    trainer = a_task(
        "trainer", depends_on=(("web", Condition.STARTED), ("data", Condition.STARTED))
    )
    group = decided(running(trainer, a_task("web"), a_task("data"), stage=Stage.READY)).group
    group = decided(group, well(group).saying("web-0", Stage.RUNNING)).group
    group = decided(group, well(group).failing("web-0")).group
    after = decided(group, well(group).saying("data-0", Stage.RUNNING)).group
    assert newest(after, "trainer-0").goal is Stage.RUNNING


def test_a_dependant_that_runs_is_not_ended_by_the_end_of_what_it_depended_on() -> None:
    trainer = a_task("trainer", depends_on=(("web", Condition.HEALTHY),))
    group = running(trainer, a_task("web", primary=False))
    after = decided(group, well(group).failing("web-0")).group
    assert newest(after, "trainer-0").goal is Stage.RUNNING
    assert newest(after, "web-0").ended_at == NOW

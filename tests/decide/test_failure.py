"""What the end of an attempt means: success, a restart, or a failed node."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.model.group import Group, Outcome, Phase, Stage, Verb
from argosy.model.ids import NodeId
from argosy.model.spec import Execution, Restart, Scope
from argosy.testing.builders import (
    LIMITS,
    NOW,
    Seen,
    a_spec,
    a_task,
    an_attempt,
    an_intent,
    attempts_of,
    newest,
    the_node,
    well,
)
from tests.decide.deciding import codes, decided, running, said

AGAIN = Restart(on_failure=True, max=3)


def goals(group: Group) -> dict[str, Stage]:
    """The goal of each node's newest attempt."""
    return {str(node.id): newest(group, node.id).goal for node in group.nodes}


def heard_after(group: Group, *nodes: str) -> Seen:
    """The agents of `nodes` spoke a second later; the others did not."""
    seen = well(group, now=NOW + 1.0)
    for node in group.nodes:
        if str(node.id) not in nodes and node.lease in seen.reports:
            seen = seen.silent(node.id, since=NOW - 1.0)
    return seen


# Success, and no restart


def test_exit_0_is_success() -> None:
    group = running(a_task("trainer", 2))
    after = decided(group, well(group).succeeding("trainer-1")).group
    assert the_node(after, "trainer-1").settled is Outcome.SUCCEEDED
    assert the_node(after, "trainer-0").settled is None


def test_without_a_policy_a_failure_is_not_restarted() -> None:
    group = running(a_task("trainer"), a_task("other"))
    decision = decided(group, well(group).failing("trainer-0", 3))
    assert the_node(decision.group, "trainer-0").settled is Outcome.FAILED
    assert decision.group.root == the_node(group, "trainer-0").id
    assert "node-failed" in codes(decision)


def test_a_failed_node_ends_the_rest_of_its_task() -> None:
    group = running(a_task("trainer", 3, restart=Restart(scope=Scope.NODE)), a_task("other"))
    after = decided(group, well(group).failing("trainer-1")).group
    assert [the_node(after, f"trainer-{i}").settled for i in range(3)] == [
        Outcome.STOPPED, Outcome.FAILED, Outcome.STOPPED,
    ]  # fmt: skip
    assert newest(after, "other-0").goal is Stage.RUNNING


def test_the_first_failed_node_is_the_root_cause_for_ever() -> None:
    group = running(a_task("a"), a_task("b"), a_task("c"))
    after = decided(group, well(group).failing("b-0")).group
    after = decided(after, well(after).failing("a-0")).group
    assert str(after.root) == "b-0"


# Lost hosts


def test_without_a_policy_a_lost_host_is_replaced() -> None:
    group = running(a_task())
    decision = decided(group, well(group).gone("trainer-0"))
    node = the_node(decision.group, "trainer-0")
    assert node.settled is None
    assert node.replace
    assert node.restart_reason == "lost"


@given(st.integers(1, 12))
def test_lost_hosts_never_spend_the_budget(times: int) -> None:
    group = running(a_task(restart=replace(AGAIN, max=1)))
    for _ in range(times):
        attempt = newest(group, "trainer-0")
        seen = well(group).ended("trainer-0", Outcome.LOST, cause="host-restarted")
        group = decided(group, seen).group
        assert attempts_of(group, "trainer-0")[-1].number == attempt.number + 1
    assert group.restarts == ()


def test_an_empty_list_restarts_not_even_what_was_lost() -> None:
    group = running(a_task(restart=Restart(on_lost=False)), a_task("other"))
    after = decided(group, well(group).gone("trainer-0")).group
    assert the_node(after, "trainer-0").settled is Outcome.FAILED


def test_a_lost_host_restarts_what_the_scope_says_and_keeps_the_others_leases() -> None:
    group = running(a_task("trainer", 2, restart=Restart(scope=Scope.TASK)))
    after = decided(group, well(group).gone("trainer-0")).group
    sibling = the_node(after, "trainer-1")
    assert sibling.replace
    assert sibling.lease == the_node(group, "trainer-1").lease
    assert newest(after, "trainer-1").goal is Stage.ENDED
    assert the_node(after, "trainer-0").lease is None


# Policies and budgets


def test_only_the_listed_exit_codes_are_restarted() -> None:
    group = running(a_task("trainer", restart=Restart(on_codes=(33,))), a_task("other"))
    listed = decided(group, well(group).failing("trainer-0", 33)).group
    unlisted = decided(group, well(group).failing("trainer-0", 34)).group
    assert the_node(listed, "trainer-0").settled is None
    assert the_node(unlisted, "trainer-0").settled is Outcome.FAILED


@given(st.integers(0, 6))
def test_a_budget_is_spent_once_per_failure_and_never_exceeded(limit: int) -> None:
    group = running(a_task(restart=Restart(on_failure=True, max=limit, backoff_first=0.0)))
    failures = 0
    while the_node(group, "trainer-0").settled is None:
        group = decided(group, well(group).failing("trainer-0")).group
        failures += 1
    assert failures == limit + 1
    assert dict(group.restarts).get("trainer/0", 0) == limit


def test_max_counts_per_node_in_scope_node() -> None:
    group = running(a_task("web", 2, restart=replace(AGAIN, scope=Scope.NODE)))
    after = decided(group, well(group).failing("web-1")).group
    assert after.restarts == (("web/1", 1),)


def test_a_task_with_the_name_of_a_node_has_a_budget_of_its_own() -> None:
    one = replace(AGAIN, max=1, scope=Scope.NODE)
    tasks = (a_task("a", 2, restart=one), a_task("a-1", restart=replace(one, scope=Scope.TASK)))
    group = running(*tasks)
    group = decided(group, well(group).failing("a-1")).group
    assert group.restarts == (("a/1", 1),)
    seen = well(group).failing(NodeId("a-1", 0))
    group = decided(group, seen).group
    assert group.restarts == (("a-1", 1), ("a/1", 1))
    assert the_node(group, NodeId("a-1", 0)).settled is None


def test_what_an_older_record_calls_a_node_counts_on() -> None:
    policy = replace(AGAIN, max=3, scope=Scope.NODE)
    group = replace(running(a_task("web", 2, restart=policy)), restarts=(("web-1", 2),))
    group = decided(group, well(group).failing("web-1")).group
    assert group.restarts == (("web-1", 2), ("web/1", 3))
    group = replace(group, restarts=(("web-1", 3),))
    last = decided(group, well(group).failing("web-0")).group
    assert last.restarts == (("web-1", 3), ("web/0", 1))


def test_max_counts_per_task_in_scope_task() -> None:
    group = running(a_task("trainer", 2, restart=replace(AGAIN, scope=Scope.TASK)))
    after = decided(group, heard_after(group, "trainer-0", "trainer-1").failing("trainer-1"))
    after = decided(after.group, well(after.group, now=NOW + 2), now=NOW + 2)
    assert after.group.restarts == (("trainer", 1),)


def test_the_back_off_doubles_up_to_its_limit() -> None:
    policy = Restart(on_failure=True, backoff_first=2.0, backoff_most=7.0)
    group, waits = running(a_task(restart=policy)), []
    for _ in range(4):
        group = decided(group, well(group).failing("trainer-0")).group
        waits.append(the_node(group, "trainer-0").not_before - NOW)
        group = decided(group, now=NOW + 10.0).group
        group = replace(group, nodes=(replace(group.nodes[0], not_before=0.0),))
    assert waits == [2.0, 4.0, 7.0, 7.0]


def test_a_restart_in_place_keeps_the_lease() -> None:
    group = running(a_task(restart=replace(AGAIN, backoff_first=0.0)))
    after = decided(group, well(group).failing("trainer-0")).group
    first, second = attempts_of(after, "trainer-0")
    assert (second.number, second.lease) == (2, first.lease)
    assert second.restart_reason == "failure"


# Scopes


def test_scope_node_lets_the_others_go_on() -> None:
    group = running(a_task("web", 3, restart=replace(AGAIN, scope=Scope.NODE)))
    after = decided(group, well(group).failing("web-1")).group
    assert [the_node(after, f"web-{i}").replace for i in range(3)] == [False, True, False]
    assert goals(after) | {"web-1": None} == dict.fromkeys(goals(group), Stage.RUNNING) | {
        "web-1": None
    }


def test_scope_node_ends_the_others_when_a_node_has_spent_its_restarts() -> None:
    policy = Restart(on_failure=True, max=0, scope=Scope.NODE)
    group = running(a_task("web", 2, restart=policy), a_task("other"))
    after = decided(group, well(group).failing("web-0")).group
    assert the_node(after, "web-1").settled is Outcome.STOPPED


def test_scope_task_replaces_every_node_even_one_that_had_succeeded() -> None:
    group = running(a_task("trainer", 3, restart=replace(AGAIN, scope=Scope.TASK)))
    group = decided(group, well(group).succeeding("trainer-2")).group
    after = decided(group, well(group).failing("trainer-0")).group
    assert [node.settled for node in after.nodes] == [None, None, None]
    assert newest(after, "trainer-1").goal is Stage.ENDED
    assert newest(after, "trainer-2").number == 2


def test_a_restart_has_one_barrier_of_what_it_restarts() -> None:
    group = running(a_task("trainer", 2, restart=replace(AGAIN, scope=Scope.TASK)), a_task("web"))
    group = decided(group, well(group).failing("trainer-0")).group
    after = decided(group, well(group, now=NOW + 1), now=NOW + 1).group
    barriers = {str(node.id): node.barrier for node in after.nodes}
    assert barriers == {"trainer-0": 2, "trainer-1": 2, "web-0": 1}
    assert 2 not in after.started


def test_scope_group_starts_everything_anew_in_the_next_incarnation() -> None:
    policy = Restart(on_failure=True, scope=Scope.GROUP)
    spec = a_spec(a_task("trainer", restart=policy), a_task("web"), restarts=1)
    group = running(spec=spec)
    group = decided(group, well(group).succeeding("web-0")).group
    after = decided(group, well(group).failing("trainer-0")).group
    assert after.incarnation == 2
    assert all(node.replace and node.settled is None for node in after.nodes)
    assert after.restarts == (("*", 1),)


def test_the_headers_restarts_are_a_limit() -> None:
    policy = Restart(on_failure=True, scope=Scope.GROUP)
    group = running(spec=a_spec(a_task("trainer", restart=policy), a_task("web"), restarts=0))
    after = decided(group, well(group).failing("trainer-0")).group
    assert the_node(after, "trainer-0").settled is Outcome.FAILED
    assert after.incarnation == 1


def test_a_group_restart_spends_the_tasks_own_budget_where_it_names_one() -> None:
    policy = Restart(on_failure=True, scope=Scope.GROUP, max=2)
    group = running(spec=a_spec(a_task("trainer", restart=policy), restarts=0))
    after = decided(group, well(group).failing("trainer-0")).group
    assert after.incarnation == 2
    assert after.restarts == (("*trainer", 1),)


def test_a_group_restart_of_a_serial_group_begins_with_the_first_task() -> None:
    policy = Restart(on_failure=True, scope=Scope.GROUP)
    spec = a_spec(
        a_task("first"), a_task("second", restart=policy), execution=Execution.SERIAL, restarts=1
    )
    group = running(spec=spec)
    first, second = group.nodes
    group = replace(
        group, gang=1, gang_barrier=2, started=(1, 2), barriers=2, leases=group.leases[1:],
        nodes=(replace(first, lease=None, settled=Outcome.SUCCEEDED), replace(second, barrier=2)),
        attempts=(
            an_attempt(
                "first-0", lease=first.lease, count=5000, stage=Stage.ENDED, judged=True,
                outcome=Outcome.SUCCEEDED, ended_at=NOW - 9, healthy=False,
            ),
            replace(group.attempts[1], barrier=2),
        ),
    )  # fmt: skip
    after = decided(group, well(group).failing("second-0")).group
    assert (after.gang, after.incarnation) == (0, 2)
    assert the_node(after, "second-0").lease is None  # the first task may need its room
    assert after.leases[0].released_at == NOW
    assert after.placing.request > group.placing.request


def test_tasks_named_along_are_restarted_too() -> None:
    policy = replace(AGAIN, along=("web",))
    group = running(a_task("trainer", restart=policy), a_task("web", 2), a_task("data"))
    after = decided(group, well(group).failing("trainer-0")).group
    assert {str(n.id): n.replace for n in after.nodes if n.id.task != "trainer"} == {
        "web-0": True, "web-1": True, "data-0": False,
    }  # fmt: skip
    assert {n.barrier for n in after.nodes if n.id.task != "data"} == {2}


def test_a_task_that_is_over_is_not_restarted_along() -> None:
    group = running(a_task("trainer", restart=replace(AGAIN, along=("web",))), a_task("web"))
    group = decided(group, well(group).succeeding("web-0")).group
    after = decided(group, well(group).failing("trainer-0")).group
    assert the_node(after, "web-0").settled is Outcome.SUCCEEDED


def test_before_the_first_start_a_restarted_node_stays_in_the_gangs_barrier() -> None:
    group = running(a_task("trainer", restart=AGAIN), a_task("web"), stage=Stage.READY)
    seen = well(group).ended("trainer-0", Outcome.FAILED, exit_code=1, cause="setup-failed")
    after = decided(group, seen).group
    assert the_node(after, "trainer-0").barrier == group.gang_barrier
    assert the_node(after, "trainer-0").settled is None


# Who is the root cause


def test_a_failure_is_judged_once_every_siblings_agent_was_heard_after_it() -> None:
    group = running(a_task("trainer", 3, restart=Restart(scope=Scope.TASK)))
    group = apart(group)
    waiting = decided(group, well(group).failing("trainer-1"))
    assert the_node(waiting.group, "trainer-1").settled is None
    assert "peer-suspect" in said(waiting)
    assert waiting.wake_at == NOW + LIMITS.ask_again

    one = decided(waiting.group, heard_after(waiting.group, "trainer-0"), now=NOW + 1)
    assert "trainer-2" in said(one)["peer-suspect"]

    both = decided(waiting.group, heard_after(waiting.group, "trainer-0", "trainer-2"), now=NOW + 1)
    assert the_node(both.group, "trainer-1").settled is Outcome.FAILED


def apart(group: Group) -> Group:
    """The same, each attempt on a host of its own."""
    attempts = tuple(replace(one, host=f"h-{one.node}") for one in group.attempts)
    return replace(group, attempts=attempts)


def test_a_lost_sibling_is_the_root_cause_and_nothing_is_spent() -> None:
    policy = Restart(on_failure=True, max=1, scope=Scope.TASK)
    group = apart(running(a_task("trainer", 2, restart=policy)))
    group = decided(group, well(group).failing("trainer-0")).group
    after = decided(group, well(group, now=NOW + 1).gone("trainer-1"), now=NOW + 1).group
    assert after.restarts == ()
    assert after.root is None
    assert newest(after, "trainer-0").restart_reason == "lost"
    assert the_node(after, "trainer-1").restart_reason == "lost"


def test_an_agent_that_speaks_for_both_nodes_is_not_waited_for() -> None:
    group = running(a_task("trainer", 2, restart=Restart(scope=Scope.TASK)), a_task("web"))
    after = decided(group, well(group).failing("trainer-0")).group
    assert the_node(after, "trainer-0").settled is Outcome.FAILED


def test_independent_nodes_do_not_wait_for_each_other() -> None:
    group = apart(running(a_task("web", 2, restart=replace(AGAIN, scope=Scope.NODE))))
    assert "peer-suspect" not in said(decided(group, well(group).failing("web-0")))


# Wrappers that vanish


def vanish(group: Group, at: float) -> Group:
    """The wrapper of the trainer vanishes, and its next attempt runs."""
    seen = well(group, now=at).ended("trainer-0", Outcome.LOST, cause="wrapper-vanished")
    group = decided(group, seen, now=at).group
    if the_node(group, "trainer-0").settled is None:
        group = decided(group, now=the_node(group, "trainer-0").not_before).group
    return group


def test_a_vanished_wrapper_is_lost_in_place_with_back_off() -> None:
    group = running(a_task(restart=Restart(backoff_first=4.0)))
    after = vanish(group, NOW)
    assert after.restarts == ()
    assert attempts_of(after, "trainer-0")[0].outcome is Outcome.LOST
    assert newest(after, "trainer-0").created_at == NOW + 4.0


def test_the_third_vanished_wrapper_within_ten_minutes_is_a_failure() -> None:
    group = running(a_task())
    for count in range(3):
        assert the_node(group, "trainer-0").settled is None
        group = vanish(group, NOW + 100.0 * count)
    assert the_node(group, "trainer-0").settled is Outcome.FAILED


def test_wrappers_that_vanished_longer_ago_do_not_count() -> None:
    group = running(a_task())
    for count in range(5):
        group = vanish(group, NOW + 400.0 * count)
    assert the_node(group, "trainer-0").settled is None


def test_a_lost_host_is_judged_before_a_vanished_wrapper() -> None:
    policy = Restart(scope=Scope.TASK)
    group = running(a_task("trainer", 2, restart=policy))
    first = replace(group.nodes[0], vanished=(NOW - 2, NOW - 1))
    group = replace(group, nodes=(first, group.nodes[1]))
    seen = well(group).gone("trainer-1").ended("trainer-0", Outcome.LOST, cause="wrapper-vanished")
    after = decided(group, seen).group
    assert the_node(after, "trainer-0").settled is None


# By hand


@pytest.mark.parametrize(
    ("scope", "index", "replaced"),
    [
        (Scope.NODE, 1, ["web-1"]),
        (Scope.NODE, None, ["web-0", "web-1"]),
        (Scope.TASK, 1, ["web-0", "web-1"]),
    ],
)
def test_a_restart_by_hand_is_free(scope: Scope, index: int | None, replaced: list[str]) -> None:
    group = running(a_task("web", 2, restart=Restart(scope=scope, max=0)), a_task("data"))
    wish = an_intent(Verb.RESTART, task="web", index=index)
    after = decided(replace(group, intents=(wish,))).group
    assert [str(node.id) for node in after.nodes if node.replace] == replaced
    assert after.restarts == ()
    assert after.intents == ()


def test_a_group_is_restarted_by_hand_as_a_new_incarnation() -> None:
    group = running(a_task("web", 2), a_task("data"), intents=(an_intent(Verb.RESTART),))
    after = decided(group).group
    assert after.incarnation == 2
    assert all(node.replace for node in after.nodes)


@pytest.mark.parametrize(("task", "index"), [("wbe", None), ("web", 7)])
def test_a_restart_of_what_there_is_not_is_refused(task: str, index: int | None) -> None:
    wish = an_intent(Verb.RESTART, task=task, index=index)
    decision = decided(running(a_task("web"), a_task("data"), intents=(wish,)))
    assert codes(decision) == ["restart-refused"]
    assert (decision.group.intents, decision.group.incarnation) == ((), 1)


def test_a_restart_of_what_is_over_is_refused() -> None:
    group = running(a_task("web"), a_task("data"))
    group = decided(group, well(group).succeeding("web-0")).group
    over = decided(replace(group, intents=(an_intent(Verb.RESTART, task="web"),)))
    assert "restart-refused" in codes(over)
    assert the_node(over.group, "web-0").settled is Outcome.SUCCEEDED

    ending = replace(group, phase=Phase.ENDING, verdict=Phase.FAILED, ending_at=NOW)
    ending = replace(
        ending, nodes=tuple(replace(n, settled=n.settled or Outcome.STOPPED) for n in group.nodes)
    )
    refused = decided(replace(ending, intents=(an_intent(Verb.RESTART),)))
    assert "restart-refused" in codes(refused)


# Once and for all


def test_an_end_is_judged_once() -> None:
    group = running(a_task(restart=replace(AGAIN, backoff_first=50.0)))
    seen = well(group).failing("trainer-0")
    after = decided(group, seen).group
    again = decided(after, seen)
    assert again.group is after
    assert codes(again) == []


def test_once_a_group_is_ending_nothing_is_restarted() -> None:
    group = running(a_task("trainer"), a_task("web", primary=False, termination_delay=60.0,
                                              restart=AGAIN))  # fmt: skip
    group = decided(group, well(group).succeeding("trainer-0")).group
    assert group.phase is Phase.ENDING
    after = decided(group, well(group).failing("web-0")).group
    assert the_node(after, "web-0").settled is Outcome.FAILED
    assert len(attempts_of(after, "web-0")) == 1

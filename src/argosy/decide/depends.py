"""What `depends_on` asks of other tasks: whether it holds, and whether it still can."""

from __future__ import annotations

from typing import assert_never

from argosy.decide.draft import Draft
from argosy.model.group import RUNNING, Node, Outcome
from argosy.model.spec import Condition, TaskSpec


def unmet(draft: Draft, task: TaskSpec) -> str:
    """What a task still waits for, in words; "" when nothing."""
    for name, condition in task.depends_on:
        other = draft.tasks[name]
        lacking = [n for n in draft.nodes_of(other) if not _holds(draft, other, n, condition)]
        if lacking and not _done_for_all(draft, other, condition):
            return f"waits for {lacking[0].id} to be {_word(condition)}"
    return ""


def impossible(draft: Draft, task: TaskSpec) -> str:
    """Why what a task waits for can no longer come true, in words; "" while it can."""
    for name, condition in task.depends_on:
        other = draft.tasks[name]
        verdict = draft.verdict(other)
        if _done_for_all(draft, other, condition):
            continue
        lacking = [n for n in draft.nodes_of(other) if not _holds(draft, other, n, condition)]
        if lacking and verdict is not None:
            return f"{name} ended ({verdict.value}) and was not {_word(condition)}"
        for node in lacking:
            if node.settled is not None:  # its siblings go on, and it will not come back
                return f"{node.id} ended ({node.settled.value}) and was not {_word(condition)}"
    return ""


def _holds(draft: Draft, task: TaskSpec, node: Node, condition: Condition) -> bool:
    attempt = draft.newest(node)
    started = attempt is not None and attempt.started_at > 0
    match condition:
        case Condition.SUCCEEDED:
            return node.settled is Outcome.SUCCEEDED
        case Condition.STARTED:
            return node.settled is Outcome.SUCCEEDED or (node.asked and started)
        case Condition.HEALTHY:
            if node.settled is Outcome.SUCCEEDED and task.ready is None:
                return True  # without a probe it was healthy while it ran
            here = attempt is not None and attempt.stage is RUNNING and attempt.healthy
            return here and not node.replace
        case _:
            assert_never(condition)


def _done_for_all(draft: Draft, task: TaskSpec, condition: Condition) -> bool:
    """A task that is over because its head is (`ends_with: head`) succeeded as a whole."""
    return condition is Condition.SUCCEEDED and draft.verdict(task) is Outcome.SUCCEEDED


def _word(condition: Condition) -> str:
    return "done with success" if condition is Condition.SUCCEEDED else condition.value

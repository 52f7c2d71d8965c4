"""What is not well in a group that goes on: nodes that failed, and nodes that are not healthy."""

from __future__ import annotations

from collections.abc import Iterable

from argosy.model.action import Event
from argosy.model.group import Group, Phase
from argosy.model.spec import OnFailure
from argosy.views.shapes import NodeView, Overview, TaskView
from argosy.views.text import duration, signal_name

NOTES_MOST = 12


def standing(
    group: Group, view: Overview, events: Iterable[Event], now: float
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sentences about such nodes at `now`, and instructions; () of a group that is over."""
    if view.final or group.phase is Phase.ENDING:
        return (), ()
    since = {event.about: event.at for event in events if event.code == "attempt-unhealthy"}
    waits = group.spec.on_failure is OnFailure.WAIT
    failed = [(task, one) for task in view.tasks for one in task.nodes if one.phase == "FAILED"]
    ill = [
        (task, one)
        for task in view.tasks
        for one in task.nodes
        if one.phase == "RUNNING" and not one.healthy
    ]
    notes = [_failed(task, one, waits) for task, one in failed]
    notes += [_ill(task, one, now - max(since.get(one.node, 0.0), one.since)) for task, one in ill]
    hints = []
    if waits and any(task.primary for task, _ in failed):
        hints.append("`on_failure: stop` in the file ends the group with its first failed primary")
    hints += [
        f"`argosy logs {view.name}/{task.name}/{one.index} --tail 20` shows its last words"
        for task, one in (*failed, *ill)[:1]
    ]
    more = len(notes) - NOTES_MOST
    return (*notes[:NOTES_MOST], *((f"and {more} more",) if more > 0 else ())), tuple(hints)


def _failed(task: TaskView, node: NodeView, waits: bool) -> str:
    code = f"exit code {node.exit_code}" if node.exit_code is not None else node.cause or "lost"
    how = signal_name(node.signal) if node.signal is not None else code
    if not task.primary:
        return f"{node.node} failed ({how}); it is auxiliary, so the group goes on"
    why = " because of `on_failure: wait`" if waits else ""
    return f"{node.node} failed ({how}); the group goes on{why}"


def _ill(task: TaskView, node: NodeView, seconds: float) -> str:
    out = f"; it is out of {', '.join(task.balanced)}" if task.balanced else ""
    return f"{node.node} runs and is not healthy for {duration(max(0.0, seconds))}{out}"

"""Where a group stands in one sentence, and the commands that help from there."""

from __future__ import annotations

from argosy.views.shapes import Overview
from argosy.views.text import duration


def summary(view: Overview, waiting: int = 0, noted: bool = False) -> str:
    """One sentence: where the group stands, and why; `noted`: notes below say what is not well."""
    if view.final:
        return f"{view.name} {view.phase} after {duration(view.age)}{_why(view)}"
    up, nodes = sum(task.up for task in view.tasks), len(view.nodes())
    told = f"{view.name} is {view.phase} for {duration(view.age)}, {up} of {nodes} nodes up"
    if view.cause:
        return told + _why(view)
    if waiting:
        return f"{told}; {waiting} reason{'s' if waiting != 1 else ''} below"
    return told if noted else f"{told}; nothing waits"


def next_steps(view: Overview) -> tuple[str, ...]:
    """Commands that help from here."""
    name = view.name
    if view.phase == "FAILED" and view.root:
        task, _, index = view.root.rpartition("-")
        attempt = f" --attempt {view.root_attempt}" if view.root_attempt > 1 else ""
        task = _task_named(view, view.root) or task
        return (
            f"`argosy logs {name}/{task}/{index}{attempt} --tail 50` shows its last words",
            f"`argosy events {name}` shows what came before",
        )
    if view.phase == "FAILED":
        return (f"`argosy events {name}` shows what came before",)
    if view.unreachable:
        return (f"hosts that may still hold something: {', '.join(view.unreachable)}",)
    return ()


def _task_named(view: Overview, node: str) -> str:
    """The task of a node, as the user wrote it."""
    return next((task.name for task in view.tasks for one in task.nodes if one.node == node), "")


def _why(view: Overview) -> str:
    if view.phase == "SUCCEEDED":
        return ""
    if view.root_text:
        return f": {view.root_text}"
    told = view.text or view.cause
    return f": {told}" if told else ""

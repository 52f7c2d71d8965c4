"""What a person wants to be told between two looks at a group, one line each.

A follower says only what is news: the phase of the group and of its nodes, restarts, failures.
Numbers that move all the time are not news.
"""

from __future__ import annotations

from argosy.views.shapes import NodeView, Overview
from argosy.views.text import ending


def changes(before: Overview | None, after: Overview) -> tuple[str, ...]:
    """The news in `after`; all of it is news when nothing came before."""
    old = {node.node: node for node in before.nodes()} if before is not None else {}
    lines = [line for node in after.nodes() if (line := _of_node(old.get(node.node), node))]
    if before is not None and before.incarnation != after.incarnation:
        lines.insert(0, f"the whole group is started anew (incarnation {after.incarnation})")
    if (before is None or before.phase != after.phase) and not after.final:
        told = f": {after.text or after.cause}" if after.cause and after.phase == "ENDING" else ""
        lines.append(f"{after.name} {after.phase}{told}")
    return tuple(lines)


def _of_node(before: NodeView | None, after: NodeView) -> str:
    name = f"{after.node}@{after.attempt}" if after.attempt > 1 else after.node
    if before is not None and before.attempt != after.attempt and before.attempt:
        return f"{name} replaces attempt {before.attempt} ({_end_of(before)})"
    if before is None or before.phase == after.phase:
        waited = before.waits_for if before is not None else ""
        if after.waits_for and after.waits_for != waited and after.phase != "RUNNING":
            return f"{name} {after.phase}: {after.waits_for}"
        return ""
    match after.phase:
        case "FAILED" | "RECOVERING":
            told = ending(after.outcome, after.exit_code, after.signal) if after.outcome else ""
            cause = f": {after.text}" if after.text else ""
            return f"{name} {after.phase}" + (f": it {told}{cause}" if told else cause)
        case "RUNNING":
            return (
                f"{name} RUNNING on {after.host or after.infra}"
                if after.host
                else f"{name} RUNNING"
            )
        case _:
            waits = f": {after.waits_for}" if after.waits_for else ""
            return f"{name} {after.phase}{waits}"


def _end_of(node: NodeView) -> str:
    if node.outcome:
        return f"it {ending(node.outcome, node.exit_code, node.signal)}"
    return node.cause or "its end was not seen"

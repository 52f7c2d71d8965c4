"""What must hold of every decision, as sentences that are broken; empty when all is well.

It runs after every decision, in production too: a broken check stops that group, and its last good
record is kept.
"""

from __future__ import annotations

from argosy.model.group import ENDED, GONE, RUNNING, Attempt, Group


def check(before: Group, after: Group) -> list[str]:
    """Everything that is wrong with the step from `before` to `after`."""
    if before is after:
        return []
    return [*_attempts(before, after), *_nodes(after), *_group(before, after)]


def _attempts(before: Group, after: Group) -> list[str]:
    wrong = []
    old_by_id = {one.id: one for one in before.attempts}
    for new in after.attempts:
        old = old_by_id.get(new.id)
        if old is not None and old is not new:
            wrong += _attempt(old, new)
    return wrong


def _attempt(old: Attempt, new: Attempt) -> list[str]:
    wrong = []
    if new.stage < old.stage:
        wrong.append(f"{new.node}@{new.number} fell from {old.stage.name} to {new.stage.name}")
    if new.goal < old.goal:
        wrong.append(f"the goal of {new.node}@{new.number} fell")
    if not old.live and (old.outcome, old.ended_at) != (new.outcome, new.ended_at):
        wrong.append(f"{new.node}@{new.number} had ended and changed")
    if (new.outcome is not None) != (new.stage is ENDED):
        wrong.append(f"{new.node}@{new.number} has an outcome and has not ended, or the reverse")
    return wrong


def _nodes(after: Group) -> list[str]:
    wrong = []
    leases = {one.id: one for one in after.leases}
    live: dict[object, list[Attempt]] = {}
    for attempt in after.attempts:
        if attempt.live:
            live.setdefault(attempt.node, []).append(attempt)
    for node in after.nodes:
        running = [one for one in live.get(node.id, []) if one.goal is RUNNING]
        if len(running) > 1 or (running and running[0].id != node.attempt):
            wrong.append(f"{node.id} has more than one attempt that may run")
        for attempt in running:
            if node.barrier not in after.started and not node.replace:
                wrong.append(f"{node.id} may run before its barrier opened")
            if attempt.incarnation != after.incarnation:
                wrong.append(f"{node.id} may run an attempt of another incarnation")
        if node.lease is not None and node.lease not in leases:
            wrong.append(f"{node.id} lives on a lease that the record does not hold")
    return wrong


def _group(before: Group, after: Group) -> list[str]:
    wrong = []
    if before.phase.final and after.phase is not before.phase:
        wrong.append(f"the group was {before.phase} and became {after.phase}")
    if after.serial < before.serial:
        wrong.append("a serial fell")
    if after.incarnation < before.incarnation:
        wrong.append("the incarnation fell")
    if after.phase.final and any(node.settled is None for node in after.nodes):
        wrong.append("the group is over and a node is not settled")
    spent = dict(after.restarts)
    if any(spent.get(unit, 0) < count for unit, count in before.restarts):
        wrong.append("a restart budget was reset")
    if len({one.id for one in after.leases}) != len(after.leases):
        wrong.append("a lease stands twice in the record")
    if any(one.state is GONE for one in after.leases):
        wrong.append("a lease of which nothing is left stayed in the record")
    return wrong

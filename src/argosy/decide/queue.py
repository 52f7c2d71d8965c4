"""The queue of gangs that wait for capacity: by priority, then age; replacements before all.

On one infra one gang at a time acquires: it has the turn until all of it has room, whatever it
waits for then. One that does not fit gives all back and steps aside, and those that fit may pass;
one that was passed for `pass_limit` is next, and nobody else gets a turn there until it has had
its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from argosy.model.group import Group, Placing
from argosy.model.ids import ZERO, InfraName
from argosy.model.observed import Queue, Waiting
from argosy.model.spec import Execution

REPLACEMENT = 1_000_000  # the priority of what a started group needs back


def waiting_of(group: Group, freed_at: Mapping[InfraName, float]) -> Waiting | None:
    """The group's place in the queue; None when it waits for no capacity."""
    placing = group.placing
    idle = placing.request == ZERO and not placing.tries and not placing.infras
    if group.phase.final or placing.acquired_at or idle:
        return None
    whole = group.spec.execution is not Execution.SERIAL
    started = group.gang_barrier in group.started or (whole and bool(group.started_at))
    return Waiting(
        group=group.id,
        name=group.spec.name,
        priority=REPLACEMENT if started else group.spec.priority,
        submitted_at=group.submitted_at,
        passed_since=placing.passed_since,
        retry_at=0.0 if freed_since(placing, freed_at) else placing.retry_at,
        infras=placing.infras,
    )


def freed_since(placing: Placing, freed_at: Mapping[InfraName, float]) -> bool:
    """Whether something was freed, where the gang would go, since its last try failed."""
    where = placing.infras or tuple(freed_at)
    return any(freed_at.get(infra, 0.0) > placing.failed_at for infra in where)


def rank(waiting: Waiting) -> tuple[int, float, str]:
    """The order of the queue, smallest first."""
    return (-waiting.priority, waiting.submitted_at, waiting.group)


def ahead(
    queue: Queue, me: Waiting, infras: tuple[InfraName, ...], now: float, pass_limit: float
) -> str:
    """Who keeps `me` from the turns on `infras`, in words; "" when nobody does."""
    for infra in infras:
        holder = queue.turns.get(infra)
        if holder is not None and holder != me.group:
            return f"group {holder} is being placed on {infra}"
    mine = _is_next(me, now, pass_limit)
    for other in queue.waiting:
        if other.group == me.group or (other.infras and not set(other.infras) & set(infras)):
            continue
        first = rank(other) < rank(me)
        if _is_next(other, now, pass_limit) and me.priority < REPLACEMENT:
            if first or not mine:
                return f"{other.name} has waited too long and is next"
        elif first and not mine and other.retry_at <= now and not _held_up(queue, other):
            return f"{other.name} is ahead"
    return ""


def before(queue: Queue, me: Waiting) -> list[str]:
    """The names of those who stand before `me` where it would go, the first one first."""

    def meets(other: Waiting) -> bool:
        return not (me.infras and other.infras) or bool(set(me.infras) & set(other.infras))

    mine = rank(me)
    found = [one for one in queue.waiting if rank(one) < mine and meets(one)]
    return [one.name for one in sorted(found, key=rank)]


def place(queue: Queue, me: Waiting) -> int:
    """The place in the queue, from 1."""
    return 1 + len(before(queue, me))


def _is_next(waiting: Waiting, now: float, pass_limit: float) -> bool:
    return bool(waiting.passed_since) and now - waiting.passed_since >= pass_limit


def _held_up(queue: Queue, other: Waiting) -> bool:
    return any(queue.turns.get(infra, other.group) != other.group for infra in other.infras)

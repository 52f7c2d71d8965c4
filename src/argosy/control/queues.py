"""The queue of gangs that wait for capacity, kept up to date as records are saved."""

from __future__ import annotations

from argosy.decide import queue
from argosy.model.group import Group, LeaseState
from argosy.model.ids import GroupId, InfraName
from argosy.model.observed import Queue, Waiting

WOKEN_MOST = 16  # so many of the first in the queue are asked again after a change


class Queues:
    """Who waits, who has the turn, and when something was freed last, by infra."""

    def __init__(self) -> None:
        self._waiting: dict[GroupId, Waiting] = {}
        self._turns: dict[InfraName, GroupId] = {}
        self._freed_at: dict[InfraName, float] = {}
        self._queue: Queue | None = None

    def current(self) -> Queue:
        """The queue as `decide` sees it."""
        if self._queue is None:
            waiting = tuple(self._waiting.values())
            self._queue = Queue(waiting, dict(self._turns), dict(self._freed_at))
        return self._queue

    def saved(self, before: Group | None, after: Group, now: float) -> bool:
        """Take in a saved record; whether others should be asked again."""
        for infra in _freed(before, after):
            self.freed(infra, now)
        turns = dict.fromkeys(after.placing.turns, after.id)
        mine = {infra: held for infra, held in self._turns.items() if held == after.id}
        waiting = queue.waiting_of(after, self._freed_at)
        changed = turns != mine or waiting != self._waiting.get(after.id)
        if changed:
            for infra in mine:
                del self._turns[infra]
            self._turns |= turns
            self._put(after.id, waiting)
        changed = changed or bool(_freed(before, after))
        if changed:
            self._queue = None
        return changed

    def freed(self, infra: InfraName, now: float) -> None:
        """There is more room on that infra."""
        self._freed_at[infra] = now
        self._refresh_all(infra)
        self._queue = None

    def first(self, without: GroupId) -> list[GroupId]:
        """The first of the queue, `without` one."""
        ranked = sorted(self._waiting.values(), key=queue.rank)
        return [one.group for one in ranked if one.group != without][:WOKEN_MOST]

    def forget(self, group: GroupId) -> None:
        """The group is no more."""
        self._put(group, None)
        self._turns = {infra: held for infra, held in self._turns.items() if held != group}
        self._queue = None

    def _put(self, group: GroupId, waiting: Waiting | None) -> None:
        if waiting is None:
            self._waiting.pop(group, None)
        else:
            self._waiting[group] = waiting

    def _refresh_all(self, infra: InfraName) -> None:
        """Something was freed: who waits for that infra may try at once."""
        for group, one in self._waiting.items():
            if not one.infras or infra in one.infras:
                self._waiting[group] = Waiting(
                    one.group, one.name, one.priority, one.submitted_at, one.passed_since,
                    0.0, one.infras,
                )  # fmt: skip


def _freed(before: Group | None, after: Group) -> set[InfraName]:
    """The infras on which the step let go of capacity for good."""
    if before is None or before.leases == after.leases:
        return set()
    left = {one.id for one in after.leases if one.state is not LeaseState.GONE}
    return {one.placement.infra for one in before.leases if one.id not in left}

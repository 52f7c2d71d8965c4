"""An infra that takes hosts back, and agents that do what they are told; for pure decisions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from argosy.model.action import Decision
from argosy.model.group import (
    Attempt,
    Group,
    Lease,
    Outcome,
    Stage,
)
from argosy.model.ids import AttemptId, LeaseId
from argosy.model.observed import Observed, SeenAttempt
from argosy.model.spec import Restart, Scope, TaskSpec
from argosy.testing.builders import (
    NOW,
    Seen,
    a_plan,
    newest,
    no_plan,
    seen_attempt,
    the_node,
    well,
)
from tests.decide.deciding import codes, decided, running

WHY = "the node is being drained"
NODE = Restart(scope=Scope.NODE)
TASK = Restart(scope=Scope.TASK)
GROUP = Restart(scope=Scope.GROUP)


@dataclass
class World:
    """An infra and agents that do what they are told, but for those that are held up."""

    group: Group
    now: float = NOW
    room: bool = True
    leaving: set[LeaseId] = field(default_factory=set)
    vanished: set[LeaseId] = field(default_factory=set)
    slow: set[AttemptId] = field(default_factory=set)  # they have their grace
    codes: list[str] = field(default_factory=list)
    decision: Decision | None = None

    def leave(self, *nodes: str) -> None:
        """The infra says so of the hosts of these nodes."""
        for node in nodes:
            self.leaving.add(newest(self.group, node).lease)
            self.slow.add(newest(self.group, node).id)

    def step(self) -> Decision:
        """One decision, and what it leads to is seen by the next."""
        self.now += 1.0
        self.decision = decided(self.group, self.observed(), now=self.now)
        self.group = self.decision.group
        self.codes += codes(self.decision)
        return self.decision

    def steps(self, count: int = 8) -> Decision:
        return [self.step() for _ in range(count)][-1]

    def goal(self, node: str) -> Stage:
        return newest(self.group, node).goal

    def lease(self, node: str) -> Lease | None:
        """Where a node is to be."""
        wanted = the_node(self.group, node).lease
        return next((one for one in self.group.leases if one.id == wanted), None)

    def observed(self) -> Observed:
        """What the next decision sees."""
        seen = well(self.group, now=self.now)
        shown = {
            one: replace(sight, leaving=WHY if one in self.leaving else "", host=self._host(one))
            for one, sight in seen.leases.items()
            if one not in self.vanished
        }
        reports = {
            one: replace(report, attempts=tuple(self._obeyed(one)))
            for one, report in seen.reports.items()
            if one not in self.vanished
        }
        answer = None
        if self.group.placing.request.count:
            lacking = [one.id for one in self.group.nodes if one.lease is None]
            yes = a_plan(self.group, nodes=lacking, host="h9")
            answer = yes if self.room else no_plan(self.group, retry_at=self.now + 5.0)
        return replace(seen, leases=shown, reports=reports).observed(answer=answer)

    def _host(self, lease: LeaseId) -> str:
        held = next(one for one in self.group.leases if one.id == lease)
        return held.host or f"h9-{held.node}"

    def _obeyed(self, lease: LeaseId) -> list[SeenAttempt]:
        held = next(one for one in self.group.leases if one.id == lease)
        orders = {order.attempt: order.goal for order in held.orders}
        return [
            self._after(one, orders.get(one.id, Stage.ENDED))
            for one in self.group.attempts
            if one.lease == lease
        ]

    def _after(self, attempt: Attempt, goal: Stage) -> SeenAttempt:
        if not attempt.live or (goal is Stage.ENDED and attempt.id in self.slow):
            return seen_attempt(attempt)
        if goal is Stage.ENDED:
            return seen_attempt(
                attempt, goal, outcome=Outcome.LOST, cause="host-leaving", healthy=False
            )
        return seen_attempt(attempt, max(goal, attempt.stage))


def a_world(*tasks: TaskSpec, **changes: Any) -> World:
    return World(running(*tasks, **changes))


def drained(seen: Seen, *nodes: str) -> Seen:
    """The infra says that the hosts of these nodes go away."""
    leases = dict(seen.leases)
    for node in nodes:
        lease = seen.attempt(node).lease
        leases[lease] = replace(leases[lease], leaving=WHY)
    return replace(seen, leases=leases)


def restarts(world: World) -> list[str]:
    return [one for one in world.codes if one.startswith("restart-")]

"""Short builders of model values for tests: every argument has a default that means "all is well".

A test names only what it is about:

    group = a_running_group(a_task("trainer", 2, restart=Restart(on_failure=True)))
    seen = well(group).failing("trainer-1", exit_code=3)
    decision = decide(group, seen.observed(), NOW, LIMITS)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from argosy.model.action import Limits
from argosy.model.group import (
    Attempt,
    Book,
    Group,
    Intent,
    Lease,
    LeaseState,
    Node,
    Order,
    Outcome,
    Peer,
    Phase,
    Placing,
    Stage,
    Verb,
)
from argosy.model.ids import (
    ZERO,
    AttemptId,
    GroupId,
    InfraName,
    LeaseId,
    NodeId,
    Serial,
    ServerId,
    attempt_id,
    group_id,
    lease_id,
)
from argosy.model.needs import Need
from argosy.model.observed import (
    Look,
    Observed,
    Queue,
    Refusal,
    Report,
    SeenAttempt,
    SeenLease,
    SeenState,
    Waiting,
)
from argosy.model.plan import NoPlan, Placement, Plan, PlanReport
from argosy.model.spec import GroupSpec, TaskSpec

NOW = 1000.0  # "now" of the builders, seconds
LIFE = 1  # of the server
LIMITS = Limits()
INFRA: InfraName = "local"


def a_task(name: str = "trainer", num_nodes: int = 1, **changes: Any) -> TaskSpec:
    """One task; `changes` are fields of `TaskSpec`."""
    return TaskSpec(name, num_nodes, **changes)


def a_spec(*tasks: TaskSpec, name: str = "demo", **changes: Any) -> GroupSpec:
    """A group's spec; without tasks: one `trainer` of one node."""
    return GroupSpec(name, tasks or (a_task(),), **changes)


def node_of(text: str | NodeId) -> NodeId:
    """`trainer-1` as a NodeId."""
    if isinstance(text, NodeId):
        return text
    task, _, index = text.rpartition("-")
    return NodeId(task, int(index))


def a_node(node: str | NodeId = "trainer-0", **changes: Any) -> Node:
    """A place that nothing has happened to yet."""
    return Node(node_of(node), **changes)


def a_group(*tasks: TaskSpec, spec: GroupSpec | None = None, **changes: Any) -> Group:
    """A group just submitted at NOW: nothing placed, nothing started."""
    spec = spec or a_spec(*tasks)
    fields: dict[str, Any] = {
        "id": group_id(ServerId("5eed01"), Serial(LIFE, 1)),
        "spec": spec,
        "submitted_at": NOW,
        "nodes": tuple(a_node(node) for node in spec.nodes()),
    }
    return Group(**{**fields, **changes})


def a_placement(
    node: str | NodeId = "trainer-0",
    host: str | None = "h1",
    infra: InfraName = INFRA,
    **changes: Any,
) -> Placement:
    """Where a node goes: on host `h1` of `local`."""
    fields: dict[str, Any] = {"need": Need(), "accelerator": None}
    return Placement(node_of(node), infra, host, **{**fields, **changes})


def a_plan(
    group: Group,
    *,
    request: Serial | None = None,
    host: str | None = "h1",
    infra: InfraName = INFRA,
    nodes: Iterable[str | NodeId] | None = None,
) -> Plan:
    """The planner's answer to the request that is open: every node (or `nodes`) on one host."""
    wanted = [node_of(n) for n in nodes] if nodes is not None else group.spec.nodes()
    placements = tuple(a_placement(node, host, infra) for node in wanted)
    return Plan(request or group.placing.request, placements)


def no_plan(group: Group, *, retry_at: float = NOW + 10.0, never: bool = False) -> NoPlan:
    """The planner's other answer to the request that is open."""
    report = PlanReport(refused=("no host has room",))
    return NoPlan(group.placing.request, report, retry_at, never, (INFRA,))


def a_lease(
    node: str | NodeId = "trainer-0",
    *,
    count: int = 1,
    group: GroupId | None = None,
    **changes: Any,
) -> Lease:
    """A lease that is held on `h1` since NOW - 60; `count` is the serial that its id is made of."""
    group = group or group_id(ServerId("5eed01"), Serial(LIFE, 1))
    fields: dict[str, Any] = {
        "placement": a_placement(node),
        "state": LeaseState.HELD,
        "asked_at": NOW - 61.0,
        "held_at": NOW - 60.0,
        "host": "h1",
    }
    return Lease(lease_id(group, Serial(LIFE, count)), node_of(node), **{**fields, **changes})


def an_attempt(
    node: str | NodeId = "trainer-0",
    *,
    lease: LeaseId,
    count: int = 100,
    group: GroupId | None = None,
    **changes: Any,
) -> Attempt:
    """The first attempt of a node, RUNNING and healthy since NOW - 50."""
    group = group or group_id(ServerId("5eed01"), Serial(LIFE, 1))
    fields: dict[str, Any] = {
        "number": 1,
        "incarnation": 1,
        "barrier": 1,
        "created_at": NOW - 60.0,
        "infra": INFRA,
        "host": "h1",
        "goal": Stage.RUNNING,
        "stage": Stage.RUNNING,
        "address": f"10.0.0.{count % 250 + 1}",
        "healthy": True,
        "ready_at": NOW - 55.0,
        "started_at": NOW - 50.0,
        "seen": True,
    }
    if changes.get("stage", Stage.RUNNING) < Stage.RUNNING:
        fields |= {"goal": Stage.READY, "healthy": False, "started_at": 0.0}
    if changes.get("stage", Stage.RUNNING) < Stage.READY:
        fields |= {"address": "", "ready_at": 0.0}
    return Attempt(
        attempt_id(group, Serial(LIFE, count)), node_of(node), lease=lease, **{**fields, **changes}
    )


def an_order(attempt: Attempt) -> Order:
    """What its agent was told of this attempt."""
    return Order(
        attempt.id,
        attempt.node,
        attempt.number,
        attempt.incarnation,
        attempt.goal,
        attempt.restart_reason,
    )


def a_running_group(
    *tasks: TaskSpec, spec: GroupSpec | None = None, stage: Stage = Stage.RUNNING, **changes: Any
) -> Group:
    """A group whose nodes all are RUNNING (or at `stage`), each on a lease of its own."""
    fresh = a_group(*tasks, spec=spec)
    started = stage >= Stage.RUNNING
    nodes, attempts, leases = [], [], []
    for index, node in enumerate(fresh.spec.nodes()):
        lease = a_lease(node, count=10 + index)
        attempt = an_attempt(node, lease=lease.id, count=5000 + index, stage=stage)
        lease = replace(lease, serial=Serial(LIFE, 9000), orders=(an_order(attempt),), book=1)
        nodes.append(
            Node(node, number=1, attempt=attempt.id, lease=lease.id, barrier=1, asked=started)
        )
        attempts.append(attempt)
        leases.append(lease)
    peers = tuple(Peer(a.node, a.number, a.address, True, a.healthy) for a in attempts)
    fields: dict[str, Any] = {
        "version": 10,
        "serial": Serial(LIFE, 10_000),
        "phase": Phase.RUNNING if started else Phase.STARTING,
        "placing": Placing(acquired_at=NOW - 61.0, infras=(INFRA,)),
        "gang_barrier": 1,
        "started": (1,) if started else (),
        "barriers": 1,
        "nodes": tuple(nodes),
        "attempts": tuple(attempts),
        "leases": tuple(leases),
        "book": Book(1, peers),
        "started_at": NOW - 50.0 if started else 0.0,
        "submitted_at": NOW - 62.0,
    }
    return replace(fresh, **{**fields, **changes})


def an_intent(verb: Verb = Verb.CANCEL, **changes: Any) -> Intent:
    """A wish of the user, said at NOW."""
    return Intent(verb, NOW, **changes)


def seen_lease(lease: Lease, state: SeenState = SeenState.UP, **changes: Any) -> SeenLease:
    """What an infra says of a lease: it is up."""
    return SeenLease(lease.id, state, **{"host": lease.host or "h1", **changes})


def seen_attempt(attempt: Attempt, stage: Stage | None = None, **changes: Any) -> SeenAttempt:
    """What an agent says of an attempt: what the record says, or that it has come to `stage`."""
    stage = attempt.stage if stage is None else stage
    fields: dict[str, Any] = {
        "stage": stage,
        "outcome": attempt.outcome,
        "exit_code": attempt.exit_code,
        "signal": attempt.signal,
        "address": attempt.address or ("10.0.0.9" if stage >= Stage.READY else ""),
        "healthy": attempt.healthy or stage == Stage.RUNNING,
        "at": NOW,
    }
    return SeenAttempt(
        attempt.id, attempt.node, attempt.number, attempt.incarnation, **{**fields, **changes}
    )


def a_report(lease: Lease, *attempts: SeenAttempt, **changes: Any) -> Report:
    """An agent's word on a lease, heard at NOW; it has taken the newest assignment."""
    fields: dict[str, Any] = {
        "heard_at": NOW,
        "boot_id": f"boot-{lease.host or 'h1'}",
        "serial": lease.serial,
    }
    return Report(lease.id, attempts=attempts, **{**fields, **changes})


def a_refusal(lease: Lease, *, retry_at: float = NOW + 5.0, **changes: Any) -> Refusal:
    """An infra's no to an `Acquire`; `retry_at` infinity: never by itself."""
    fields: dict[str, Any] = {
        "code": "capacity/full",
        "text": "no room",
        "hint": "wait, or ask for less",
        "at": NOW,
    }
    return Refusal(lease.id, retry_at=retry_at, **{**fields, **changes})


def waiting(group: Group, **changes: Any) -> Waiting:
    """The group's line in the queue."""
    fields: dict[str, Any] = {
        "passed_since": group.placing.passed_since,
        "retry_at": group.placing.retry_at,
        "infras": group.placing.infras,
    }
    return Waiting(
        group.id, group.spec.name, group.spec.priority, group.submitted_at, **{**fields, **changes}
    )


def a_queue(*groups: Group | Waiting, turns: Mapping[InfraName, GroupId] | None = None) -> Queue:
    """These gangs wait; nobody has a turn unless `turns` says so."""
    lines = tuple(one if isinstance(one, Waiting) else waiting(one) for one in groups)
    return Queue(lines, turns or {})


def an_observed(
    *,
    looks: Iterable[Look] = (),
    reports: Iterable[Report] = (),
    refusals: Iterable[Refusal] = (),
    **changes: Any,
) -> Observed:
    """What one decision looks at; with nothing named: nothing was seen of anything."""
    fields: dict[str, Any] = {"life": LIFE, "looking_since": NOW - 500.0}
    return Observed(
        looks={look.infra: look for look in looks},
        reports={report.lease: report for report in reports},
        refusals={refusal.lease: refusal for refusal in refusals},
        **{**fields, **changes},
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """Sightings that can be bent, one line at a time; every method returns a new value."""

    group: Group
    leases: Mapping[LeaseId, SeenLease] = field(default_factory=dict)
    reports: Mapping[LeaseId, Report] = field(default_factory=dict)
    blind: frozenset[LeaseId] = frozenset()
    now: float = NOW

    def observed(self, **changes: Any) -> Observed:
        """All of it as one `Observed`."""
        infras = {lease.placement.infra for lease in self.group.leases} or {INFRA}
        where = {lease.id: lease.placement.infra for lease in self.group.leases}
        looks = [
            Look(
                infra,
                self.now - 0.1,
                tuple(s for i, s in self.leases.items() if where.get(i, INFRA) == infra),
                self.blind,
            )
            for infra in sorted(infras)
        ]
        return an_observed(looks=looks, reports=self.reports.values(), **changes)

    def attempt(self, node: str | NodeId) -> Attempt:
        """The newest attempt of a node."""
        wanted = node_of(node)
        return next(a for a in reversed(self.group.attempts) if a.node == wanted)

    def saying(self, node: str | NodeId, stage: Stage, **changes: Any) -> Seen:
        """The node's agent reports its newest attempt at `stage`."""
        attempt = self.attempt(node)
        report = self.reports[attempt.lease]
        others = tuple(one for one in report.attempts if one.id != attempt.id)
        told = (*others, seen_attempt(attempt, stage, at=self.now, **changes))
        report = replace(report, attempts=told, heard_at=self.now)
        return replace(self, reports={**self.reports, attempt.lease: report})

    def ended(self, node: str | NodeId, outcome: Outcome, **changes: Any) -> Seen:
        """The node's agent reports its newest attempt ENDED."""
        return self.saying(node, Stage.ENDED, outcome=outcome, healthy=False, **changes)

    def succeeding(self, node: str | NodeId) -> Seen:
        """The program exited with 0."""
        return self.ended(node, Outcome.SUCCEEDED, exit_code=0, cause="exit")

    def failing(self, node: str | NodeId, exit_code: int = 1) -> Seen:
        """The program exited with `exit_code`."""
        return self.ended(node, Outcome.FAILED, exit_code=exit_code, cause="exit")

    def gone(self, node: str | NodeId) -> Seen:
        """The infra says that the node's host is gone; its agent fell silent a minute ago."""
        lease = self.attempt(node).lease
        seen = replace(self.leases[lease], state=SeenState.GONE)
        return replace(
            self.silent(node, since=self.now - 60.0), leases={**self.leases, lease: seen}
        )

    def absent(self, node: str | NodeId) -> Seen:
        """The infra does not show the node's lease any more."""
        lease = self.attempt(node).lease
        return replace(self, leases={i: s for i, s in self.leases.items() if i != lease})

    def silent(self, node: str | NodeId, *, since: float = NOW - 60.0) -> Seen:
        """The node's agent was heard last at `since`."""
        lease = self.attempt(node).lease
        report = replace(self.reports[lease], heard_at=since)
        return replace(self, reports={**self.reports, lease: report})


def well(group: Group, *, now: float = NOW) -> Seen:
    """Sightings that agree with the record: every lease up, every agent heard at `now`."""
    held = [lease for lease in group.leases if lease.state in (LeaseState.HELD, LeaseState.ASKED)]
    by_lease: dict[LeaseId, list[SeenAttempt]] = {lease.id: [] for lease in held}
    for attempt in group.attempts:
        if attempt.lease in by_lease:
            by_lease[attempt.lease].append(seen_attempt(attempt))
    return Seen(
        group,
        {lease.id: seen_lease(lease) for lease in held},
        {
            lease.id: a_report(lease, *by_lease[lease.id], heard_at=now)
            for lease in held
            if lease.serial != ZERO
        },
        now=now,
    )


def attempts_of(group: Group, node: str | NodeId) -> tuple[Attempt, ...]:
    """Every attempt of a node, oldest first."""
    wanted = node_of(node)
    return tuple(one for one in group.attempts if one.node == wanted)


def the_node(group: Group, node: str | NodeId) -> Node:
    """A node's line in the record."""
    wanted = node_of(node)
    return next(one for one in group.nodes if one.id == wanted)


def newest(group: Group, node: str | NodeId) -> Attempt:
    """The newest attempt of a node; StopIteration when there is none."""
    return attempts_of(group, node)[-1]


def by_id(group: Group) -> Mapping[AttemptId, Attempt]:
    """Every attempt by its id."""
    return {one.id: one for one in group.attempts}

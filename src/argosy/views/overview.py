"""A group as people see it: on one screen (`overview`) and on one line (`row`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from argosy.model.action import Reason
from argosy.model.group import Attempt, Group, Lease, Node, Outcome, Phase, Stage
from argosy.model.ids import AttemptId, LeaseId, NodeId
from argosy.model.spec import TaskSpec
from argosy.views.phases import UP, node_phase, task_phase
from argosy.views.shapes import (
    GroupRow,
    NodeView,
    Overview,
    ReasonView,
    SpentView,
    TaskView,
    Usage,
)
from argosy.views.text import ending

__all__ = ["GroupRow", "NodeView", "Overview", "TaskView", "Usage", "overview", "row"]

EXIT_CODES = {Phase.SUCCEEDED: 0, Phase.FAILED: 100, Phase.CANCELLED: 103}


def overview(
    group: Group,
    reasons: Iterable[Reason],
    usage: Mapping[AttemptId, Usage],
    now: float,
) -> Overview:
    """Everything about one group at `now`."""
    told = tuple(reason_view(reason, now) for reason in reasons)
    known = _Known.of(group, told, usage)
    tasks = tuple(_task(known, task) for task in group.spec.tasks)
    root, root_attempt, root_text = _root(group)
    return Overview(
        id=group.id,
        name=group.spec.name,
        phase=group.phase.value,
        cause=group.cause,
        text=group.text,
        incarnation=group.incarnation,
        version=group.version,
        submitted_at=group.submitted_at,
        started_at=group.started_at,
        ended_at=group.ended_at,
        now=now,
        age=max(0.0, (group.ended_at or now) - group.submitted_at),
        exit_code=EXIT_CODES.get(group.phase),
        price_usd=_price(group.leases, now),
        tasks=tasks,
        reasons=told,
        root=root,
        root_attempt=root_attempt,
        root_text=root_text,
        restarts=_restarts(group),
        restarts_spent=tuple(_spent(group, unit, spent) for unit, spent in group.restarts),
        unreachable=group.unreachable,
    )


def row(group: Group, now: float) -> GroupRow:
    """One group on one line at `now`."""
    known = _Known.of(group, (), {})
    return GroupRow(
        id=group.id,
        name=group.spec.name,
        phase=group.phase.value,
        cause=group.cause,
        tasks=", ".join(_in_short(known, task) for task in group.spec.tasks),
        age=max(0.0, (group.ended_at or now) - group.submitted_at),
        submitted_at=group.submitted_at,
        restarts=_restarts(group),
        infra=", ".join(sorted(_infras(group))),
        exit_code=EXIT_CODES.get(group.phase),
    )


def reason_view(reason: Reason, now: float) -> ReasonView:
    """A reason with its age; a reason without a start has none."""
    age = max(0.0, now - reason.since) if reason.since else None
    return ReasonView(
        reason.code, reason.about, reason.text, reason.since, age=age, hint=reason.hint
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """A group, with what is looked up for each node found by its key."""

    group: Group
    node: Mapping[NodeId, Node]
    attempt: Mapping[AttemptId, Attempt]
    lease: Mapping[LeaseId, Lease]
    reason: Mapping[str, ReasonView]  # by what it is about; the first of each
    usage: Mapping[AttemptId, Usage]

    @classmethod
    def of(
        cls, group: Group, reasons: tuple[ReasonView, ...], usage: Mapping[AttemptId, Usage]
    ) -> _Known:
        return cls(
            group,
            {one.id: one for one in group.nodes},
            {one.id: one for one in group.attempts},
            {one.id: one for one in group.leases},
            {one.about: one for one in reversed(reasons)},
            usage,
        )

    def nodes(self, task: TaskSpec) -> tuple[Node, ...]:
        """The nodes of a task; a place that the record does not name yet is an empty one."""
        return tuple(self.node.get(node, Node(node)) for node in task.nodes())

    def newest(self, node: Node) -> Attempt | None:
        """The newest attempt of a node; None: there is none."""
        return self.attempt.get(node.attempt) if node.attempt is not None else None

    def phase(self, node: Node) -> Phase:
        """The phase of a node."""
        lease = self.lease.get(node.lease) if node.lease is not None else None
        return node_phase(self.group, node, self.newest(node), lease)


def _task(known: _Known, task: TaskSpec) -> TaskView:
    views = tuple(_node(known, task, node) for node in known.nodes(task))
    phases = tuple(Phase(view.phase) for view in views)
    name = known.group.spec.balanced_name(task.name)
    return TaskView(
        name=task.name,
        primary=task.primary,
        phase=task_phase(task, phases).value,
        up=sum(phase in UP for phase in phases),
        balanced=tuple(f"{name}:{port}" for port in task.balance),
        nodes=views,
    )


def _node(known: _Known, task: TaskSpec, node: Node) -> NodeView:
    attempt = known.newest(node)
    phase = known.phase(node)
    place = node.lease or (attempt.lease if attempt is not None else None)
    lease = known.lease.get(place) if place is not None else None
    waits_for, waits_since = _waits(known, task, node, phase)
    view = NodeView(
        node=str(node.id),
        index=node.id.index,
        host_name=known.group.spec.host_name(node.id),
        phase=phase.value,
        attempt=node.number,
        restarts=max(0, node.number - 1),
        host=(lease.host or lease.placement.host or "") if lease is not None else "",
        infra=lease.placement.infra if lease is not None else "",
        outcome=_outcome(node, attempt),
        cause=node.cause,
        waits_for=waits_for,
        waits_since=waits_since,
    )
    return view if attempt is None else _with_attempt(view, attempt, known.usage)


def _with_attempt(view: NodeView, attempt: Attempt, usage: Mapping[AttemptId, Usage]) -> NodeView:
    used = usage.get(attempt.id) if attempt.live else None
    return replace(
        view,
        stage=attempt.stage.name,
        host=attempt.host or view.host,
        infra=attempt.infra or view.infra,
        address=attempt.address,
        healthy=attempt.live and attempt.healthy,
        since=_since(attempt),
        exit_code=attempt.exit_code,
        signal=attempt.signal,
        cause=view.cause or attempt.cause,
        text=attempt.text,
        cpu_percent=used.cpu_percent if used else None,
        rss_bytes=used.rss_bytes if used else None,
    )


def _outcome(node: Node, attempt: Attempt | None) -> str:
    outcome = node.settled or (attempt.outcome if attempt is not None else None)
    return outcome.value if outcome is not None else ""


def _since(attempt: Attempt) -> float:
    if not attempt.live:
        return attempt.ended_at
    if attempt.goal >= Stage.ENDED:
        return attempt.stop_at
    if attempt.stage >= Stage.RUNNING:
        return attempt.started_at
    return attempt.ready_at if attempt.stage >= Stage.READY else attempt.created_at


def _waits(known: _Known, task: TaskSpec, node: Node, phase: Phase) -> tuple[str, float]:
    """What a node waits for, and since when: its own reason, its task's, its group's."""
    if phase.final:
        return "", 0.0
    idle = phase not in (Phase.RUNNING, Phase.ENDING)
    for about in (str(node.id), task.name, "") if idle else (str(node.id), task.name):
        if reason := known.reason.get(about):
            return reason.text, reason.since
    attempt = known.newest(node)
    if idle and attempt is not None and attempt.stage is Stage.READY and not node.asked:
        # Nothing of its gang has started, so none of this holds; later `decide` says what does not.
        conditions = (f"{name} to be {condition.value}" for name, condition in task.depends_on)
        return ", ".join(conditions), attempt.ready_at if task.depends_on else 0.0
    return "", 0.0


def _root(group: Group) -> tuple[str, int, str]:
    """The first node that failed, the number of its failed attempt, and how it failed."""
    if group.root is None:
        return "", 0, ""
    mine = [one for one in group.attempts if one.node == group.root]
    failed = [one for one in mine if one.outcome in (Outcome.FAILED, Outcome.LOST)]
    if not failed:
        node = next((one for one in group.nodes if one.id == group.root), None)
        cause = node.cause if node is not None else ""
        return str(group.root), 0, f"{group.root} failed" + (f": {cause}" if cause else "")
    worst = failed[-1]
    outcome = worst.outcome.value if worst.outcome else ""
    text = f"{worst.node} {ending(outcome, worst.exit_code, worst.signal)}"
    told = worst.text or ("" if worst.cause in ("", "exit", "signal") else worst.cause)
    return str(group.root), worst.number, f"{text}: {told}" if told else text


def _price(leases: tuple[Lease, ...], now: float) -> float:
    held = (lease for lease in leases if lease.held_at)
    return sum(
        lease.placement.price_per_hour_usd
        * max(0.0, (lease.released_at or now) - lease.held_at)
        / 3600
        for lease in held
    )


def _infras(group: Group) -> set[str]:
    """Where it runs or ran; leases that are gone are in the record no more, attempts are."""
    held = {lease.placement.infra for lease in group.leases}
    return held | {attempt.infra for attempt in group.attempts if attempt.infra}


def _restarts(group: Group) -> int:
    return sum(max(0, node.number - 1) for node in group.nodes)


def _spent(group: Group, unit: str, spent: int) -> SpentView:
    if unit == "*":
        return SpentView(unit, spent, group.spec.restarts)
    for task in group.spec.tasks:
        of_nodes = (word for node in task.nodes() for word in (node.path, str(node)))
        if unit in (task.name, f"*{task.name}", *of_nodes):  # `trainer-1` in older records
            return SpentView(unit, spent, task.restart.max)
    return SpentView(unit, spent)


def _in_short(known: _Known, task: TaskSpec) -> str:
    """How much of a task is up; of an ended group: what became of it."""
    phases = tuple(known.phase(node) for node in known.nodes(task))
    if known.group.phase.final:
        phase = task_phase(task, phases)
        return f"{task.name} {'done' if phase is Phase.SUCCEEDED else phase.value.lower()}"
    return f"{task.name} {sum(phase in UP for phase in phases)}/{task.num_nodes}"

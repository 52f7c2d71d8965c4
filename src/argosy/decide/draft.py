"""The copy of a record that the steps of one decision edit; it never leaves this folder.

Private mutability keeps the steps short: the parts of the record stand in mappings, an edit
replaces one frozen part, and `decision` puts them together again. Nothing edited gives back the
same object.
"""

from __future__ import annotations

from typing import Any

from argosy.model.action import Action, Decision, Event, Limits, Reason, make_event, make_reason
from argosy.model.edit import edited
from argosy.model.group import (
    ENDED,
    FINAL,
    GONE,
    Attempt,
    Group,
    Lease,
    Node,
    Outcome,
    Phase,
    Placing,
    change_attempt,
    change_lease,
    change_node,
    make_node,
)
from argosy.model.ids import ZERO, AttemptId, LeaseId, NodeId, Serial, node_name, serial_of
from argosy.model.observed import Look, Observed, Report, SeenLease
from argosy.model.spec import EndsWith, Execution, GroupSpec, TaskSpec

NEVER = float("inf")
NO_NODES: dict[Outcome | None, int] = dict.fromkeys((None, *Outcome), 0)  # settled so, or not
OVER = FINAL | {Phase.ENDING}  # phases in which nothing is begun any more


def ending(attempt: Attempt) -> str:
    """How an attempt ended, in words: `failed: exit 3`."""
    outcome = str(attempt.outcome or "has not ended")
    words = attempt.text or attempt.cause
    if not attempt.text and attempt.signal is not None:
        words = f"signal {attempt.signal}"
    elif not attempt.text and attempt.exit_code is not None:
        words = f"exit {attempt.exit_code}"
    return f"{outcome}: {words}" if words else outcome


def _name(about: NodeId | str) -> str:
    return about if isinstance(about, str) else node_name(about)


class Draft:
    """A group while it is being decided on."""

    def __init__(self, group: Group, observed: Observed, now: float, limits: Limits) -> None:
        self.group = group
        self.spec: GroupSpec = group.spec
        self.observed = observed
        self.now = now
        self.limits = limits
        self.nodes: dict[NodeId, Node] = {node.id: node for node in group.nodes}
        if not self.nodes:  # the first decision of all
            self.nodes = {one: make_node(one) for one in group.spec.nodes()}
        self._ids_by_task: dict[str, list[NodeId]] = {task.name: [] for task in group.spec.tasks}
        for one in self.nodes:
            self._ids_by_task[one.task].append(one)
        self._nodes_by_task: dict[str, list[Node]] = {}  # until one of the task is changed
        self._settled: dict[str, dict[Outcome | None, int]] = {}
        self.attempts: dict[AttemptId, Attempt] = {one.id: one for one in group.attempts}
        self.leases: dict[LeaseId, Lease] = {one.id: one for one in group.leases}
        self.tasks: dict[str, TaskSpec] = {task.name: task for task in group.spec.tasks}
        self.seen: dict[LeaseId, SeenLease] = {
            one.lease: one for look in observed.looks.values() for one in look.leases
        }
        self.changes: dict[str, Any] = {}
        self._serial = group.serial
        self._edited = not group.nodes
        self.moved: set[LeaseId] = set()  # leases whose agent may have to be told something new
        self._events: list[Event] = []
        self._reasons: list[Reason] = []
        self._wake_at = NEVER

    # What the record says, with the edits so far

    def get(self, field: str) -> Any:
        """A field of the group itself."""
        return self.changes[field] if field in self.changes else getattr(self.group, field)

    @property
    def phase(self) -> Phase:
        """The phase, with the edits so far."""
        phase: Phase = self.changes.get("phase", self.group.phase)
        return phase

    @property
    def placing(self) -> Placing:
        """How far the gang is on its way to capacity, with the edits so far."""
        placing: Placing = self.changes.get("placing", self.group.placing)
        return placing

    @property
    def final(self) -> bool:
        """The group is over."""
        return self.phase.final

    @property
    def ending(self) -> bool:
        """Nothing is restarted, replaced or acquired any more."""
        return self.phase in OVER

    @property
    def gang(self) -> tuple[TaskSpec, ...]:
        """The tasks that start together now: all, or the current one of a serial group."""
        if self.spec.execution is Execution.SERIAL:
            return (self.spec.tasks[self.get("gang")],)
        return self.spec.tasks

    @property
    def gang_begun(self) -> bool:
        """The gang was started once, in this incarnation or in an earlier one."""
        whole = self.spec.execution is not Execution.SERIAL
        return self.gang_started or (whole and bool(self.get("started_at")))

    @property
    def gang_started(self) -> bool:
        """The gang's first start was decided."""
        barrier = self.get("gang_barrier")
        return bool(barrier) and barrier in self.get("started")

    def newest(self, node: Node) -> Attempt | None:
        """The newest attempt of a node; None: it never had one."""
        return self.attempts[node.attempt] if node.attempt is not None else None

    def live_on(self, lease: LeaseId) -> list[Attempt]:
        """The attempts of a lease that have not ended: one, or the one that a leaving host's
        successor waits for.
        """
        newest = self.newest(self.nodes[self.leases[lease].node])
        if newest is not None and newest.lease == lease:
            return [newest] if newest.live else []
        return [one for one in self.attempts.values() if one.lease == lease and one.live]

    def live_by_lease(self) -> dict[LeaseId, list[Attempt]]:
        """The attempts that have not ended, by the lease that they live on."""
        found: dict[LeaseId, list[Attempt]] = {}
        for attempt in self.attempts.values():
            if attempt.stage < ENDED:
                found.setdefault(attempt.lease, []).append(attempt)
        return found

    def nodes_of(self, task: TaskSpec) -> list[Node]:
        """The nodes of a task in rank order."""
        found = self._nodes_by_task.get(task.name)
        if found is None:
            nodes = self.nodes
            found = [nodes[one] for one in self._ids_by_task[task.name]]
            self._nodes_by_task[task.name] = found
        return found

    def verdict(self, task: TaskSpec) -> Outcome | None:
        """How the task ended; None: it has not. Once it is not None nothing of it is restarted."""
        settled = self._settled_of(task.name)
        head = self._head_settled(task) if task.ends_with is EndsWith.HEAD else None
        if head is Outcome.SUCCEEDED:
            return head
        if settled[Outcome.FAILED]:
            return Outcome.FAILED
        if head is not None:
            return head
        if settled[None]:
            return None
        if settled[Outcome.LOST]:
            return Outcome.LOST
        return Outcome.STOPPED if settled[Outcome.STOPPED] else Outcome.SUCCEEDED

    def _head_settled(self, task: TaskSpec) -> Outcome | None:
        return self.nodes[self._ids_by_task[task.name][0]].settled

    def _settled_of(self, task: str) -> dict[Outcome | None, int]:
        """How many nodes of a task are settled, and how: kept, since every node's end asks it."""
        found = self._settled.get(task)
        if found is None:
            found = self._settled[task] = NO_NODES.copy()
            for one in self._ids_by_task[task]:
                found[self.nodes[one].settled] += 1
        return found

    # What was seen

    def look(self, lease: Lease) -> Look | None:
        """The newest look at the lease's infra that could see it; None: there is none."""
        look = self.observed.looks.get(lease.placement.infra)
        if look is None or look.blind_all or lease.id in look.blind:
            return None
        return look

    def report(self, lease: LeaseId) -> Report | None:
        """The newest word of the agent on that lease."""
        return self.observed.reports.get(lease)

    def heard(self, lease: LeaseId) -> bool:
        """Whether the lease's agent was heard lately enough to start something."""
        report = self.observed.reports.get(lease)
        return report is not None and self.now - report.heard_at <= self.limits.suspect_after

    def told(self, attempt: Attempt) -> str:
        """What its agent says that it waits for; "" when it says nothing."""
        report = self.observed.reports.get(attempt.lease)
        words = (one.text for one in report.attempts if one.id == attempt.id) if report else ()
        return next(iter(words), "")

    def due(self, deadline: float) -> bool:
        """Whether a deadline that waits for a sighting has passed; if not, wake when it does.

        After a gap of the controller every wait gets a fresh window of `suspect_after`.
        """
        at = max(deadline, self.observed.looking_since + self.limits.suspect_after)
        if self.now < at:
            self.wake(at)
        return self.now >= at

    # Edits

    def set(self, **changes: Any) -> None:
        """Change fields of the group itself."""
        self.changes.update(changes)

    def set_node(self, node: NodeId, **changes: Any) -> Node:
        """Change a node."""
        self._edited = True
        self._nodes_by_task.pop(node.task, None)
        was = self.nodes[node]
        becomes = change_node(was, changes)
        if becomes.settled is not was.settled:
            settled = self._settled_of(node.task)
            settled[was.settled] -= 1
            settled[becomes.settled] += 1
        self.nodes[node] = becomes
        return becomes

    def set_attempt(self, attempt: AttemptId, **changes: Any) -> Attempt:
        """Change an attempt."""
        self._edited = True
        self.attempts[attempt] = becomes = change_attempt(self.attempts[attempt], changes)
        self.moved.add(becomes.lease)
        return becomes

    def add_attempt(self, attempt: Attempt) -> None:
        """Take a new attempt into the record."""
        self._edited = True
        self.attempts[attempt.id] = attempt
        self.moved.add(attempt.lease)

    def set_lease(self, lease: LeaseId, **changes: Any) -> Lease:
        """Change a lease."""
        self._edited = True
        self.leases[lease] = becomes = change_lease(self.leases[lease], changes)
        self.moved.add(lease)
        return becomes

    def issue(self) -> Serial:
        """The next serial of this group."""
        life, count = self._serial
        if life < self.observed.life:  # the first of a new life
            if self._serial != ZERO:
                self.set(lives=(*self.get("lives"), self._serial))
            life, count = self.observed.life, 0
        self._serial = serial = Serial(life, count + 1)
        return serial

    def issued(self, lease: LeaseId) -> bool:
        """Whether this record issued the lease: one that it did not is from after a backup."""
        serial = serial_of(lease)
        last = (self._serial, *self.get("lives"))
        return any(serial.life == one.life and serial.count <= one.count for one in last)

    def issue_barrier(self) -> int:
        """The next barrier of this group."""
        barrier: int = self.get("barriers") + 1
        self.set(barriers=barrier)
        return barrier

    def settle(self, node: NodeId, outcome: Outcome, cause: str) -> None:
        """Decide the fate of a node: it is not wanted any more."""
        self.set_node(node, settled=outcome, cause=cause, replace=False)

    def stop(self, task: TaskSpec, cause: str) -> None:
        """Nothing of a task is wanted any more. What had ended by itself stays as it ended."""
        for node in self.nodes_of(task):
            if node.settled is not None:
                continue
            attempt = self.newest(node)
            if attempt is None or attempt.live or attempt.judged or attempt.outcome is None:
                self.settle(node.id, Outcome.STOPPED, cause)
            else:
                self.set_attempt(attempt.id, judged=True)
                self.settle(node.id, attempt.outcome, attempt.cause)

    # What is said

    def tell(self, code: str, about: NodeId | str, text: str, *, attempt: int = 0) -> None:
        """Record a past fact."""
        self._events.append(make_event(self.now, code, _name(about), text, attempt))

    def wait(
        self, code: str, about: NodeId | str, text: str, *, since: float = 0.0, hint: str = ""
    ) -> None:
        """Say why something is not done yet."""
        self._reasons.append(make_reason(code, _name(about), text, since, hint))

    def wake(self, at: float) -> None:
        """The answer could change by itself at that time."""
        self._wake_at = min(self._wake_at, at)

    def decision(self, actions: tuple[Action, ...]) -> Decision:
        """What was decided. Leases of which nothing is left leave the record."""
        group = self._frozen()
        events = tuple(self._events)
        return Decision(group, actions, events, tuple(self._reasons), self._wake_at)

    def _frozen(self) -> Group:
        changes = {
            field: value
            for field, value in (*self.changes.items(), ("serial", self._serial))
            if value != getattr(self.group, field)
        }
        if not self._edited and not changes:
            return self.group
        held = tuple(one for one in self.leases.values() if one.state is not GONE)
        return edited(
            self.group,
            nodes=tuple(self.nodes.values()),
            attempts=tuple(self.attempts.values()),
            leases=held,
            **changes,
        )

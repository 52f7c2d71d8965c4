"""The values that the views answer: plain fields, ready for JSON, without an import of the model.

Times are seconds since the epoch, ages and durations seconds, prices US dollars. A client reads the
same classes back from JSON; a field that an older server does not send keeps its default.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """What one attempt uses now."""

    cpu_percent: float  # of one core
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class ReasonView:
    """Why something is not done yet, since when, and what would mend it."""

    code: str = ""
    about: str = ""  # "trainer-1", "trainer", or "" for the group
    text: str = ""
    since: float = 0.0  # 0: not known
    age: float | None = None  # None: not known
    hint: str = ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node and its newest attempt."""

    node: str = ""  # "trainer-1"
    index: int = 0
    host_name: str = ""  # "trainer-1.my-group"
    stage: str = "WAITING"  # the name of a model.Stage
    phase: str = "PENDING"
    attempt: int = 0  # number of the newest attempt; 0: none yet
    restarts: int = 0
    host: str = ""
    infra: str = ""
    address: str = ""
    healthy: bool = False
    since: float = 0.0  # when the stage was reached; 0: not yet anything
    exit_code: int | None = None
    signal: int | None = None
    outcome: str = ""  # "": has not ended
    cause: str = ""
    text: str = ""
    cpu_percent: float | None = None  # None: nothing was measured
    rss_bytes: int | None = None
    waits_for: str = ""  # "": nothing
    waits_since: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task and its nodes, in rank order."""

    name: str = ""
    primary: bool = True
    phase: str = "PENDING"
    up: int = 0  # nodes that run, or ended with success
    balanced: tuple[str, ...] = ()  # "rollout.my-group:8000"
    nodes: tuple[NodeView, ...] = ()


@dataclass(frozen=True, slots=True)
class SpentView:
    """How much of a restart budget is spent."""

    unit: str = ""  # "trainer-1", "trainer", "*" for the group, "*trainer" for it by that task
    spent: int = 0
    most: int | None = None  # None: without limit


@dataclass(frozen=True, slots=True)
class Overview:
    """A group on one screen."""

    id: str = ""
    name: str = ""
    phase: str = "PENDING"
    cause: str = ""
    text: str = ""
    incarnation: int = 1
    version: int = 0
    submitted_at: float = 0.0
    started_at: float = 0.0  # 0: not yet
    ended_at: float = 0.0  # 0: not yet
    now: float = 0.0  # when this was looked at
    age: float = 0.0  # since it was submitted; of an ended group: how long it took
    exit_code: int | None = None  # None while it lives
    price_usd: float = 0.0  # so far
    tasks: tuple[TaskView, ...] = ()
    reasons: tuple[ReasonView, ...] = ()
    root: str = ""  # the first node that failed
    root_attempt: int = 0
    root_text: str = ""  # "trainer-1 exited with 1"
    restarts: int = 0  # of all nodes together
    restarts_spent: tuple[SpentView, ...] = ()
    unreachable: tuple[str, ...] = ()  # hosts that may still hold something

    @property
    def final(self) -> bool:
        """Nothing changes any more."""
        return self.exit_code is not None

    def nodes(self) -> tuple[NodeView, ...]:
        """Every node, task by task."""
        return tuple(node for task in self.tasks for node in task.nodes)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group on one line."""

    id: str = ""
    name: str = ""
    phase: str = "PENDING"
    cause: str = ""
    tasks: str = ""  # "trainer 2/2, rollout 1/2"
    age: float = 0.0
    submitted_at: float = 0.0
    restarts: int = 0
    infra: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a timeline; equal neighbours are one line with a count."""

    at: float = 0.0
    offset: float = 0.0  # seconds since the first line
    about: str = ""  # "trainer-1", with "@2" from the second attempt on; "" for the group
    code: str = ""
    text: str = ""
    tone: str = "plain"  # "good", "bad", "warn" or "plain"
    count: int = 1


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a group waits, or what was decided last and why, and what would mend it."""

    phase: str = ""
    summary: str = ""
    reasons: tuple[ReasonView, ...] = ()
    last: tuple[Line, ...] = ()
    hints: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what is not as it should be and waits for nothing


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """Where one node would run."""

    node: str = ""
    host_name: str = ""
    infra: str = ""
    host: str = ""  # "": the infra picks one
    need: str = ""
    accelerator: str = ""
    price_per_hour_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """How one task would be started, kept alive and ended."""

    name: str = ""
    num_nodes: int = 1
    primary: bool = True
    order: int = 1  # tasks of one number start together
    waits_for: tuple[str, ...] = ()  # "rollout to be healthy"
    ready: str = ""
    restart: str = ""
    ending: str = ""
    balanced: tuple[str, ...] = ()
    nodes: tuple[PlannedNode, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanView:
    """What would be done, before anything is."""

    name: str = ""
    fits: bool = True
    never: bool = False  # it would not fit an empty infra either
    execution: str = "parallel"
    network: str = ""
    tasks: tuple[PlannedTask, ...] = ()
    chosen: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    price_per_hour_usd: float = 0.0
    start_timeout: float = 0.0
    max_duration: float | None = None
    on_failure: str = "wait"

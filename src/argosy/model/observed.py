"""What was seen: looks at infras, reports of agents, answers of the planner, the queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from argosy.model.group import Outcome, Stage
from argosy.model.ids import ZERO, AttemptId, GroupId, InfraName, LeaseId, NodeId, Serial
from argosy.model.plan import NoPlan, Plan


class SeenState(StrEnum):
    """What an infra says of a lease."""

    PENDING = "pending"  # asked for; not there yet (`text`: the infra's own words)
    UP = "up"  # there; its agent may be attached
    GONE = "gone"  # was there and is no more: evidence of loss


@dataclass(frozen=True, slots=True)
class SeenLease:
    """Something that bears our mark."""

    lease: LeaseId
    state: SeenState
    host: str = ""
    text: str = ""
    unschedulable: bool = False  # pending, and the infra says that it does not fit now
    placed: bool = False  # pending, and its capacity is set aside for it
    leaving: str = ""  # up, and why the infra is about to take it back; "": it stays


@dataclass(frozen=True, slots=True)
class Look:
    """Everything with our mark on one infra, in one look."""

    infra: InfraName
    began_at: float
    leases: tuple[SeenLease, ...] = ()
    blind: frozenset[LeaseId] = frozenset()  # could not be seen this time
    blind_all: bool = False  # nothing could be seen: absence is no evidence


@dataclass(frozen=True, slots=True)
class Refusal:
    """An infra said no to an `Acquire`."""

    lease: LeaseId
    code: str
    text: str
    hint: str
    at: float
    retry_at: float  # infinity: never by itself


@dataclass(frozen=True, slots=True)
class SeenAttempt:
    """What an agent says of one attempt."""

    id: AttemptId
    node: NodeId
    number: int
    incarnation: int
    stage: Stage
    outcome: Outcome | None = None
    exit_code: int | None = None
    signal: int | None = None
    cause: str = ""
    text: str = ""
    address: str = ""
    healthy: bool = False
    at: float = 0.0  # when the newest stage was reached, by the agent's clock


@dataclass(frozen=True, slots=True)
class Report:
    """The newest word of an agent on one lease."""

    lease: LeaseId
    heard_at: float  # by the server's clock
    boot_id: str = ""
    serial: Serial = ZERO  # the newest assignment that it has taken
    attempts: tuple[SeenAttempt, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """A gang that waits for capacity, as the queue shows it."""

    group: GroupId
    name: str
    priority: int
    submitted_at: float
    passed_since: float = 0.0
    retry_at: float = 0.0  # it does not try before this
    infras: tuple[InfraName, ...] = ()


@dataclass(frozen=True, slots=True)
class Queue:
    """Who waits, who has the turn, and when something was freed last."""

    waiting: tuple[Waiting, ...] = ()  # every gang of this server that waits, this one included
    turns: Mapping[InfraName, GroupId] = field(default_factory=dict)
    freed_at: Mapping[InfraName, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that one decision looks at."""

    life: int  # of this server
    looking_since: float  # the last gap of the controller ended here
    looks: Mapping[InfraName, Look] = field(default_factory=dict)
    reports: Mapping[LeaseId, Report] = field(default_factory=dict)
    refusals: Mapping[LeaseId, Refusal] = field(default_factory=dict)
    answer: Plan | NoPlan | None = None  # the planner's newest
    queue: Queue = Queue()

"""The record of a group: what was decided and what came of it. Only `decide` makes new ones.

Wanted (`goal`) and seen (`stage`) stages share one ordinal scale and only grow, so a repeated or
late report can do no harm. An attempt is executed once; a node outlives its attempts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from argosy.model.edit import changer, maker
from argosy.model.ids import ZERO, AttemptId, GroupId, InfraName, LeaseId, NodeId, Serial, TaskName
from argosy.model.plan import Placement
from argosy.model.spec import GroupSpec


class Stage(IntEnum):
    """How far an attempt has come. The gaps leave room."""

    WAITING = 0
    PREPARING = 10
    READY = 20
    RUNNING = 30
    STOPPING = 40
    ENDED = 50


# A decision asks for stages at every node; to find a name takes a tenth of the time that a member
# of an enum takes, which has to be looked for through its metaclass. So it is with leases below.
WAITING, PREPARING, READY, RUNNING, STOPPING, ENDED = Stage


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"  # our signal came before its exit
    LOST = "lost"  # nobody can say


class Phase(StrEnum):
    """Where a group or a task stands, for people."""

    PENDING = "PENDING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    RECOVERING = "RECOVERING"
    ENDING = "ENDING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    STOPPED = "STOPPED"  # tasks only: ended as planned

    @property
    def final(self) -> bool:
        """Nothing changes any more."""
        return self in FINAL


FINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED, Phase.STOPPED})


class LeaseState(IntEnum):
    """How far a lease has come; it only grows."""

    ASKED = 0
    HELD = 10  # was seen
    RELEASING = 20  # not needed any more: `Release` is repeated until nothing of it is seen
    GONE = 30


ASKED, HELD, RELEASING, GONE = LeaseState


@dataclass(frozen=True, slots=True)
class Order:
    """What an agent is told of one attempt: bring it to this goal."""

    attempt: AttemptId
    node: NodeId
    number: int
    incarnation: int
    goal: Stage
    restart_reason: str = ""
    grace: float | None = None  # None: the task's


@dataclass(frozen=True, slots=True)
class Lease:
    """Capacity asked of an infra for one node."""

    id: LeaseId
    node: NodeId
    placement: Placement
    state: LeaseState
    asked_at: float
    held_at: float = 0.0  # first seen; 0: not yet
    host: str = ""  # where it is, once seen
    released_at: float = 0.0  # when it became unneeded
    serial: Serial = ZERO  # of the newest assignment
    orders: tuple[Order, ...] = ()  # the newest assignment
    book: int = 0  # the version of the address book in the newest assignment
    lost: bool = False  # its host is gone, on evidence
    leaving: bool = False  # the infra takes it back soon: its node is prepared elsewhere meanwhile


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution on one node."""

    id: AttemptId
    node: NodeId
    number: int  # 1, 2, ... on its node
    incarnation: int
    lease: LeaseId
    barrier: int  # its node's, when it was made
    created_at: float
    infra: InfraName = ""
    host: str = ""  # where it runs; its logs are there
    goal: Stage = Stage.READY
    stage: Stage = Stage.WAITING
    outcome: Outcome | None = None  # None: has not ended
    exit_code: int | None = None  # None: not known, or ended by a signal
    signal: int | None = None
    cause: str = ""  # code: "setup-failed", "host-lost", "wrapper-vanished", "unreachable", ...
    text: str = ""  # the cause in words
    address: str = ""  # from its READY report
    healthy: bool = False
    ready_at: float = 0.0
    started_at: float = 0.0
    ended_at: float = 0.0
    stop_at: float = 0.0  # when its goal became ENDED
    seen: bool = False  # an agent has reported it
    judged: bool = False  # its end was dealt with
    restart_reason: str = ""

    @property
    def live(self) -> bool:
        """It has not ended."""
        return self.stage < ENDED


@dataclass(frozen=True, slots=True)
class Node:
    """A named place, and what became of it."""

    id: NodeId
    number: int = 0  # of its newest attempt
    attempt: AttemptId | None = None  # the newest attempt; None: none yet
    lease: LeaseId | None = None  # the lease it lives on; None: needs one
    barrier: int = 0  # nothing of a barrier starts before all of it is READY; 0: none yet
    replace: bool = False  # its newest attempt is to end, and another to follow
    not_before: float = 0.0  # back-off: no new attempt before this
    settled: Outcome | None = None  # final; None: it is wanted
    cause: str = ""  # of the settling
    restart_reason: str = ""  # for the next attempt
    vanished: tuple[float, ...] = ()  # when wrappers vanished here lately
    asked: bool = False  # `depends_on` held once: it is not asked again


@dataclass(frozen=True, slots=True)
class Peer:
    """One line of the address book."""

    node: NodeId
    attempt: int
    address: str
    live: bool
    healthy: bool


@dataclass(frozen=True, slots=True)
class Book:
    """The address book of a group; the version grows with every change."""

    version: int = 0
    peers: tuple[Peer, ...] = ()


class Verb(StrEnum):
    """What a user can ask of a running group."""

    CANCEL = "cancel"
    CANCEL_NOW = "cancel-now"  # grace is 0
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Intent:
    """A wish of the user, written into the record and dealt with once."""

    verb: Verb
    at: float
    task: TaskName = ""  # "": the whole group
    index: int | None = None  # None: the whole task
    by: str = ""


@dataclass(frozen=True, slots=True)
class Placing:
    """How far the current gang is on its way to capacity."""

    request: Serial = ZERO  # the Replan that is open; ZERO: none
    requested_at: float = 0.0
    tries: int = 0  # how often it gave up or found no plan
    retry_at: float = 0.0
    failed_at: float = 0.0  # when the last try failed
    report: tuple[str, ...] = ()  # why the last try failed
    hint: str = ""  # what would mend that, as the infra says it
    refused: tuple[tuple[InfraName, str], ...] = ()  # (infra, host) that refused in the last try
    acquired_at: float = 0.0  # when the plan was acquired; 0: not yet
    hold_since: float = 0.0  # since when a refusal stands beside what is held; 0: none does
    turns: tuple[InfraName, ...] = ()  # the turns that it holds
    passed_since: float = 0.0  # since when others have passed it; 0: none did
    infras: tuple[InfraName, ...] = ()  # where it would go


@dataclass(frozen=True, slots=True)
class Group:
    """Everything that is known and decided of one group."""

    id: GroupId
    spec: GroupSpec
    submitted_at: float
    version: int = 0  # of the record; the store compares and sets it
    serial: Serial = ZERO  # the newest serial it issued
    lives: tuple[Serial, ...] = ()  # the last serial that it issued in each earlier life
    incarnation: int = 1
    phase: Phase = Phase.PENDING
    cause: str = ""  # why it failed or was ended: "deadline", "cancelled", "primary-failed", ...
    text: str = ""
    gang: int = 0  # of a serial group: which task is current
    placing: Placing = Placing()
    gang_barrier: int = 0  # the barrier of the current gang's first start; 0: none yet
    started: tuple[int, ...] = ()  # barriers whose start was decided
    barriers: int = 0  # the newest barrier issued
    nodes: tuple[Node, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    leases: tuple[Lease, ...] = ()
    infras: tuple[InfraName, ...] = ()  # where anything was ever asked for
    book: Book = Book()
    intents: tuple[Intent, ...] = ()
    # unit -> spent: "trainer/1", "trainer", "*" (the group), "*trainer" (the group, by that task)
    restarts: tuple[tuple[str, int], ...] = ()
    started_at: float = 0.0  # first start
    ending_at: float = 0.0  # since when it is ENDING
    ended_at: float = 0.0
    grace_zero: bool = False  # cancel --now
    verdict: Phase | None = None  # what it will be when ENDING is over
    unreachable: tuple[str, ...] = ()  # hosts that may still hold something
    clean: bool = False  # after the end: looks that were not blind showed nothing with its mark
    root: NodeId | None = field(default=None)  # the first node that failed, if any


# How a decision, which handles thousands of them, makes and changes parts of a record.
make_attempt, change_attempt = maker(Attempt), changer(Attempt)
make_lease, change_lease = maker(Lease), changer(Lease)
make_node, change_node = maker(Node), changer(Node)
make_order, make_peer = maker(Order), maker(Peer)

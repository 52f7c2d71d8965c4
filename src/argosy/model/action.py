"""What to do, what happened, and why something waits: the three things that a decision says."""

from __future__ import annotations

from dataclasses import dataclass

from argosy.model.group import Book, Group, Order
from argosy.model.ids import GroupId, InfraName, LeaseId, NodeId, Serial
from argosy.model.plan import Placement


@dataclass(frozen=True, slots=True)
class Acquire:
    """Ensure that this lease was asked for."""

    lease: LeaseId
    placement: Placement


@dataclass(frozen=True, slots=True)
class Release:
    """Ensure that nothing of this lease is left."""

    infra: InfraName
    lease: LeaseId


@dataclass(frozen=True, slots=True)
class Assign:
    """Ensure that the agent on this lease has this assignment, or a newer one."""

    infra: InfraName
    lease: LeaseId
    host: str
    serial: Serial
    orders: tuple[Order, ...]
    book: Book


@dataclass(frozen=True, slots=True)
class Replan:
    """Ask the planner where these nodes could go; the answer is news."""

    request: Serial
    nodes: tuple[NodeId, ...]
    kept: tuple[Placement, ...]  # leases that stay: the plan repeats them unchanged
    refused: tuple[tuple[InfraName, str], ...] = ()


Action = Acquire | Release | Assign | Replan


@dataclass(frozen=True, slots=True)
class Event:
    """A past fact, for people: `attempt-running`, `lease-released`."""

    at: float
    code: str
    about: str  # "trainer-1", "trainer", or "" for the group
    text: str
    attempt: int = 0  # 0: not about an attempt


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is not done yet."""

    code: str
    about: str
    text: str
    since: float = 0.0
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What `decide` answers. `group` equals its input when nothing changed."""

    group: Group
    actions: tuple[Action, ...]
    events: tuple[Event, ...]
    reasons: tuple[Reason, ...]
    wake_at: float  # infinity: only news can change the answer


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """What an infra is asked for."""

    lease: LeaseId
    group: GroupId
    group_name: str
    node: NodeId
    placement: Placement
    grace: float = 30.0
    start_timeout: float = 900.0
    network: str = ""  # wanted: "isolated", "host" or ""


@dataclass(frozen=True, slots=True)
class Limits:
    """The numbers that decisions depend on; seconds."""

    suspect_after: float = 6.0  # an agent not heard of for so long is suspect
    release_margin: float = 10.0  # a lease is released grace + this after its attempt should end
    pass_limit: float = 1800.0  # so long may others pass a gang that would fit the empty infra
    ask_again: float = 2.0  # an effect that was not seen is asked for again
    replan_timeout: float = 20.0
    backoff_first: float = 1.0  # of placing
    backoff_most: float = 60.0
    vanished_max: int = 3  # wrappers that vanish on one node
    vanished_within: float = 600.0

"""What to do, what happened, and why something waits: the three things that a decision says."""

from __future__ import annotations

from dataclasses import dataclass

from argosy.model.edit import maker
from argosy.model.group import Book, Group, Order
from argosy.model.ids import GroupId, InfraName, LeaseId, NodeId, Serial, TaskName
from argosy.model.plan import Placement
from argosy.model.spec import GroupSpec
from argosy.model.volumes import VolumeUse


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
make_acquire, make_release, make_assign = maker(Acquire), maker(Release), maker(Assign)


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


make_event, make_reason = maker(Event), maker(Reason)


@dataclass(frozen=True, slots=True)
class Decision:
    """What `decide` answers. `group` equals its input when nothing changed."""

    group: Group
    actions: tuple[Action, ...]
    events: tuple[Event, ...]
    reasons: tuple[Reason, ...]
    wake_at: float  # infinity: only news can change the answer


@dataclass(frozen=True, slots=True)
class BalancedName:
    """A task with one address for all its nodes."""

    task: TaskName
    name: str  # its host name: `rollout.my-group`
    ports: tuple[int, ...]


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
    volumes: tuple[VolumeUse, ...] = ()
    balanced: tuple[BalancedName, ...] = ()  # the group's


def lease_request(
    group: GroupId, spec: GroupSpec, lease: LeaseId, placement: Placement
) -> LeaseRequest:
    """What is asked for a lease of that group."""
    task = spec.task(placement.node.task)
    return LeaseRequest(
        lease=lease,
        group=group,
        group_name=spec.name,
        node=placement.node,
        placement=placement,
        grace=task.grace,
        start_timeout=spec.start_timeout,
        network=spec.network,
        volumes=task.volume_uses(),
        balanced=tuple(
            BalancedName(one.name, spec.balanced_name(one.name), one.balance)
            for one in spec.tasks
            if one.balance
        ),
    )


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

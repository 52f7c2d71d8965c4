"""What the control plane holds in memory of one group that is not over and clean."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from argosy.control.links import AgentLink
from argosy.model.action import Event, Reason
from argosy.model.group import Group
from argosy.model.ids import LeaseId, NodeId, Serial
from argosy.model.observed import Refusal, Report, SeenAttempt
from argosy.model.plan import NoPlan, Plan


@dataclass(slots=True)
class Word:
    """The newest that an agent said of one lease."""

    link: AgentLink
    serial: Serial
    attempts: tuple[SeenAttempt, ...]

    def report(self, lease: LeaseId) -> Report:
        """The same as `decide` sees it: heard when the agent was heard last."""
        link = self.link
        return Report(lease, link.heard_at, link.boot_id, self.serial, self.attempts)


@dataclass(slots=True)
class Entry:
    """One group, and everything volatile that belongs to it."""

    group: Group
    reasons: tuple[Reason, ...] = ()
    words: dict[LeaseId, Word] = field(default_factory=dict)
    refusals: dict[LeaseId, Refusal] = field(default_factory=dict)
    answer: Plan | NoPlan | None = None
    events: list[Event] = field(default_factory=list)  # told by agents, saved with the next step
    dirty: bool = False  # something changed since the last decision
    broken: bool = False  # a check failed: it is left alone, its last good record is kept
    worker: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    node_by_name: dict[str, NodeId] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.node_by_name = {str(node): node for node in self.group.spec.nodes()}

    def tell_changed(self) -> None:
        """Wake everybody who waits for a change of this group."""
        before, self.changed = self.changed, asyncio.Event()
        before.set()

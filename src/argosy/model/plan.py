"""What could be had, and what was chosen: offers, plans and their reports."""

from __future__ import annotations

from dataclasses import dataclass

from argosy.model.ids import InfraName, NodeId, Serial
from argosy.model.needs import Accelerator, Capacity, Need


@dataclass(frozen=True, slots=True)
class Offer:
    """What an infra could give for a need; a look, not a promise."""

    infra: InfraName
    host: str | None  # a host of a fixed pool; None: the infra makes or picks one
    free: Capacity  # what is free now (of one host)
    total: Capacity  # what it has when nobody else is there
    count: int = 1  # so many such hosts
    price_per_hour_usd: float = 0.0
    ready_after: float = 0.0  # seconds until it could run something
    elastic_cpus: bool = False  # cores and memory are not counted there
    region: str = ""
    network: str = ""  # of its nodes: "isolated", "host", "" where that is not known yet
    own_machine: bool = False  # the user's: what lies outside of a node's folder is the user's own
    apart: bool = False  # no other host of the infra reaches into an isolated network on this one
    silent: str = ""  # why the host could not be asked; "": it could. `total` may be out of date


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one node goes, and what it takes there."""

    node: NodeId
    infra: InfraName
    host: str | None
    need: Need  # the alternative that was chosen
    accelerator: Accelerator | None
    price_per_hour_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class PlanReport:
    """Why the plan is as it is, in sentences for people."""

    chosen: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()  # what did not fit, and what would
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Node -> placement for every node that was asked for; complete and immutable."""

    request: Serial  # the Replan that it answers
    placements: tuple[Placement, ...]
    report: PlanReport = PlanReport()

    def infras(self) -> tuple[InfraName, ...]:
        """Each infra once, sorted."""
        return tuple(sorted({one.infra for one in self.placements}))


@dataclass(frozen=True, slots=True)
class NoPlan:
    """The planner's other answer: it does not fit now."""

    request: Serial
    report: PlanReport
    retry_at: float  # when a new try makes sense, were nothing to be freed before
    never: bool = False  # it would not fit an empty infra either
    infras: tuple[InfraName, ...] = ()  # where it would go, were there room

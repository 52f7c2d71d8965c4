"""Where the nodes of a gang go: all of them, or none with the reason.

Rules: what is kept is repeated unchanged; one infra holds the whole group unless the file says
`inter_connection: false`, or says nothing and no single infra could hold it even when empty; a host
that refused in the last try is used only when nothing else would do. Equal input, equal plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from argosy.model.action import Replan
from argosy.model.ids import InfraName
from argosy.model.plan import NoPlan, Offer, Placement, Plan, PlanReport
from argosy.model.spec import GroupSpec
from argosy.plan.candidates import choices, rooms
from argosy.plan.cautions import not_carried_out, warnings
from argosy.plan.report import chosen, shortages
from argosy.plan.score import STEPS_EMPTY, STEPS_FREE, Item, Packer, Packing, cheapest

RETRY_AFTER = 30.0  # seconds until a new try makes sense when nothing was freed before


def plan(request: Replan, spec: GroupSpec, offers: Sequence[Offer], now: float) -> Plan | NoPlan:
    """A placement for every node of `request.nodes`, or what is short of what.

    `offers`: of every infra that may be used, what others hold already subtracted from `free`.
    """
    gang = _gang(request, spec, tuple(offers))
    found = _free(gang)
    if found is not None:
        placements = (*request.kept, *_in_order(request, found))
        report = PlanReport(
            chosen=chosen(spec, placements), warnings=warnings(spec, placements, offers)
        )
        return Plan(request.request, placements, report)
    return _no_plan(gang, now)


@dataclass(frozen=True, slots=True)
class _Gang:
    """One planning task, taken apart once."""

    request: Replan
    spec: GroupSpec
    items: tuple[Item, ...]
    offers: tuple[Offer, ...]
    infras: tuple[InfraName, ...]  # all, in the order of the offers
    alone: tuple[InfraName, ...]  # those that may hold the whole group


def _gang(request: Replan, spec: GroupSpec, offers: tuple[Offer, ...]) -> _Gang:
    ways = {task.name: choices(task) for task in spec.tasks}
    items = tuple(Item(node, ways[node.task]) for node in request.nodes)
    infras = tuple(dict.fromkeys(offer.infra for offer in offers))
    kept = tuple(dict.fromkeys(placement.infra for placement in request.kept))
    alone = tuple(name for name in infras if name in kept) if kept else infras
    return _Gang(request, spec, items, offers, infras, alone if len(kept) <= 1 else ())


def _in_order(request: Replan, packing: Packing) -> list[Placement]:
    by_node = {placement.node: placement for placement in packing.placements}
    return [by_node[node] for node in request.nodes]


def _free(gang: _Gang) -> Packing | None:
    """The best packing of what is free now; hosts that refused lately only if need be."""
    refused = frozenset(gang.request.refused)
    willing = tuple(
        offer for offer in gang.offers if (offer.infra, offer.host or "") not in refused
    )
    found = _pack(gang, willing, empty=False)
    if found is None and len(willing) < len(gang.offers):
        found = _pack(gang, gang.offers, empty=False)
    return found


def _pack(gang: _Gang, offers: tuple[Offer, ...], *, empty: bool) -> Packing | None:
    """The best packing into the offers, on one infra if that is asked for."""
    spread = gang.spec.inter_connection is False
    if not spread:
        found = _on_one(gang, offers, empty=empty)
        if found is not None:
            return found
        if gang.spec.inter_connection is True or _one_is_enough(gang):
            return None
    return _packed(gang, offers, empty=empty)


def _one_is_enough(gang: _Gang) -> bool:
    """Some infra could hold all when empty: waiting for it beats a group without names."""
    return _on_one(gang, gang.offers, empty=True) is not None


def _on_one(gang: _Gang, offers: tuple[Offer, ...], *, empty: bool) -> Packing | None:
    found: dict[InfraName, Packing] = {}
    for infra in gang.alone:
        mine = tuple(offer for offer in offers if offer.infra == infra)
        packing = _packed(gang, mine, empty=empty)
        if packing is not None:
            found[infra] = packing
    return cheapest(found)


def _packed(gang: _Gang, offers: tuple[Offer, ...], *, empty: bool) -> Packing | None:
    if not gang.items:
        return Packing((), ((0, 0), 0.0, 0.0))
    space = rooms(offers, gang.request.kept, empty=empty)
    steps = STEPS_EMPTY if empty else STEPS_FREE
    return Packer(gang.items, space, steps).pack(gang.infras)


def _no_plan(gang: _Gang, now: float) -> NoPlan:
    """What is short, whether it could ever fit, and where it would go then."""
    would = _pack(gang, gang.offers, empty=True)
    never = would is None
    wanted = tuple(item.node for item in gang.items)
    refused = shortages(gang.spec, wanted, gang.request.kept, gang.offers, never=never)
    if (
        never
        and gang.spec.inter_connection is True
        and _packed(replace(gang, alone=()), gang.offers, empty=True)
    ):
        refused = (
            *refused,
            "`inter_connection: true` wants the group on one infra, and none is large enough: "
            "`inter_connection: false` lets tasks be spread, without names",
        )
    placements = would.placements if would is not None else ()
    return NoPlan(
        request=gang.request.request,
        report=PlanReport(refused=refused, warnings=not_carried_out(gang.spec)),
        retry_at=math.inf if never else now + RETRY_AFTER,
        never=never,
        infras=tuple(sorted({placement.infra for placement in placements})),
    )

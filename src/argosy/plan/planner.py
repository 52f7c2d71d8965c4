"""Where the nodes of a gang go: all of them, or none with the reason.

Rules: what is kept is repeated unchanged; one infra holds the whole group unless the file says
`inter_connection: false`, or says nothing and no single infra could hold it even when empty; a host
that refused in the last try is used only when nothing else would do; on an infra of several regions
one of them is preferred, where that costs nothing. Equal input, equal plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from argosy.model.action import Replan
from argosy.model.ids import InfraName
from argosy.model.plan import NoPlan, Offer, Placement, Plan, PlanReport
from argosy.model.spec import GroupSpec
from argosy.plan import volumes
from argosy.plan.candidates import choices, rooms
from argosy.plan.cautions import not_carried_out, on_several_hosts, warnings
from argosy.plan.report import chosen, shortages
from argosy.plan.score import STEPS_EMPTY, STEPS_FREE, Item, Packer, Packing, cheapest

SILENT_NAMED = 4  # hosts that do not answer and are named one by one
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
            chosen=(
                *chosen(spec, placements),
                *_networks(spec, placements, offers),
                *volumes.places(spec, placements),
            ),
            warnings=warnings(spec, placements, offers),
        )
        return Plan(request.request, placements, report)
    return _no_plan(gang, now)


def _networks(
    spec: GroupSpec, placements: Sequence[Placement], offers: Sequence[Offer]
) -> tuple[str, ...]:
    """Where the nodes use the network of the hosts, because one of their own would end there."""
    infras = sorted(on_several_hosts(spec, placements, offers))
    return tuple(
        f"network of the hosts, since the group is on several hosts of {infra}" for infra in infras
    )


@dataclass(frozen=True, slots=True)
class _Gang:
    """One planning task, taken apart once."""

    request: Replan
    spec: GroupSpec
    items: tuple[Item, ...]
    offers: tuple[Offer, ...]
    infras: tuple[InfraName, ...]  # all, in the order of the offers
    alone: tuple[InfraName, ...]  # those that may hold the whole group
    one_host: bool  # its nodes are to reach each other in isolated networks, which end at a host
    loose: volumes.Loose | None = None


def _gang(request: Replan, spec: GroupSpec, offers: tuple[Offer, ...]) -> _Gang:
    ways = {task.name: choices(task) for task in spec.tasks}
    uses = {task.name: task.volume_uses() for task in spec.tasks}
    items = tuple(Item(node, ways[node.task], uses[node.task]) for node in request.nodes)
    infras = tuple(dict.fromkeys(offer.infra for offer in offers))
    kept = tuple(dict.fromkeys(placement.infra for placement in request.kept))
    alone = tuple(name for name in infras if name in kept) if kept else infras
    isolated = spec.network == "isolated" and spec.inter_connection is not False
    one_host = isolated and any(offer.apart for offer in offers)
    together = volumes.loose(spec, request.nodes, request.kept, offers)
    alone = alone if len(kept) <= 1 else ()
    return _Gang(request, spec, items, offers, infras, alone, one_host, together)


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
        whole = gang.spec.inter_connection is True or gang.one_host
        if whole or _one_is_enough(gang):
            return None
    return _packed(gang, offers, empty=empty)


def _one_is_enough(gang: _Gang) -> bool:
    """Some infra could hold all when empty: waiting for it beats a group without names."""
    return _on_one(gang, gang.offers, empty=True) is not None


def _on_one(gang: _Gang, offers: tuple[Offer, ...], *, empty: bool) -> Packing | None:
    found: dict[InfraName, Packing] = {}
    for infra in gang.alone:
        mine = tuple(offer for offer in offers if offer.infra == infra)
        packings = (_packed(gang, part, empty=empty) for part in _parts(gang, mine))
        best = min(filter(None, packings), key=lambda one: one.cost, default=None)
        if best is not None:
            found[infra] = best if empty else _near(gang, mine, best)
    return cheapest(found)


def _near(gang: _Gang, offers: tuple[Offer, ...], best: Packing) -> Packing:
    """What is as good as `best` and in one region of the infra, beside what is kept there; `best`
    where nothing is.
    """
    region = {offer.host: offer.region for offer in offers}
    mine = {one.host for one in gang.request.kept} & region.keys()
    kept = {region[host] for host in mine}
    used = kept | {region[one.host] for one in best.placements}
    if len(used) < 2 or len(kept) > 1:
        return best
    parts = (
        tuple(offer for offer in offers if offer.region == name)
        for name in sorted(kept or set(region.values()) - {""})
    )
    packings = (_packed(gang, part, empty=False) for part in parts)
    as_good = (one for one in packings if one is not None and one.cost <= best.cost)
    return min(as_good, key=lambda one: one.cost, default=best)


def _parts(gang: _Gang, offers: tuple[Offer, ...]) -> list[tuple[Offer, ...]]:
    """The offers of one infra that may hold the gang together: all, or those of one host each."""
    if not gang.one_host or not any(offer.apart for offer in offers):
        return [offers]
    kept = {one.host for one in gang.request.kept if one.infra == offers[0].infra}
    return [(offer,) for offer in offers if kept <= {offer.host}]


def _packed(gang: _Gang, offers: tuple[Offer, ...], *, empty: bool) -> Packing | None:
    if not gang.items:
        return Packing((), ((0, 0), 0.0, 0.0))
    if gang.loose is not None and any(offer.apart for offer in offers):
        return _packed_at_one(gang, gang.loose, offers, empty=empty)
    space = rooms(offers, gang.request.kept, empty=empty)
    steps = STEPS_EMPTY if empty else STEPS_FREE
    return Packer(gang.items, space, steps).pack(gang.infras)


def _packed_at_one(
    gang: _Gang, loose: volumes.Loose, offers: tuple[Offer, ...], *, empty: bool
) -> Packing | None:
    """The best packing with the volumes that have no host yet on one host, whichever it is."""
    found: list[Packing] = []
    for host in loose.candidates(offers):
        items = tuple(replace(item, volumes=loose.at(item.volumes, host)) for item in gang.items)
        one = _packed(replace(gang, items=items, loose=None), offers, empty=empty)
        if one is not None:
            found.append(one)
    return min(found, key=lambda one: one.cost, default=None)


def _no_plan(gang: _Gang, now: float) -> NoPlan:
    """What is short, whether it could ever fit, and where it would go then.

    While a host does not answer nobody knows what it could take: then it is not never.
    """
    would = _pack(gang, gang.offers, empty=True)
    silent = _silent(gang.offers)
    never = would is None and not silent
    placements = would.placements if would is not None else ()
    return NoPlan(
        request=gang.request.request,
        report=PlanReport(
            refused=(*_short(gang, would, never=never), *silent),
            warnings=not_carried_out(gang.spec),
        ),
        retry_at=math.inf if never else now + RETRY_AFTER,
        never=never,
        infras=tuple(sorted({placement.infra for placement in placements})),
    )


def _short(gang: _Gang, would: Packing | None, *, never: bool) -> tuple[str, ...]:
    """What keeps the gang from being placed, in sentences."""
    wanted = tuple(item.node for item in gang.items)
    freely = replace(gang, one_host=False)
    if gang.one_host and _pack(freely, gang.offers, empty=would is None) is not None:
        when = "" if never else " now"
        return (
            f"`--network isolated` wants all {len(wanted)} nodes on one host, since such a network "
            f"ends there, and no host has room for all of them{when}: without it they use the "
            "network of the hosts",
        )
    bare = tuple(replace(item, volumes=()) for item in gang.items)
    unbound = replace(gang, items=bare, loose=None)
    if any(item.volumes for item in gang.items) and _pack(
        unbound, gang.offers, empty=would is None
    ):
        lines = volumes.refusals(gang.spec, wanted, gang.offers, gang.loose, never=never)
        if lines:
            return lines
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
    return refused


def _silent(offers: Sequence[Offer]) -> tuple[str, ...]:
    """The hosts that could not be asked, and why."""
    mute = [offer for offer in offers if offer.silent]
    lines = [
        f"not now, because {offer.host or offer.infra} of {offer.infra} does not answer: "
        f"{offer.silent}"
        for offer in mute[:SILENT_NAMED]
    ]
    if len(mute) > SILENT_NAMED:
        lines.append(f"nor do {len(mute) - SILENT_NAMED} more hosts answer")
    return tuple(lines)

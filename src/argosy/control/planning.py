"""From a `Replan` to the planner's answer: offers of every infra that may serve, then a plan."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from argosy.clock import Clock
from argosy.errors import ArgosyError
from argosy.infra.api import Infra
from argosy.model.action import Replan
from argosy.model.ids import InfraName, NodeId
from argosy.model.needs import Need
from argosy.model.plan import NoPlan, Offer, Plan
from argosy.model.spec import GroupSpec
from argosy.plan.candidates import named
from argosy.plan.planner import plan

DEFAULT_INFRA: Final = "local"
OFFERS_TIMEOUT: Final = 30.0
RETRY_AFTER: Final = 5.0


async def answer(
    request: Replan,
    spec: GroupSpec,
    infras: Mapping[InfraName, Infra],
    clock: Clock,
    counted: Callable[[Iterable[Offer]], list[Offer]] = list,
) -> Plan | NoPlan:
    """The plan for `request`, or why there is none. Errors of infras become refusals.

    `counted`: what of the offers counts.
    """
    asked = _asked(request.nodes, spec, infras)
    answers = await asyncio.gather(*(_offered(infras[name], need) for name, need in asked))
    by_place: dict[object, Offer] = {}  # a host is there once, however often it was asked for
    problems: list[str] = []
    for one in answers:
        if isinstance(one, str):
            problems += [one] if one not in problems else []
            continue
        for offer in counted(one):
            by_place.setdefault((offer.infra, offer.host) if offer.host else offer, offer)
    offers = list(by_place.values())
    unknown = unknown_infras(request.nodes, spec, infras)
    if unknown:
        problems += [f"no infra {one!r} is known here" for one in unknown]
    found = plan(request, spec, offers, clock.now())
    if isinstance(found, NoPlan) and problems:
        # Of infras that did not answer the planner knows nothing: what it would say is wrong.
        short = found.report.refused if offers else ()
        report = replace(found.report, refused=(*problems, *short))
        never = found.never and bool(unknown)
        return NoPlan(request.request, report, clock.now() + RETRY_AFTER, never, found.infras)
    return found


def unknown_infras(
    nodes: tuple[NodeId, ...], spec: GroupSpec, infras: Mapping[InfraName, Infra]
) -> list[str]:
    """The infras that the file names and that are not there."""
    wanted = {need.infra for node in nodes for need in spec.task(node.task).needs if need.infra}
    return sorted(one for one in wanted if not named(one, infras))


def _asked(
    nodes: tuple[NodeId, ...], spec: GroupSpec, infras: Mapping[InfraName, Infra]
) -> list[tuple[InfraName, Need]]:
    """Which infra is asked for which need: once for each that may be offered something else."""
    asked: dict[object, tuple[InfraName, Need]] = {}
    for task in dict.fromkeys(node.task for node in nodes):
        for need in spec.task(task).needs:
            for name in sorted(named(need.infra or DEFAULT_INFRA, infras)):
                differs = (name, need.infra, need.use_spot, need.accelerators)
                asked.setdefault(differs, (name, need))
    return list(asked.values())


async def _offered(infra: Infra, need: Need) -> Sequence[Offer] | str:
    """What an infra offers, or why nobody knows."""
    try:
        async with asyncio.timeout(OFFERS_TIMEOUT):
            return await infra.offers(need)
    except (ArgosyError, OSError) as error:
        return f"{infra.name}: {error}" if str(error) else f"{infra.name} does not answer"

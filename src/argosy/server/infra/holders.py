"""The hosts of every infra with what is free on them, and who holds the rest."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from argosy.control.control import Control
from argosy.errors import ArgosyError, NotFound
from argosy.infra.api import Checks, HostView, Infra
from argosy.model import codec
from argosy.model.ids import GroupId, InfraName, LeaseId, group_lease, group_of
from argosy.plan.candidates import named
from argosy.views.near import unknown_infra

ANSWER_SECONDS: Final = 30.0  # for one infra


@dataclass(frozen=True, slots=True)
class Held:
    """The hosts of one infra; `problem`: why they are not known."""

    infra: InfraName
    hosts: tuple[HostView, ...] = ()
    problem: str = ""
    hints: tuple[str, ...] = ()


def infra_of(control: Control, name: str) -> Infra:
    """The infra of that name. Raises NotFound with the near ones."""
    if name not in control.infras:
        text, hints = unknown_infra(name, control.infras)
        raise NotFound(text, code="infra/unknown", hint=hints)
    return control.infras[name]


def meant(control: Control, name: str) -> list[Infra]:
    """The infras that a name or a pattern means; "": all. Raises NotFound with the near ones."""
    names = sorted(named(name or None, control.infras))
    if not names and name:
        text, hints = unknown_infra(name, control.infras)
        raise NotFound(text, code="infra/unknown", hint=hints)
    return [control.infras[one] for one in names]


async def held(one: Infra) -> Held:
    """What the infra says of its hosts; one that fails or hangs says why."""
    if not isinstance(one, Checks):
        return Held(one.name)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return Held(one.name, tuple(await one.hosts()))
    except TimeoutError:
        return Held(one.name, problem=f"no answer within {ANSWER_SECONDS:g} s")
    except (ArgosyError, OSError) as error:
        hints = error.hints if isinstance(error, ArgosyError) else ()
        return Held(one.name, problem=str(error), hints=hints)


async def listed(control: Control) -> list[dict[str, Any]]:
    """Every infra with its hosts, as the API says it."""
    every = await asyncio.gather(*(held(one) for one in control.infras.values()))
    return [
        {
            "name": one.infra,
            "problem": one.problem,
            "hints": list(one.hints),
            "hosts": told(control, one),
            "lost": lost_on(control, one.infra),
        }
        for one in every
    ]


def told(control: Control, one: Held) -> list[dict[str, Any]]:
    """Hosts as the API says them: with groups for leases, and `lost` for those said to be gone."""
    lost = {word["host"] for word in lost_on(control, one.infra)}
    return [
        {
            **codec.encode(host),
            "state": "lost" if host.host in lost else host.state,
            "holders": holders(control, host.holders),
        }
        for host in one.hosts
    ]


def lost_on(control: Control, infra: InfraName) -> list[dict[str, Any]]:
    """The hosts that the user said are gone."""
    words = [one for one in control.lost_hosts if one.infra == infra and not one.forgotten]
    return [{"host": one.host, "at": one.at, "by": one.by} for one in words]


def holders(control: Control, leases: Sequence[str]) -> list[dict[str, Any]]:
    """Who holds leases: groups, with how many nodes. One of which nothing is known has the name "";
    `own` says whether it is of this home.
    """
    nodes = [LeaseId(lease) for lease in leases]
    counts = Counter(group_of(one) for one in nodes if one != group_lease(group_of(one)))
    return [
        {
            "group": group,
            "name": _name(control, group),
            "own": is_own(control, group),
            "nodes": count,
        }
        for group, count in counts.items()
    ]


def is_own(control: Control, group: GroupId) -> bool:
    """Whether the id was issued by this home, if perhaps by a store that is no more."""
    return group.startswith(f"g{control.store.server_id}-")


def _name(control: Control, group: GroupId) -> str:
    try:
        return control.find(group).spec.name
    except NotFound:
        return ""

"""What bears our mark on an infra and belongs to no group of this store: shown, ended if asked.

A restored backup knows nothing of what was made after it: so nothing of it is released by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from argosy.control.control import Control
from argosy.errors import ArgosyError, InfraError
from argosy.infra.api import Infra
from argosy.model.ids import LeaseId, group_lease, group_of
from argosy.model.observed import Look, SeenLease
from argosy.server.infra.holders import is_own

LOOK_SECONDS: Final = 60.0
END_SECONDS: Final = 60.0  # until what was released is gone, the grace of programs included
STEP: Final = 0.2
AGAIN_AFTER: Final = 2.0  # seconds until a release is repeated


@dataclass(frozen=True, slots=True)
class Found:
    """The strangers of one infra, and what could not be seen."""

    leases: tuple[SeenLease, ...]
    blind: bool


async def found(control: Control, infra: Infra) -> Found:
    """A look of its own. Raises what the infra raises."""
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            look: Look = await infra.sightings()
    except TimeoutError as error:
        raise InfraError(f"{infra.name} does not answer", code="infra/no-answer") from error
    strangers = tuple(one for one in look.leases if not control.store.issued(one.lease))
    return Found(strangers, look.blind_all or bool(look.blind))


async def told(control: Control, infra: Infra) -> dict[str, Any]:
    """The strangers as the API says them."""
    there = await found(control, infra)
    return {
        "infra": infra.name,
        "blind": there.blind,
        "leases": [
            {
                "lease": one.lease,
                "group": group_of(one.lease),
                "host": one.host,
                "state": str(one.state),
                "text": one.text,
                "since": _since(one.lease),
                "own_home": is_own(control, group_of(one.lease)),
            }
            for one in there.leases
        ],
    }


async def end(control: Control, infra: Infra, wanted: Collection[LeaseId]) -> dict[str, Any]:
    """Release those that were shown and are strangers still; waits until they are gone."""
    deadline = control.clock.now() + END_SECONDS
    asked: set[LeaseId] = set()
    at: dict[LeaseId, float] = {}
    problems: dict[LeaseId, str] = {}
    while True:
        there = (await found(control, infra)).leases
        left = {one.lease for one in there if one.lease in wanted}
        now = control.clock.now()
        if not left or now > deadline:
            break
        for lease in _due(left, {one.lease for one in there}):
            if now - at.get(lease, 0.0) < AGAIN_AFTER:
                continue
            at[lease] = now
            asked.add(lease)
            problem = await _release(infra, lease)
            problems = {**{k: v for k, v in problems.items() if k != lease}, **problem}
        await control.clock.sleep(STEP)
    return {
        "infra": infra.name,
        "released": sorted(asked - left),
        "left": {lease: problems.get(lease, "it is still ending") for lease in sorted(left)},
    }


def _due(left: set[LeaseId], there: set[LeaseId]) -> list[LeaseId]:
    """What is group-wide goes after everything else of its group."""
    busy = {group_of(one) for one in there if one != group_lease(group_of(one))}
    return sorted(
        one for one in left if one != group_lease(group_of(one)) or group_of(one) not in busy
    )


async def _release(infra: Infra, lease: LeaseId) -> dict[LeaseId, str]:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await infra.release(lease)
    except (ArgosyError, OSError) as error:
        return {lease: str(error) or "no answer"}
    return {}


def _since(lease: LeaseId) -> float:
    """When the server that issued it had started, in seconds since the epoch; 0: not known."""
    _, _, serial = lease.partition(".")
    life = serial.partition("-")[0] if "-" in serial else group_of(lease).partition("-")[2]
    try:
        return float(int(life.partition("-")[0], 16))
    except ValueError:
        return 0.0

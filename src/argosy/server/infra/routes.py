"""The server itself, and the infras: what works here, what is free, what is gone."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

import argosy
from argosy.control.control import Control
from argosy.errors import ArgosyError
from argosy.infra.api import Checks, Health, Infra, Sleeps
from argosy.model import codec
from argosy.model.ids import LeaseId
from argosy.server.answers import FINE, answer
from argosy.server.context import Here
from argosy.server.infra import holders, offers, strangers

router = APIRouter(prefix="/v1", tags=["server"])

CHECK_TIMEOUT_S: Final = 30.0
LIMIT_MOST: Final = 100_000  # groups counted
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@router.get("/server")
async def server(here: Here) -> Response:
    """Which server this is, since when, and how large it is."""
    control = here.control
    return answer(
        {
            "pid": os.getpid(),
            "version": argosy.__version__,
            "home": str(here.home),
            "started_at": here.started_at,
            "life": control.life,
            "server_id": control.store.server_id,
            "groups": len(control.groups(ended=False, limit=LIMIT_MOST)),
            "rss_bytes": rss_bytes(),
            "infras": sorted(control.infras),
        }
    )


@router.post("/server/stop")
async def stop(here: Here) -> Response:
    """End the server; running groups go on."""
    here.stop()
    return answer(FINE)


@router.get("/infra")
async def infra(here: Here, name: str = "") -> Response:
    """What each infra can do here, and what to install to get more. `name`: those that it means;
    one that is left alone until somebody names it is asked then.
    """
    control = here.control
    meant = holders.meant(control, name)
    told = await asyncio.gather(*(_told(control, one, name=name) for one in meant))
    return answer({"infras": told})


class HostBody(BaseModel):
    """A host, and what is said of it."""

    host: str
    infra: str = ""  # needed where two infras have a host of that name
    force: bool = False  # though it answers
    by: str = ""


class CleanBody(BaseModel):
    """What is to be ended on an infra."""

    infra: str
    leases: tuple[str, ...]


@router.get("/infra/hosts")
async def hosts(here: Here) -> Response:
    """Every infra with its hosts: what they have, what is free, who holds the rest."""
    return answer({"infras": await holders.listed(here.control)})


@router.get("/infra/offers")
async def offered(
    here: Here,
    need: Annotated[list[str] | None, Query()] = None,
    cpus: str = "",
    memory: str = "",
    infra: str = "",
) -> Response:
    """What could be had now for a need, on each infra."""
    asked = offers.Asked(tuple(need or ()), cpus, memory, infra)
    return answer(await offers.survey(here.control, asked))


@router.get("/infra/strangers")
async def unknown(here: Here, infra: str) -> Response:
    """What bears our mark there and belongs to no group of this store."""
    return answer(await strangers.told(here.control, holders.infra_of(here.control, infra)))


@router.post("/infra/clean")
async def clean(body: CleanBody, here: Here) -> Response:
    """End some of what bears our mark and belongs to no group; the rest is let alone."""
    one = holders.infra_of(here.control, body.infra)
    wanted = {LeaseId(lease) for lease in body.leases}
    return answer(await strangers.end(here.control, one, wanted))


@router.post("/infra/lost")
async def lost(body: HostBody, here: Here) -> Response:
    """The user's word that a host is gone: what runs there is replaced elsewhere."""
    _known(here, body.infra)
    said = here.control.lost_hosts
    word, groups = await said.say(body.host, body.infra, by=body.by, force=body.force)
    return answer({"infra": word.infra, "host": word.host, "groups": groups})


@router.post("/infra/forget")
async def forget(body: HostBody, here: Here) -> Response:
    """Give up all that is on a host that will never come back."""
    _known(here, body.infra)
    infra, leases = await here.control.lost_hosts.forget(body.host, body.infra)
    return answer({"infra": infra, "host": body.host, "leases": leases})


def _known(here: Here, infra: str) -> None:
    if infra:
        holders.infra_of(here.control, infra)


async def _told(control: Control, one: Infra, *, name: str) -> dict[str, Any]:
    """The check of one infra; one that fails or hangs is told as not working."""
    if not isinstance(one, Checks):
        return {**codec.encode(Health(one.name, works=True)), "hosts": []}
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            if name and isinstance(one, Sleeps):
                health, hosts = await one.named_check(name)
            else:
                health, hosts = await one.check(), await one.hosts()
    except TimeoutError:
        health, hosts = _failed(one, f"no answer within {CHECK_TIMEOUT_S:g} s", ()), ()
    except (ArgosyError, OSError) as error:
        hints = error.hints if isinstance(error, ArgosyError) else ()
        health, hosts = _failed(one, str(error), hints), ()
    shown = holders.told(control, holders.Held(one.name, tuple(hosts)))
    return {**codec.encode(health), "hosts": shown}


def _failed(one: Infra, problem: str, hints: tuple[str, ...]) -> Health:
    return Health(one.name, works=False, problems=(problem,), hints=hints)


def rss_bytes() -> int:
    """The memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE_BYTES

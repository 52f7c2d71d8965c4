"""The server itself, and the infras: what works here."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

from fastapi import APIRouter, Response

import argosy
from argosy.errors import ArgosyError
from argosy.infra.api import Checks, Health, Infra
from argosy.model import codec
from argosy.server.answers import FINE, answer
from argosy.server.context import Here

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
        }
    )


@router.post("/server/stop")
async def stop(here: Here) -> Response:
    """End the server; running groups go on."""
    here.stop()
    return answer(FINE)


@router.get("/infra")
async def infra(here: Here) -> Response:
    """What each infra can do here, and what to install to get more."""
    told = await asyncio.gather(*(_told(one) for one in here.control.infras.values()))
    return answer({"infras": told})


async def _told(one: Infra) -> dict[str, Any]:
    """The check of one infra; one that fails or hangs is told as not working."""
    if not isinstance(one, Checks):
        return {**codec.encode(Health(one.name, works=True)), "hosts": []}
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            health, hosts = await one.check(), await one.hosts()
    except TimeoutError:
        health, hosts = _failed(one, f"no answer within {CHECK_TIMEOUT_S:g} s", ()), ()
    except ArgosyError as error:
        health, hosts = _failed(one, error.text, error.hints), ()
    return {**codec.encode(health), "hosts": [codec.encode(host) for host in hosts]}


def _failed(one: Infra, problem: str, hints: tuple[str, ...]) -> Health:
    return Health(one.name, works=False, problems=(problem,), hints=hints)


def rss_bytes() -> int:
    """The memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE_BYTES

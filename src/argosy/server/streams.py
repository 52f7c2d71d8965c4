"""Streams of lines: a group as it changes, its events, its logs."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from argosy.errors import NotFound
from argosy.model import codec
from argosy.model.action import Reason
from argosy.model.group import Group
from argosy.server.answers import Lines, Out, line
from argosy.server.context import Context, Here
from argosy.server.logs import LogQuery, send_logs
from argosy.views.overview import overview
from argosy.views.shapes import Usage

router = APIRouter(prefix="/v1/groups/{ref}", tags=["streams"])

WATCH_EVERY_S: Final = 0.1  # at most ten lines a second
AGAIN_S: Final = 2.0  # a watched group is said again after so long: its ages and usage move
QUEUED: Final = re.compile(r"\bgroup (\S+) is\b")  # "group g1-2 is being placed on local"
PAGE: Final = 500  # events read at a time
SEQ_MOST: Final = 2**63 - 1


@router.get("/watch")
async def watch(ref: str, here: Here) -> Response:
    """The group now, after every change and every few seconds, the last time when it is final."""
    group = here.control.find(ref)

    async def produce(out: Out) -> None:
        current, before = group, None
        loop = asyncio.get_running_loop()
        while True:
            sent_at = loop.time()
            view = codec.encode(view_of(here, current))
            if view != before:
                await out(line(view))
            before = view
            if current.phase.final:
                return
            changed = await _changed_or_old(here, current)
            rest = WATCH_EVERY_S - (loop.time() - sent_at)
            if rest > 0 and not changed.phase.final:
                await asyncio.sleep(rest)
            current = here.control.find(current.id)

    return Lines(produce, here.closing)


@router.get("/events")
async def events(
    ref: str,
    here: Here,
    since: Annotated[int, Query(ge=0, le=SEQ_MOST)] = 0,
    follow: bool = False,
) -> Response:
    """What happened after the event `since`; with `follow` until the group has ended."""
    group = here.control.find(ref)

    async def produce(out: Out) -> None:
        current, seen = group, since
        while True:
            seen = await _send_events(here, out, current, seen)
            if not follow or current.phase.final:
                return
            try:
                current = await here.control.changed(current.id, current.version)
            except NotFound:  # it was removed
                return

    return Lines(produce, here.closing)


@router.get("/logs")
async def logs(ref: str, here: Here, query: Annotated[LogQuery, Query()]) -> Response:
    """What the attempts wrote, merged over nodes by time of reading."""
    group = here.control.find(ref)
    query.check(group)

    async def produce(out: Out) -> None:
        await send_logs(here, group, query, out)

    return Lines(produce, here.closing)


async def _changed_or_old(here: Context, group: Group) -> Group:
    """The group once it has changed, or as it is once what was said of it is old."""
    try:
        async with asyncio.timeout(AGAIN_S):
            return await here.control.changed(group.id, group.version)
    except TimeoutError:
        return group


def view_of(here: Context, group: Group) -> object:
    """The overview of a group now."""
    usage = {
        attempt: Usage(one.cpu_percent, one.rss_bytes)
        for attempt, one in here.control.usage(group).items()
    }
    return overview(group, reasons_of(here, group), usage, here.now())


def reasons_of(here: Context, group: Group) -> tuple[Reason, ...]:
    """Why a group waits; decisions know other groups by their ids, people by their names."""

    def name(found: re.Match[str]) -> str:
        try:
            return f"group {here.control.find(found[1]).spec.name} is"
        except NotFound:  # it was removed
            return found[0]

    return tuple(
        replace(one, text=QUEUED.sub(name, one.text)) if one.code == "queue" else one
        for one in here.control.reasons(group.id)
    )


async def _send_events(here: Context, out: Out, group: Group, since: int) -> int:
    """Send what came after `since`; the number of the newest one sent."""
    while page := here.control.store.events(group.id, since=since, limit=PAGE):
        await out(b"".join(line({"seq": seq, **codec.encode(event)}) for seq, event in page))
        since = page[-1][0]
        if len(page) < PAGE:
            break
    return since

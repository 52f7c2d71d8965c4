"""Streams of lines over a real socket: a slow client slows its producer, a gone one ends it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI, Request, Response

from argosy.errors import Conflict
from argosy.server.answers import Lines, Out, Produce, answer, awaited, line
from argosy.server.home import Home
from argosy.server.web import Web

pytestmark = pytest.mark.anyio
DEADLINE_S = 20.0
BLOCK = b"x" * 65536


class Served:
    """A server with one stream at `/lines` and one long request at `/wait`."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder)
        self.closing = asyncio.Event()
        self.app = FastAPI()
        self.web = Web(self.app, self.closing)
        self.ended = asyncio.Event()  # whatever was served last has ended
        self.sent = 0

    def lines(self, produce: Produce) -> None:
        async def noted(out: Out) -> None:
            try:
                await produce(out)
            finally:
                self.ended.set()

        async def route() -> Response:
            return Lines(noted, self.closing)

        self.app.get("/lines")(route)

    async def endless(self, out: Out) -> None:
        while True:
            await out(BLOCK)
            self.sent += 1


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Served]:
    served = Served(folder)
    served.home.lock()
    running = asyncio.ensure_future(served.web.serve(sockets=[served.home.listen()]))
    try:
        yield served
    finally:
        served.web.stop()
        await running
        served.home.close()


@asynccontextmanager
async def asking(
    served: Served, path: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_unix_connection(str(served.home.address), limit=65536)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: argosy\r\nConnection: close\r\n\r\n".encode())
    try:
        yield reader, writer
    finally:
        writer.close()


async def until(done: asyncio.Event) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await done.wait()


async def test_lines_arrive_and_the_stream_ends(folder: Path) -> None:
    async def produce(out: Out) -> None:
        await out(line({"n": 1}))
        await out(line({"n": 2}))

    async with serving(folder) as served:
        served.lines(produce)
        async with asking(served, "/lines") as (reader, _):
            text = await reader.read()
    assert b"200 OK" in text
    assert b"application/x-ndjson" in text
    assert text.index(b'{"n":1}\n') < text.index(b'{"n":2}\n')
    assert text.endswith(b"0\r\n\r\n")


async def test_an_error_is_the_last_line(folder: Path) -> None:
    async def produce(out: Out) -> None:
        await out(line({"n": 1}))
        raise Conflict("no more", code="test/no")

    async with serving(folder) as served:
        served.lines(produce)
        async with asking(served, "/lines") as (reader, _):
            text = (await reader.read()).decode()
    told = [json.loads(one) for one in text.splitlines() if one.startswith("{")]
    assert told[0] == {"n": 1}
    assert (told[1]["error"], told[1]["code"]) == ("Conflict", "test/no")


async def test_a_client_that_reads_nothing_stops_its_producer_only(folder: Path) -> None:
    async with serving(folder) as served:
        served.lines(served.endless)
        async with asking(served, "/lines") as (reader, _):
            await reader.readline()
            seen = -1
            async with asyncio.timeout(DEADLINE_S):
                while seen != served.sent:  # until a whole turn of the loop sent nothing more
                    seen = served.sent
                    await asyncio.sleep(0.1)
            assert served.sent * len(BLOCK) < 4 * 2**20
            assert not served.ended.is_set()
            await reader.readexactly(40 * len(BLOCK))
            assert served.sent > seen


async def test_a_client_that_is_gone_ends_its_producer(folder: Path) -> None:
    silent = asyncio.Event()

    async def produce(out: Out) -> None:
        await silent.wait()

    async with serving(folder) as served:
        served.lines(produce)
        async with asking(served, "/lines") as (reader, _):
            await reader.readline()
        await until(served.ended)
        served.app.router.routes.pop()
        served.ended.clear()
        served.lines(served.endless)
        async with asking(served, "/lines") as (reader, _):
            await reader.readline()
        await until(served.ended)


async def test_a_stopping_server_ends_streams_and_says_so(folder: Path) -> None:
    async def produce(out: Out) -> None:
        await asyncio.Event().wait()

    async with serving(folder) as served:
        served.lines(produce)
        async with asking(served, "/lines") as (reader, _):
            await reader.readline()
            served.web.stop()
            text = (await reader.read()).decode()
    assert '"server/stopped"' in text
    assert text.endswith("0\r\n\r\n")


async def test_a_long_request_is_dropped_when_its_client_is_gone(folder: Path) -> None:
    began, dropped = asyncio.Event(), asyncio.Event()

    async def work() -> Response:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            dropped.set()
        return answer({})

    async with serving(folder) as served:

        async def route(request: Request) -> Response:
            return await awaited(request, served.closing, work)

        served.app.get("/wait")(route)
        async with asking(served, "/wait"):
            await until(began)
        await until(dropped)

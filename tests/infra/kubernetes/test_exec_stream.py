"""The stream over the websocket of `exec`, against a server that speaks it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from argosy.errors import Unreachable
from argosy.infra.kubernetes.cluster import exec_stream
from argosy.infra.kubernetes.cluster.exec_stream import FRAME_MAX, SAID_MAX, ExecStream

pytestmark = pytest.mark.anyio

PROTOCOL = "v4.channel.k8s.io"
OUT, ERR, STATUS = b"\x01", b"\x02", b"\x03"
SUCCESS = STATUS + json.dumps({"metadata": {}, "status": "Success"}).encode()
FAILURE = STATUS + json.dumps(
    {"status": "Failure", "message": "command terminated with exit code 90", "code": 500}
).encode()  # fmt: skip

Other = Callable[[web.WebSocketResponse], Awaitable[None]]  # what the other side does


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def a_stream(other: Other) -> AsyncIterator[ExecStream]:
    """A stream to somebody who does that, and then hangs up."""

    async def answer(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=[PROTOCOL])
        await socket.prepare(request)
        await other(socket)
        await socket.close()
        return socket

    app = web.Application()
    app.router.add_get("/exec", answer)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        async with (
            asyncio.timeout(30.0),
            aiohttp.ClientSession() as session,
            session.ws_connect(f"http://{host}:{port}/exec", protocols=[PROTOCOL]) as socket,
        ):
            yield ExecStream(socket)
    finally:
        await runner.cleanup()


def saying(*messages: bytes) -> Other:
    """Sends these."""

    async def say(socket: web.WebSocketResponse) -> None:
        for one in messages:
            await socket.send_bytes(one)

    return say


async def test_lines_come_whole_however_they_are_cut() -> None:
    parts = (OUT + b"one\ntw", OUT + b"o", OUT, OUT + b"\n\nfour\nfi", OUT + b"ve", SUCCESS)
    async with a_stream(saying(*parts)) as stream:
        lines = [await stream.readline() for _ in range(6)]
    assert lines == [b"one\n", b"two\n", b"\n", b"four\n", b"five", b""]


async def test_bytes_come_as_they_are_up_to_so_many() -> None:
    body = bytes(range(256)) * 40
    async with a_stream(saying(OUT + body[:100], OUT + body[100:], SUCCESS)) as stream:
        assert await stream.read(10) == body[:10]
        assert await stream.read(1000) == body[10:100]
        found = body[:100]
        while data := await stream.read(333):
            assert len(data) <= 333
            found += data
        assert found == body
        assert await stream.read() == b""


async def test_lines_and_bytes_take_turns() -> None:
    parts = (OUT + b'{"size": 7}\nabc', OUT + b"defg" + b'{"end": true}\n', SUCCESS)
    async with a_stream(saying(*parts)) as stream:
        assert await stream.readline() == b'{"size": 7}\n'
        assert await stream.read(7) + await stream.read(4) == b"abcdefg"
        assert await stream.readline() == b'{"end": true}\n'


async def test_what_goes_to_standard_error_is_kept_apart() -> None:
    parts = (ERR + b"no agent ", OUT + b"a\n", ERR + b"answers\n", FAILURE)
    async with a_stream(saying(*parts)) as stream:
        assert await stream.readline() == b"a\n"
        assert await stream.readline() == b""
        assert stream.said == "no agent answers"


async def test_of_standard_error_only_so_much_is_kept() -> None:
    parts = (*([ERR + b"x" * 10_000] * 5), OUT + b"a\n", SUCCESS)
    async with a_stream(saying(*parts)) as stream:
        assert await stream.readline() == b"a\n"
        assert stream.said == "x" * SAID_MAX


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (SUCCESS, ""),
        (FAILURE, "command terminated with exit code 90"),
        (STATUS + b"not json", "not json"),
        (STATUS + b"[1]", "[1]"),
        (STATUS + b'{"status": "Failure"}', "{'status': 'Failure'}"),
    ],
)
async def test_the_status_is_the_end_and_says_why(status: bytes, said: str) -> None:
    async with a_stream(saying(OUT + b"half", status, OUT + b"never")) as stream:
        assert await stream.readline() == b"half"
        assert await stream.readline() == b""
        assert stream.said == said


async def test_a_server_that_hangs_up_is_the_end() -> None:
    async with a_stream(saying(OUT + b"half a line")) as stream:
        assert await stream.readline() == b"half a line"
        assert await stream.read() == b""
        assert stream.said == ""


async def test_channels_that_nobody_knows_are_passed_over() -> None:
    async with a_stream(saying(b"\x09what", b"", OUT + b"a\n", SUCCESS)) as stream:
        assert await stream.readline() == b"a\n"


async def test_who_is_cancelled_loses_nothing() -> None:
    go = asyncio.Event()

    async def other(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(OUT + b"first half, ")
        await go.wait()
        await socket.send_bytes(OUT + b"second half\nnext\n")
        await socket.send_bytes(SUCCESS)

    async with a_stream(other) as stream:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await stream.readline()
        go.set()
        assert await stream.readline() == b"first half, second half\n"
        assert await stream.readline() == b"next\n"


async def test_a_long_line_comes_whole() -> None:
    piece, count = b"y" * 32_000, 200
    async with a_stream(saying(*[OUT + piece] * count, OUT + b"\n", SUCCESS)) as stream:
        assert await stream.readline() == piece * count + b"\n"


async def test_a_line_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_stream, "LINE_MAX", 100_000)
    async with a_stream(saying(*[OUT + b"y" * 60_000] * 3)) as stream:
        with pytest.raises(ValueError, match="longer than 100000"):
            await stream.readline()


async def test_what_is_written_arrives_in_frames_for_standard_input() -> None:
    body = bytes(range(256)) * 1000
    frames: list[bytes] = []

    async def other(socket: web.WebSocketResponse) -> None:
        while sum(len(one) - 1 for one in frames) < len(body):
            frames.append(await socket.receive_bytes())
        await socket.send_bytes(OUT + b"thanks\n")

    async with a_stream(other) as stream:
        await stream.write(body)
        assert await stream.readline() == b"thanks\n"
    assert b"".join(one[1:] for one in frames) == body
    assert {one[:1] for one in frames} == {b"\x00"}
    assert max(len(one) for one in frames) == FRAME_MAX + 1


async def test_writing_to_somebody_who_is_gone_says_so() -> None:
    async with a_stream(saying(SUCCESS)) as stream:
        assert await stream.read() == b""
        await stream.close()
        await stream.close()
        with pytest.raises(Unreachable) as caught:
            await stream.write(b"are you there")
        assert caught.value.code == "agent/hung-up"
        assert await stream.read() == b""

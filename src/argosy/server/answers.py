"""Answers of the API: JSON, errors, and streams of lines that end when their client is gone.

A stream is pushed: what produces it awaits each line until the socket has taken it, so a slow
client slows its own producer down and nothing piles up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from argosy.errors import (
    AccessError,
    ArgosyError,
    Broken,
    CapacityError,
    Conflict,
    InfraError,
    InputError,
    NotFound,
    Unreachable,
)
from argosy.model import codec

log = logging.getLogger(__name__)

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
STATUS: Final[dict[type[ArgosyError], int]] = {
    InputError: 400,
    AccessError: 403,
    NotFound: 404,
    Conflict: 409,
    CapacityError: 422,
    InfraError: 502,
    Unreachable: 503,
    Broken: 500,
}
FINE: Final = {"ok": True}

Out = Callable[[bytes], Awaitable[None]]
Produce = Callable[[Out], Awaitable[None]]


def line(data: Any) -> bytes:
    """JSON data as one line."""
    return codec.dumps(data).encode("utf-8", "surrogatepass") + b"\n"


def answer(data: Any, status: int = 200) -> Response:
    """JSON data as an answer."""
    return Response(line(data), status, media_type=JSON)


def status_of(error: ArgosyError) -> int:
    """The HTTP status of an error's class."""
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


def refusal(error: ArgosyError) -> Response:
    """An error as an answer."""
    return answer(error.fields(), status_of(error))


def unexpected(error: BaseException) -> ArgosyError:
    """Any error as one of ours; one that nobody expected is logged with its trace."""
    if isinstance(error, ArgosyError):
        return error
    log.error("request-failed", exc_info=error)
    return Broken(
        f"the server failed: {type(error).__name__}: {error}",
        code="server/failed",
        hint="`argosy server logs` has the trace",
    )


async def unless_gone(
    receive: Receive, closing: asyncio.Event, work: Callable[[], Awaitable[None]]
) -> None:
    """Run `work` until it ends, its client is gone, or the server closes.

    Raises what `work` raises, and ClientDisconnect when it was cut short.
    """
    tasks = [
        asyncio.ensure_future(one) for one in (work(), _disconnected(receive), _closed(closing))
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        await tasks[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _closed(closing: asyncio.Event) -> None:
    await closing.wait()


class Lines(Response):
    """An NDJSON answer. `produce` gets a function that sends one line and waits until it is taken.

    An error after the beginning is the last line, in the form of `ArgosyError.fields()`.
    """

    media_type = NDJSON

    def __init__(self, produce: Produce, closing: asyncio.Event) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._produce = produce
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI wants it."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)

        async def out(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})
            await asyncio.sleep(0)  # `send` may return at once: let the client's end be noticed

        async def work() -> None:
            await out(b"")  # the client sees at once that the stream is open
            try:
                await self._produce(out)
            except Exception as error:
                await out(line(unexpected(error).fields()))

        try:
            await unless_gone(receive, self._closing, work)
        except ClientDisconnect:
            if not self._closing.is_set():
                return
            await out(line(stopped().fields()))
        await send({"type": "http.response.body", "body": b""})


async def awaited(
    request: Request, closing: asyncio.Event, work: Callable[[], Awaitable[Response]]
) -> Response:
    """The answer of something that may take long, dropped when its client is gone."""
    found: list[Response] = []

    async def keep() -> None:
        found.append(await work())

    try:
        await unless_gone(request.receive, closing, keep)
    except ClientDisconnect:
        return refusal(stopped())
    return found[0]


def stopped() -> Unreachable:
    """What a client is told whose request was cut short."""
    return Unreachable(
        "the server was stopped; running groups go on",
        code="server/stopped",
        hint="the next command starts it again",
        retry=1.0,
    )

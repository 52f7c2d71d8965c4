"""Two-way streams into a node: a command, a connection, files; bridged to its agent.

What is refused before it begins is an HTTP answer with the error; later errors are the agent's own
lines. Each direction waits until the other side has taken what was sent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final, Literal

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from argosy.errors import InputError, Unreachable
from argosy.infra.api import Stream
from argosy.model.group import Attempt
from argosy.server.agents import answered, opened
from argosy.server.answers import refusal, unexpected
from argosy.server.context import Context, Here, live_attempt, newest_attempt

router = APIRouter(prefix="/v1/groups/{ref}", tags=["sessions"])

READ_BYTES: Final = 65536
GOING_AWAY: Final = 1012  # close code: the server restarts
BROKE: Final = 4000  # close code: the reason says what broke
REASON_MOST: Final = 100  # characters; a close frame holds 123 bytes

HUNG_UP: Final = (OSError, Unreachable)


@router.websocket("/exec")
async def execute(
    socket: WebSocket,
    ref: str,
    here: Here,
    task: str,
    argv: str,
    index: int = 0,
    tty: bool = False,
    rows: int = 24,
    cols: int = 80,
    stdin: bool = True,
) -> None:
    """A command on a node: the lines of the agent's `exec`, both ways."""

    def wish(attempt: Attempt) -> dict[str, Any]:
        words = _words(argv)
        return {
            "op": "exec", "attempt": attempt.id, "argv": words, "tty": tty, "rows": rows,
            "cols": cols, "env": {}, "stdin": stdin,
        }  # fmt: skip

    await _session(here, socket, lambda: live_attempt(here.control.find(ref), task, index), wish)


@router.websocket("/forward")
async def forward(
    socket: WebSocket, ref: str, here: Here, task: str, port: int, index: int = 0
) -> None:
    """One TCP connection from the node's own network; binary messages are its bytes."""

    def wish(attempt: Attempt) -> dict[str, Any]:
        return {"op": "forward", "attempt": attempt.id, "port": port}

    await _session(
        here,
        socket,
        lambda: live_attempt(here.control.find(ref), task, index),
        wish,
        bytes_after_answer=True,
    )


@router.websocket("/copy")
async def copy(
    socket: WebSocket,
    ref: str,
    here: Here,
    task: str,
    path: str,
    direction: Literal["put", "get"],
    index: int = 0,
    tar: bool = False,
    mode: int | None = None,
) -> None:
    """Files to or from a node: the lines of the agent's `put` and `get`."""

    def wish(attempt: Attempt) -> dict[str, Any]:
        asked = {"op": direction, "attempt": attempt.id, "path": path, "tar": tar}
        return asked if mode is None else {**asked, "mode": mode}

    await _session(here, socket, lambda: newest_attempt(here.control.find(ref), task, index), wish)


def _words(argv: str) -> list[str]:
    try:
        words = json.loads(argv)
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        raise InputError(
            "`argv` is not a JSON list of words",
            code="server/argv",
            hint='send for example ["ls", "-l"]',
        )
    return words


async def _session(
    here: Context,
    socket: WebSocket,
    target: Callable[[], Attempt],
    wish: Callable[[Attempt], dict[str, Any]],
    *,
    bytes_after_answer: bool = False,
) -> None:
    """Open the agent's stream, accept the socket, and carry both ways until one side ends."""
    async with AsyncExitStack() as stack:
        try:
            attempt = target()
            stream = await stack.enter_async_context(opened(here.control, attempt, wish(attempt)))
            if bytes_after_answer:
                await answered(stream, attempt)
        except Exception as error:
            await socket.send_denial_response(refusal(unexpected(error)))
            return
        await socket.accept()
        await _carry(here, socket, stream, as_bytes=bytes_after_answer)


async def _carry(here: Context, socket: WebSocket, stream: Stream, *, as_bytes: bool) -> None:
    """Both ways at once until one side ends; then close the socket, unless the client is gone."""
    down, up = (_bytes_down, _bytes_up) if as_bytes else (_lines_down, _lines_up)
    downward = asyncio.ensure_future(down(socket, stream))
    upward = asyncio.ensure_future(up(socket, stream))
    closing = asyncio.ensure_future(here.closing.wait())
    tasks: tuple[asyncio.Future[Any], ...] = (downward, upward, closing)
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if done == {upward} and isinstance(upward.exception(), HUNG_UP):
            # The agent takes no more; what it said last (an error, an exit code) is still sent.
            await asyncio.wait((downward, closing), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    errors = [one.exception() for one in (downward, upward) if not one.cancelled()]
    if any(isinstance(error, WebSocketDisconnect) for error in errors):
        return
    if downward.cancelled():
        await socket.close(GOING_AWAY, "the server was stopped")
    elif (error := downward.exception()) is not None:
        await socket.close(BROKE, unexpected(error).text[:REASON_MOST])
    else:
        await socket.close()


async def _lines_down(socket: WebSocket, stream: Stream) -> None:
    while raw := await stream.readline():
        await socket.send_text(raw.decode("utf-8", "replace").rstrip("\n"))


async def _lines_up(socket: WebSocket, stream: Stream) -> None:
    while True:
        text = await socket.receive_text()
        await stream.write(text.replace("\n", " ").encode("utf-8", "surrogatepass") + b"\n")


async def _bytes_down(socket: WebSocket, stream: Stream) -> None:
    while data := await stream.read(READ_BYTES):
        await socket.send_bytes(data)


async def _bytes_up(socket: WebSocket, stream: Stream) -> None:
    while True:
        await stream.write(await socket.receive_bytes())

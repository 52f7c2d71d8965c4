"""HTTP over the server's unix socket for asyncio; `sdk.wire` says what an answer means."""

from __future__ import annotations

import asyncio
import http.client
import io
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argosy.sdk.wire import Assembly, answered, open_socket, packed, refusal, translated

READ_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class _Response:
    """The head of an answer, and where the rest comes from."""

    status: int
    headers: http.client.HTTPMessage
    reader: asyncio.StreamReader

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises EOFError when it is cut off."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int((await self.reader.readuntil(b"\r\n")).partition(b";")[0], 16):
                yield (await self.reader.readexactly(size + 2))[:-2]
            return
        left = int(self.headers.get("Content-Length", 0))
        while left:
            chunk = await self.reader.read(min(left, READ_BYTES))
            if not chunk:
                raise EOFError
            left -= len(chunk)
            yield chunk

    async def text(self) -> bytes:
        """All of the body."""
        return b"".join([chunk async for chunk in self.chunks()])


async def call(
    home: Path, method: str, path: str, body: object, timeout: float | None
) -> tuple[int, Any]:
    """One request: its status and its JSON. Raises the error that the server names."""
    with translated(home):
        async with asyncio.timeout(timeout), _asked(home, method, path, body) as response:
            return answered(response.status, await response.text())


async def stream(home: Path, path: str) -> AsyncIterator[dict[str, Any]]:
    """The lines of an NDJSON answer as they come. Raises Unreachable when it is cut off."""
    with translated(home):
        async with _asked(home, "GET", path, None) as response:
            if response.status >= 400:
                raise refusal(response.status, await response.text())
            lines = Assembly()
            async for chunk in response.chunks():
                for line in lines.of(chunk):
                    yield line


@asynccontextmanager
async def _asked(home: Path, method: str, path: str, body: object) -> AsyncIterator[_Response]:
    """A request that was sent, on a connection of its own."""
    connection = await _connected(home)
    try:
        connection.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=connection)
    except BaseException:
        connection.close()
        raise
    try:
        data, headers = packed(body)
        given = {"Host": "argosy", "Connection": "close", "Content-Length": str(len(data or b""))}
        lines = [
            f"{method} {path} HTTP/1.1",
            *(f"{k}: {v}" for k, v in {**given, **headers}.items()),
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode("ascii") + (data or b""))
        await writer.drain()
        yield await _head(reader)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _connected(home: Path) -> socket.socket:
    """A connection; whoever gives up while it is made leaves none behind."""
    opening = asyncio.get_running_loop().run_in_executor(None, open_socket, home)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_dropped)
        raise


def _dropped(opening: asyncio.Future[socket.socket]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


async def _head(reader: asyncio.StreamReader) -> _Response:
    first, _, rest = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
    _, status, *_ = first.split(b" ", 2)
    return _Response(int(status), http.client.parse_headers(io.BytesIO(rest)), reader)

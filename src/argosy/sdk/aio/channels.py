"""Two-way streams for asyncio: `exec`, `forward`, `copy`. Imported only when one is opened."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from argosy.sdk.channels import OPEN_TIMEOUT, ended, message_of, refused, unopened
from argosy.sdk.wire import open_socket


class Channel:
    """One websocket to the server; text messages carry JSON objects, binary ones raw bytes."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    @classmethod
    async def open(cls, home: Path, path: str) -> Channel:
        """Open one. Raises what the server answers, or Unreachable."""
        connection = await asyncio.to_thread(open_socket, home)
        connection.setblocking(False)
        try:
            socket = await connect(
                f"ws://argosy{path}",
                sock=connection,
                compression=None,
                proxy=None,
                max_size=None,
                open_timeout=OPEN_TIMEOUT,
                ping_interval=None,
            )
        except (InvalidHandshake, OSError, TimeoutError, EOFError) as error:
            connection.close()
            raise unopened(error) from error
        except BaseException:
            connection.close()
            raise
        return cls(socket)

    async def send(self, message: dict[str, Any]) -> None:
        """One JSON object. Raises Unreachable when the stream has ended."""
        await self._send(json.dumps(message))

    async def send_bytes(self, data: bytes) -> None:
        """Raw bytes."""
        await self._send(data)

    async def receive(self) -> dict[str, Any] | None:
        """The next object; None at the end. Raises the error that the other side names."""
        raw = await self.receive_raw()
        return None if raw is None else message_of(raw)

    async def receive_raw(self) -> bytes | str | None:
        """The next message as it came; None at the end."""
        try:
            return await self._socket.recv()
        except ConnectionClosed as closed:
            refused(closed)
            return None

    async def close(self) -> None:
        """End the stream; may be repeated."""
        await self._socket.close()

    async def _send(self, data: str | bytes) -> None:
        try:
            await self._socket.send(data)
        except (ConnectionClosed, OSError) as error:
            raise ended() from error

"""The HTTP server: uvicorn's protocols on a socket of ours, without its ten ticks a second."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn
from fastapi import FastAPI

MESSAGE_BYTES_MOST: Final = 64 * 2**20  # of a websocket, as the agent protocol has it
END_TIMEOUT_S: Final = 3  # for requests in progress when the server stops


class Web(uvicorn.Server):
    """Serves until `stop` is called; then sets `closing` and finishes requests in progress."""

    def __init__(self, app: FastAPI, closing: asyncio.Event) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="websockets-sansio",
                ws_max_size=MESSAGE_BYTES_MOST,
                ws_ping_interval=None,  # a unix socket tells when its other end is gone
                ws_per_message_deflate=False,
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_graceful_shutdown=END_TIMEOUT_S,
            )
        )
        self._closing = closing
        self._wanted = asyncio.Event()

    def stop(self) -> None:
        """Ask it to end; may be repeated."""
        self.should_exit = True
        self._wanted.set()

    async def main_loop(self) -> None:
        """Wait to be stopped. Nothing ticks meanwhile."""
        await self._wanted.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, finish the rest."""
        self._closing.set()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are `main`'s."""
        yield

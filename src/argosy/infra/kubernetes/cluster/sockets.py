"""The sockets to an API server: when their session is closed, TLS may still be saying goodbye on
some, which aiohttp does not wait for. A loop that ends then leaves them open.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import weakref
from typing import Any, Final

from argosy.infra.kubernetes.cluster.backoff import now

CLOSING_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 0.005
CLOSED: Final = -1  # what a closed socket has as its number


class Sockets:
    """All that were made for connections, as long as somebody has them."""

    def __init__(self) -> None:
        self._made: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket for one result of getaddrinfo."""
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        self._made.add(made)
        return made

    async def closed(self) -> None:
        """Hang up, and wait until the loop has let go of them; not for ever."""
        for one in self._open():
            with contextlib.suppress(OSError):  # not connected
                one.shutdown(socket.SHUT_RDWR)
        until = now() + CLOSING_SECONDS
        while self._open() and now() < until:
            await asyncio.sleep(LOOK_SECONDS)

    def _open(self) -> list[socket.socket]:
        return [one for one in self._made if one.fileno() != CLOSED]

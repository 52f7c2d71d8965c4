"""A stream to an agent of this machine."""

from __future__ import annotations

import asyncio
import socket

from argosy.infra.local.agent import SocketStream
from tests.control.bench import until


def test_what_was_said_before_a_hang_up_can_be_read() -> None:
    """Though the agent did not read all that it was sent: the connection is reset then."""

    async def story() -> None:
        ours, theirs = socket.socketpair()
        stream = await SocketStream.to(sock=ours)
        await stream.write(b"more than it reads\n")
        theirs.sendall(b"why\nit ends")
        theirs.close()
        await until(stream._writer.transport.is_closing)
        assert [await stream.readline() for _ in range(3)] == [b"why\n", b"it ends", b""]
        await stream.close()

    asyncio.run(story())

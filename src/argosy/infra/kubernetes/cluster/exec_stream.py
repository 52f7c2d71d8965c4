"""A stream over the websocket of `exec`: the first byte of a message says which pipe it is of.

Source of the format: Kubernetes, `remotecommand` subprotocols v4 and v5.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from argosy.errors import Unreachable

if TYPE_CHECKING:
    import aiohttp

STDIN, STDOUT, STDERR, STATUS = 0, 1, 2, 3
FRAME_MAX: Final = 64 << 10  # bytes of one message to the server
SAID_MAX: Final = 16 << 10  # bytes of standard error that are kept
LINE_MAX: Final = 64 << 20  # of the agent protocol
NOISE_MAX: Final = 1 << 16  # bytes before the first word of a stream


class ExecStream:
    """What a command in a container reads and writes."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._buffer = bytearray()
        self._said = bytearray()
        self._ended = False
        self._status = ""

    async def read(self, most: int = 65536) -> bytes:
        """Up to so many bytes; b"" at the end."""
        while not self._buffer and await self._more():
            pass
        return self._taken(most)

    async def readline(self) -> bytes:
        """One line with its newline; less, or b"", at the end. Raises ValueError for one too long.

        Whoever is cancelled loses nothing.
        """
        begin = 0
        while (end := self._buffer.find(b"\n", begin)) < 0:
            begin = len(self._buffer)
            if begin > LINE_MAX:
                raise ValueError(f"a line of the agent is longer than {LINE_MAX} bytes")
            if not await self._more():
                return self._taken(len(self._buffer))
        return self._taken(end + 1)

    async def begins_with(self, word: str) -> bool:
        """Whether a line that is that word comes, before much else. Else, and where it fails, the
        stream is closed. Raises what reading raises.
        """
        noise = 0
        try:
            while noise <= NOISE_MAX and (line := await self.readline()):
                if line.strip() == word.encode():
                    return True
                noise += len(line)
        except BaseException:
            await self.close()
            raise
        await self.close()
        return False

    async def write(self, data: bytes) -> None:
        """Send; waits while the other side is slow. Raises Unreachable when nobody is there."""
        try:
            for at in range(0, len(data), FRAME_MAX):
                await self._socket.send_bytes(bytes((STDIN,)) + data[at : at + FRAME_MAX])
        except (ConnectionError, RuntimeError) as error:
            raise Unreachable("the agent has hung up", code="agent/hung-up") from error

    async def close(self) -> None:
        """End the stream; may be repeated."""
        self._ended = True
        await self._socket.close()

    @property
    def said(self) -> str:
        """What the command wrote to its standard error, or the server said of its end."""
        return self._said.decode("utf-8", "replace").strip() or self._status

    def _taken(self, most: int) -> bytes:
        found = bytes(self._buffer[:most])
        del self._buffer[:most]
        return found

    async def _more(self) -> bool:
        """Take one more message; False at the end."""
        from aiohttp import WSMsgType

        if self._ended:
            return False
        message = await self._socket.receive()
        if message.type not in (WSMsgType.BINARY, WSMsgType.TEXT):
            self._ended = True
            return False
        data: bytes = message.data if isinstance(message.data, bytes) else message.data.encode()
        match data[:1]:
            case b"\x01":
                self._buffer += data[1:]
            case b"\x02":
                self._said += data[1 : 1 + SAID_MAX - len(self._said)]
            case b"\x03":
                self._status = _words(data[1:])
                self._ended = True
                return False
        return True


def _words(status: bytes) -> str:
    """What a Status object says; "" for a success."""
    try:
        said = json.loads(status)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return status.decode("utf-8", "replace")
    return "" if said.get("status") == "Success" else str(said.get("message") or said)

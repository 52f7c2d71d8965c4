"""What the streams of all infras have in common (infra/api.py): bytes and lines over asyncio."""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

from argosy.errors import Unreachable

LINE_MAX: Final = 64 << 20  # bytes; of the agent protocol
READ_AHEAD: Final = 128 << 10  # bytes that wait for a slow reader


class Lines:
    """A reader and a writer. An infra adds how they are closed."""

    OTHER_SIDE: ClassVar[str] = "agent"
    BROKEN: ClassVar[tuple[type[Exception], ...]] = (ConnectionError,)  # what a write may raise

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._parts: list[bytes] = []  # of a line whose end has not come yet
        self._first = b""  # a line that was looked at, and not read

    async def begins(self) -> bool:
        """Whether a line comes before the end; it is there to be read. For a stream that nobody has
        read from.
        """
        self._first = await self.readline()
        return bool(self._first)

    async def read(self, most: int = 65536) -> bytes:
        """Up to so many bytes; b"" at the end."""
        if self._first:
            found, self._first = self._first[:most], self._first[most:]
            return found
        try:
            return await self._reader.read(most)
        except ConnectionError:
            return b""

    async def readline(self) -> bytes:
        """One line with its newline; less, or b"", at the end. Raises ValueError for one too long.

        A long line is put together from parts, so that a stream that nobody reads holds no more
        than READ_AHEAD twice. Whoever is cancelled loses nothing: the next call goes on.
        """
        if self._first:
            line, self._first = self._first, b""
            return line
        parts = self._parts
        while sum(map(len, parts)) <= LINE_MAX:
            try:
                parts.append(await self._reader.readuntil(b"\n"))
            except asyncio.IncompleteReadError as error:
                parts.append(error.partial)
            except asyncio.LimitOverrunError as error:
                parts.append(await self._reader.read(error.consumed))
                continue
            except ConnectionError:
                return b""
            self._parts = []
            return b"".join(parts)
        raise ValueError(f"a line of the {self.OTHER_SIDE} is longer than {LINE_MAX} bytes")

    async def write(self, data: bytes) -> None:
        """Send; waits while the other side is slow. Raises Unreachable when nobody is there."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except self.BROKEN as error:
            raise Unreachable(f"the {self.OTHER_SIDE} has hung up", code="agent/hung-up") from error

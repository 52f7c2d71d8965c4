"""A stream over the pipes of a child `ssh`, in the words of infra/api.py."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import Process
from typing import Final

from argosy.errors import Unreachable

LINE_MAX: Final = 64 << 20  # bytes; of the agent protocol
READ_AHEAD: Final = 128 << 10  # bytes that wait for a slow reader
SAID_MAX: Final = 16 << 10  # bytes of standard error that are read
END_SECONDS: Final = 5.0  # for a child that was told to end


class PipeStream:
    """What a child reads and writes. `said` is a file that its standard error goes to."""

    def __init__(self, process: Process, said: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._said = process, said
        self._reader, self._writer = process.stdout, process.stdin
        self._parts: list[bytes] = []  # of a line whose end has not come yet
        self._closed = False

    async def read(self, most: int = 65536) -> bytes:
        """Up to so many bytes; b"" at the end."""
        return await self._reader.read(most)

    async def readline(self) -> bytes:
        """One line with its newline; less, or b"", at the end. Raises ValueError for one too long.

        Whoever is cancelled loses nothing: the next call goes on.
        """
        parts = self._parts
        while sum(map(len, parts)) <= LINE_MAX:
            try:
                parts.append(await self._reader.readuntil(b"\n"))
            except asyncio.IncompleteReadError as error:
                parts.append(error.partial)
            except asyncio.LimitOverrunError as error:
                parts.append(await self._reader.read(error.consumed))
                continue
            self._parts = []
            return b"".join(parts)
        raise ValueError(f"a line from the host is longer than {LINE_MAX} bytes")

    async def write(self, data: bytes) -> None:
        """Send; waits while the other side is slow. Raises Unreachable when nobody is there."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except (ConnectionError, RuntimeError) as error:
            raise Unreachable("the host has hung up", code="agent/hung-up") from error

    def end_input(self) -> None:
        """Nothing more is sent."""
        self._writer.close()

    async def ended(self) -> tuple[int, str]:
        """(exit code, what was said on standard error), once the child has ended."""
        code = await self._process.wait()
        return code, "" if self._closed else self._what_was_said()

    async def close(self) -> None:
        """End the stream and its child; may be repeated."""
        if self._closed:
            return
        self._closed = True
        self._writer.close()
        try:
            async with asyncio.timeout(END_SECONDS):
                if self._process.returncode is None:
                    self._signal(kill=False)
                await self._process.wait()
        finally:
            self._signal(kill=True)
            os.close(self._said)

    def _signal(self, *, kill: bool) -> None:
        try:
            if self._process.returncode is None:
                self._process.kill() if kill else self._process.terminate()
        except ProcessLookupError:
            pass

    def _what_was_said(self) -> str:
        return os.pread(self._said, SAID_MAX, 0).decode("utf-8", "replace")

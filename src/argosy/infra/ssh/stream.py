"""A stream over the pipes of a child `ssh`."""

from __future__ import annotations

import asyncio
import contextlib
import os
from asyncio.subprocess import Process
from typing import Final

from argosy.infra.stream import Lines

SAID_MAX: Final = 16 << 10  # bytes of standard error that are read
END_SECONDS: Final = 5.0  # for a child that was told to end


class PipeStream(Lines):
    """What a child reads and writes. `said` is a file that its standard error goes to."""

    OTHER_SIDE = "host"
    BROKEN = (ConnectionError, RuntimeError)  # the latter: its input was closed

    def __init__(self, process: Process, said: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        super().__init__(process.stdout, process.stdin)
        self._process, self._said = process, said
        self._closed = False

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
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
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

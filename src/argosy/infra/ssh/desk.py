"""Speaks with the desk on a host (agent/leases/desk.py): one request, one answer, over one stream.

A question that is not answered in time leaves the stream open: a link that was cut for a moment
goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any, Final

from argosy.errors import ArgosyError, CapacityError, InfraError, Unreachable
from argosy.infra.ssh.stream import PipeStream

ASK_SECONDS: Final = 30.0
FULL_RETRY: Final = 5.0  # seconds until a refused lease is worth another try
FAILED_RETRY: Final = 10.0


class Desk:
    """The desk of one host, as long as its stream lasts."""

    def __init__(
        self, host: str, stream: PipeStream, hello: dict[str, Any], changed: Callable[[], None]
    ) -> None:
        self.host, self.boot_id = host, str(hello["boot_id"])
        self.facts: dict[str, Any] = hello["facts"]
        self._stream, self._changed = stream, changed
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader = asyncio.create_task(self._read(), name=f"desk {host}")

    @property
    def open(self) -> bool:
        """Whether it can still be asked."""
        return not self._reader.done()

    async def ask(self, op: str, *, seconds: float = ASK_SECONDS, **fields: Any) -> dict[str, Any]:
        """The answer. Raises Unreachable, and CapacityError or InfraError as the host says it."""
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            if not self.open:
                raise self._gone()
            async with asyncio.timeout(seconds):
                message = {"id": number, "op": op, **fields}
                await self._stream.write(json.dumps(message).encode() + b"\n")
                found: dict[str, Any] = await answer
        except TimeoutError as error:
            raise Unreachable(
                f"{self.host} did not answer within {seconds:g} s",
                code="ssh/no-answer",
                hint="see whether the host and the way to it work",
                retry=FULL_RETRY,
            ) from error
        finally:
            self._waiting.pop(number, None)
        if "error" in found:
            raise _refusal(self.host, found)
        return found

    async def close(self) -> None:
        """End it; what it began goes on."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._stream.close()

    async def ended(self) -> tuple[int, str]:
        """Returns at its end: exit code, and what was said on standard error."""
        await asyncio.gather(self._reader, return_exceptions=True)
        return await self._stream.ended()

    async def _read(self) -> None:
        try:
            while (line := await self._stream.readline()).endswith(b"\n"):
                message = json.loads(line)
                if "changed" in message:
                    self._changed()
                elif (answer := self._waiting.get(message["id"])) and not answer.done():
                    answer.set_result(message)
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(self._gone())
            self._changed()

    def _gone(self) -> Unreachable:
        return Unreachable(
            f"the connection to {self.host} has ended",
            code="ssh/ended",
            hint="see whether the host and the way to it work",
            retry=FULL_RETRY,
        )


def _refusal(host: str, answer: dict[str, Any]) -> ArgosyError:
    """What the host said no with, in our words."""
    code, text = f"ssh/{answer['error']}", f"{host}: {answer['text']}"
    hint, later = str(answer["hint"]), bool(answer["later"])
    if answer["error"] == "full":
        return CapacityError(text, code=code, hint=hint, retry=FULL_RETRY)
    if answer["error"] == "too-large":
        return CapacityError(text, code=code, hint=hint)
    if later:
        return InfraError(text, code=code, hint=hint, retry=FAILED_RETRY)
    return InfraError(text, code=code, hint=hint)

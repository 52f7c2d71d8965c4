"""Streams to agents: one for each thing that is asked of them; and whether they answer at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from argosy.errors import Unreachable, from_fields
from argosy.infra.api import Stream
from argosy.model import codec
from argosy.model.group import Attempt

if TYPE_CHECKING:
    from argosy.control.control import Control

OPEN_TIMEOUT_S: Final = 15.0
ANSWER_TIMEOUT_S: Final = 30.0
KNOCK_S: Final = 5.0  # that an agent has to answer anything at all
DOORS_MOST: Final = 10_000
SILENT: Final = "server/agent-silent"  # the code of what is no answer


@asynccontextmanager
async def opened(control: Control, attempt: Attempt, wish: dict[str, Any]) -> AsyncIterator[Stream]:
    """A stream to the attempt's agent on which `wish`, its first line, was sent.

    Raises Unreachable.
    """
    try:
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            stream = await control.agent_of(attempt)
    except TimeoutError as error:
        raise Unreachable(
            f"the agent of {attempt.node} does not answer",
            code=SILENT,
            hint="`argosy status` shows whether its host is suspect",
        ) from error
    try:
        await stream.write(codec.dumps(wish).encode() + b"\n")
        yield stream
    except OSError as error:
        raise Unreachable(f"the stream to the agent of {attempt.node} broke: {error}") from error
    finally:
        await stream.close()


@dataclass(slots=True, eq=False)
class _Door:
    """What the last knock at a host has come to."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    at: float = float("-inf")  # when that was known
    error: Unreachable | None = None


class Doors:
    """Whether agents are there: one knock at a host at a time, for all who wait for its agent."""

    def __init__(self) -> None:
        self._doors: dict[tuple[str, str], _Door] = {}

    async def knock(self, control: Control, attempt: Attempt, fresh: float) -> None:
        """Returns when the attempt's agent answers, or did so in the last `fresh` seconds.

        Raises Unreachable.
        """
        if len(self._doors) > DOORS_MOST:  # those of hosts that are gone, too
            self._doors = {key: one for key, one in self._doors.items() if one.lock.locked()}
        door = self._doors.setdefault((attempt.infra, attempt.host), _Door())
        now = asyncio.get_running_loop().time
        came = now()
        async with door.lock:
            if door.at < came and (door.error is not None or door.at < came - fresh):
                door.error = await _silence(control, attempt)
                door.at = now()
            if door.error is not None:
                raise door.error


async def _silence(control: Control, attempt: Attempt) -> Unreachable | None:
    """None when the agent answers. An attempt is no group, so its answer is short."""
    wish = {"op": "history", "group": attempt.id}
    try:
        async with asyncio.timeout(KNOCK_S), opened(control, attempt, wish) as stream:
            if await stream.readline():
                return None
    except Unreachable as error:
        return error
    except TimeoutError:
        pass
    return Unreachable(
        f"host {attempt.host} does not answer",
        code=SILENT,
        hint="`argosy infra check` shows the state of its hosts",
    )


async def answered(stream: Stream, attempt: Attempt) -> dict[str, Any]:
    """The next line of an agent. Raises the error that it names, or Unreachable."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            raw = await stream.readline()
    except TimeoutError as error:
        raise Unreachable(f"the agent of {attempt.node} does not answer") from error
    message = parsed(raw)
    if message is None:
        raise Unreachable(f"the agent of {attempt.node} ended the stream without an answer")
    return message


def parsed(raw: bytes) -> dict[str, Any] | None:
    """A line of an agent; None at the end of the stream. Raises the error that it names."""
    if not raw.endswith(b"\n"):  # the end, perhaps in the middle of a line
        return None
    message: dict[str, Any] = json.loads(raw)
    if "error" in message:
        raise from_fields(message)
    return message

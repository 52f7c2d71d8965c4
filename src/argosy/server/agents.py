"""Streams to agents: one for each thing that is asked of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from argosy.errors import Unreachable, from_fields
from argosy.infra.api import Stream
from argosy.model import codec
from argosy.model.group import Attempt

if TYPE_CHECKING:
    from argosy.control.control import Control

OPEN_TIMEOUT_S: Final = 15.0
ANSWER_TIMEOUT_S: Final = 30.0


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
            code="server/agent-silent",
            hint="`argosy status` shows whether its host is suspect",
        ) from error
    try:
        await stream.write(codec.dumps(wish).encode() + b"\n")
        yield stream
    except OSError as error:
        raise Unreachable(f"the stream to the agent of {attempt.node} broke: {error}") from error
    finally:
        await stream.close()


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

"""Streams that live through a restart of the server: they come back where they were.

A follower starts a server in place of one that was killed, and never after one that was stopped:
who stopped it wants it stopped. Groups go on without one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from argosy.errors import Unreachable
from argosy.sdk.client import Chunk, Client, LogQuery, PastEvent
from argosy.views.shapes import Overview

PATIENCE = 30.0  # seconds without a server
STEP = 0.2
OVERLAP = 10.0  # seconds of log read again after a gap, and dropped by offset
STOPPED = "server/stopped"  # the code of what a server says that was stopped

Told = Callable[[str], None]


class _Patience:
    """How long a follower waits for a server to come back, and by which client it asks."""

    def __init__(self, client: Client, tell: Told) -> None:
        self.client = client
        self._given, self._tell = client, tell
        self._since: float | None = None

    def over(self) -> None:
        """It answers again."""
        if self._since is not None:
            self._tell("the server is back")
        self._since, self.client = None, self._given

    def wait(self, error: Unreachable) -> None:
        """Sleeps a step; raises `error` once the patience has run out."""
        now = time.monotonic()
        if error.code == STOPPED:
            self.client = Client(self._given.home, start=False)
        if self._since is None:
            self._since = now
            self._tell("no answer from the server; the group goes on; trying again")
        if now - self._since > PATIENCE:
            raise error
        time.sleep(STEP)


def watch(client: Client, ref: str, tell: Told) -> Iterator[Overview]:
    """The group now and after each change, until it has ended."""
    patience = _Patience(client, tell)
    while True:
        try:
            for view in patience.client.watch(ref):
                patience.over()
                yield view
                if view.final:
                    return
            patience.wait(Unreachable("the server ended the stream", code="server/cut-off"))
        except Unreachable as error:
            patience.wait(error)


def events(client: Client, ref: str, since: int, tell: Told) -> Iterator[PastEvent]:
    """What happened after `since`, until the group has ended."""
    patience = _Patience(client, tell)
    while True:
        try:
            for event in patience.client.events(ref, since=since, follow=True):
                patience.over()
                since = max(since, event.seq)
                yield event
            patience.client.server()
            return
        except Unreachable as error:
            patience.wait(error)


def logs(client: Client, ref: str, query: LogQuery, tell: Told) -> Iterator[Chunk]:
    """What is written, until all that is followed has ended; nothing twice after a gap."""
    patience = _Patience(client, tell)
    ends: dict[tuple[str, int, int], int] = {}
    seen_at: float | None = None
    while True:
        try:
            for chunk in patience.client.logs(ref, query):
                patience.over()
                seen_at = time.monotonic()
                if kept := _beyond(chunk, ends):
                    yield kept
            patience.client.server()  # an ended stream of a living server is complete
            return
        except Unreachable as error:
            patience.wait(error)
            ago = time.monotonic() - seen_at + OVERLAP if seen_at is not None else None
            if ago is not None:
                query = replace(query, tail=None, since=ago)


def _beyond(chunk: Chunk, ends: dict[tuple[str, int, int], int]) -> Chunk | None:
    """The part of a chunk that was not seen yet; None: all of it was."""
    key = (chunk.task, chunk.index, chunk.attempt)
    known = ends.get(key, 0)
    end = chunk.offset + len(chunk.data)
    if chunk.data and end <= known:
        return None
    ends[key] = max(known, end)
    if chunk.offset >= known:
        return chunk
    return replace(chunk, offset=known, data=chunk.data[known - chunk.offset :])

"""Following a group: its state and its logs at once, until it has ended or Ctrl-C detaches."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from queue import Empty, Queue
from typing import Any, TextIO

from argosy.cli.screen.group import closing_lines, progress_lines
from argosy.cli.screen.lines import LogLines
from argosy.cli.screen.live import Live
from argosy.cli.screen.paint import Paint, paint_for, say, terminal
from argosy.sdk.client import Chunk
from argosy.views.changes import changes
from argosy.views.shapes import Overview

DETACHED = 130
QUEUE_MOST = 64  # items read ahead; the server waits then
REDRAW = 0.1  # seconds
LOGS_LATE = 10.0  # seconds that the last lines may take after the group's end
NEWS_MOST = 12  # lines at once
WAITS = (" PENDING", " STARTING", " RECOVERING")  # in a line about what has not begun


@dataclass(frozen=True, slots=True)
class _End:
    """A stream is over; `error`: why, when it was not its end."""

    stream: str
    error: BaseException | None = None


class Feed:
    """Several iterators, each read by a thread of its own, as one queue."""

    def __init__(self) -> None:
        self.queue: Queue[Any] = Queue(QUEUE_MOST)

    def add(self, name: str, source: Callable[[], Iterable[Any]]) -> None:
        """Read `source` into the queue; its end is put there too."""
        threading.Thread(target=self._read, args=(name, source), name=name, daemon=True).start()

    def tell(self, text: str) -> None:
        """A line for people, from any thread."""
        self.queue.put(text)

    def _read(self, name: str, source: Callable[[], Iterable[Any]]) -> None:
        error: BaseException | None = None
        try:
            for item in source():
                self.queue.put(item)
        except Exception as caught:  # raised again by the thread that shows it
            error = caught
        self.queue.put(_End(name, error))


@dataclass(slots=True)
class Follower:
    """Shows what a feed brings: logs, and where the group stands."""

    feed: Feed
    lines: LogLines
    live: Live = field(default_factory=Live)
    paint: Paint = field(default_factory=lambda: paint_for(sys.stderr))
    news: bool = True  # whether changes of the group are told
    out: TextIO = field(default_factory=lambda: sys.stdout)  # where the logs go
    view: Overview | None = None
    _seen_at: float = 0.0
    _told: str = ""
    _waits: set[str] = field(default_factory=set)  # told since something last went on
    _open: set[str] = field(default_factory=set)

    def run(self, streams: Iterable[str]) -> Overview | None:
        """Until every stream has ended; returns the last state seen. KeyboardInterrupt passes."""
        self._open = set(streams)
        late: float | None = None
        try:
            while self._open:
                self._take()
                if self.view is not None and self.view.final:
                    late = late or time.monotonic() + LOGS_LATE
                    if time.monotonic() > late and self.feed.queue.empty():
                        break
            self._print(self.lines.end(time.time()))
        finally:
            self.live.clear()
        return self.view

    def _take(self) -> None:
        """One item, and those that came with it."""
        try:
            item = self.feed.queue.get(timeout=REDRAW)
        except Empty:
            self._draw()
            return
        self._show(item)
        for _ in range(QUEUE_MOST):
            if self.feed.queue.empty():
                break
            self._show(self.feed.queue.get_nowait())
        self.out.flush()
        self._draw()

    def _show(self, item: object) -> None:
        match item:
            case Chunk():
                self._chunk(item)
                if self.view is not None and self.view.final:
                    self._seen_at = time.monotonic()
            case Overview():
                self._state(item)
            case str():
                if item != self._told:  # each stream notices the same trouble
                    self._say(f"argosy: {item}")
                self._told = item
            case _End():
                if item.error is not None:
                    raise item.error
                self._open.discard(item.stream)

    def _chunk(self, chunk: Chunk) -> None:
        if told := remark(chunk):
            self._say(told)
        self._print(self.lines.feed(chunk.task, chunk.index, chunk.attempt, chunk.data, chunk.at))

    def _state(self, view: Overview) -> None:
        told = changes(self.view, view) if self.news else ()
        self.view, self._seen_at = view, time.monotonic()
        if self.live.on:  # the block shows the rest
            told = tuple(line for line in told if _alarming(line))
        told = tuple(line for line in told if self._is_new(line))
        for line in told[:NEWS_MOST]:
            self._say(self.paint(line, "red" if " FAILED" in line else "dim"))
        if len(told) > NEWS_MOST:
            self._say(self.paint(f"and {len(told) - NEWS_MOST} more changes", "dim"))

    def _is_new(self, line: str) -> bool:
        """Each try to get capacity goes through the same states: they are told once."""
        if not any(word in line for word in WAITS):
            self._waits.clear()
        elif line in self._waits:
            return False
        else:
            self._waits.add(line)
        return True

    def _print(self, text: str) -> None:
        if text:
            if terminal(self.out):
                self.live.clear()
            self.out.write(text)

    def _say(self, text: str) -> None:
        self.out.flush()
        self.live.clear()
        say(text)

    def _draw(self) -> None:
        if self.live.on and self.news and self.view is not None and not self.view.final:
            passed = time.monotonic() - self._seen_at
            self.live.draw(progress_lines(self.view, passed, self.paint))


def remark(chunk: Chunk) -> str:
    """What people should know beside the bytes of a chunk; "" when nothing."""
    if chunk.gap:
        return f"argosy: {chunk.task}-{chunk.index}: {chunk.gap:,} bytes of its log were freed"
    return f"argosy: {chunk.note}" if chunk.note else ""


def finish(view: Overview | None) -> int:
    """The closing lines of a group, and its exit code."""
    if view is None or view.exit_code is None:
        return 0
    for line in closing_lines(view, paint_for(sys.stderr)):
        say(line)
    return view.exit_code


def detached(name: str) -> int:
    """Says how to come back and how to stop; the exit code of that."""
    say(f"\nargosy: detached; {name} goes on")
    say(f"  come back: argosy logs -f {name}")
    say(f"  stop it:   argosy cancel {name}")
    return DETACHED


def _alarming(line: str) -> bool:
    return any(word in line for word in ("FAILED", "RECOVERING", "replaces", "anew"))

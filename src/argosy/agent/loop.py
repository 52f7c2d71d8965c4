"""The agent's event loop: descriptors, timers, and nothing that ticks by itself.

Small on purpose (asyncio would cost half of the agent's memory). Callbacks must not block. A
callback that raises is reported to `on_error` and the loop goes on: one broken request must not end
an agent.
"""

from __future__ import annotations

import heapq
import itertools
import os
import selectors
import signal
import sys
import time
from typing import Callable, Dict, List, Optional, Tuple

Callback = Callable[[], None]


class Timer:
    """A call to come; `cancel` makes it never happen."""

    __slots__ = ("callback", "when")

    def __init__(self, when: float, callback: Callback) -> None:
        self.when = when
        self.callback: Optional[Callback] = callback

    def cancel(self) -> None:
        """Never call it (again)."""
        self.callback = None


def report(error: BaseException) -> None:
    """The default for errors of callbacks: a traceback on standard error."""
    import traceback  # here only: it would cost every start of an agent two milliseconds

    traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)


class Loop:
    """Runs callbacks when descriptors are ready or times have come, until `stop`."""

    def __init__(self, on_error: Callable[[BaseException], None] = report) -> None:
        self._selector = selectors.DefaultSelector()
        self._readers: Dict[int, Callback] = {}
        self._writers: Dict[int, Callback] = {}
        self._timers: List[Tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._running = False
        self._on_error = on_error
        self._children: Dict[int, Callable[[int], None]] = {}
        self._signals: Dict[int, Callback] = {}
        self._wake = -1

    @staticmethod
    def now() -> float:
        """Seconds on the clock that timers use; it goes on while the machine is suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def at(self, when: float, callback: Callback) -> Timer:
        """Call at that time (see `now`), or as soon after as may be."""
        timer = Timer(when, callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def after(self, seconds: float, callback: Callback) -> Timer:
        """Call in so many seconds."""
        return self.at(self.now() + seconds, callback)

    def soon(self, callback: Callback) -> Timer:
        """Call in the next round."""
        return self.at(0.0, callback)

    def on_read(self, fd: int, callback: Optional[Callback]) -> None:
        """Call whenever the descriptor can be read (or was hung up); None: no more."""
        self._set(self._readers, fd, callback)

    def on_write(self, fd: int, callback: Optional[Callback]) -> None:
        """Call whenever the descriptor can be written; None: no more."""
        self._set(self._writers, fd, callback)

    def forget(self, fd: int) -> None:
        """Watch the descriptor no more; to be called before it is closed."""
        self.on_read(fd, None)
        self.on_write(fd, None)

    def on_exit(self, pid: int, callback: Callable[[int], None]) -> None:
        """Call with the wait status when a child of this process has ended; it is reaped then."""
        self._children[pid] = callback
        self.on_signal(signal.SIGCHLD, self._reap)
        self.soon(self._reap)

    def on_signal(self, number: int, callback: Callback) -> None:
        """Call in the loop after a signal has come (main thread only)."""
        if self._wake < 0:
            self._wake, write = os.pipe()
            os.set_blocking(self._wake, False)
            os.set_blocking(write, False)
            signal.set_wakeup_fd(write, warn_on_full_buffer=False)
            self.on_read(self._wake, self._signalled)
        if number not in self._signals:
            signal.signal(number, lambda *_: None)
        self._signals[number] = callback

    def _signalled(self) -> None:
        try:
            numbers = set(os.read(self._wake, 4096))
        except BlockingIOError:
            return
        for number in numbers:
            if number in self._signals:
                self._call(self._signals[number])

    def _reap(self) -> None:
        for pid in list(self._children):
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                ended, status = pid, 0
            if ended:
                callback = self._children.pop(pid)
                self._call(lambda callback=callback, status=status: callback(status))  # type: ignore[misc]

    def _set(self, table: Dict[int, Callback], fd: int, callback: Optional[Callback]) -> None:
        before = self._events(fd)
        if callback is None:
            table.pop(fd, None)
        else:
            table[fd] = callback
        events = self._events(fd)
        if events == before:
            return
        if not before:
            self._selector.register(fd, events)
        elif not events:
            self._selector.unregister(fd)
        else:
            self._selector.modify(fd, events)

    def _events(self, fd: int) -> int:
        events = selectors.EVENT_READ if fd in self._readers else 0
        return events | (selectors.EVENT_WRITE if fd in self._writers else 0)

    def run(self) -> None:
        """Run until `stop`."""
        self._running = True
        while self._running:
            self.once()

    def idle(self) -> bool:
        """Whether no timer is set."""
        return all(timer.callback is None for _, _, timer in self._timers)

    def stop(self) -> None:
        """Let `run` return after the present round."""
        self._running = False

    def once(self, limit: Optional[float] = None) -> None:
        """One round: wait for something to do (`limit` seconds at most), do what is due."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        wait = limit
        if self._timers:
            until = max(0.0, self._timers[0][0] - self.now())
            wait = until if wait is None else min(until, wait)
        for key, events in self._selector.select(wait):
            if events & selectors.EVENT_READ and key.fd in self._readers:
                self._call(self._readers[key.fd])
            if events & selectors.EVENT_WRITE and key.fd in self._writers:
                self._call(self._writers[key.fd])
        now = self.now()
        due = []
        while self._timers and self._timers[0][0] <= now:
            due.append(heapq.heappop(self._timers)[2])
        for timer in due:
            callback, timer.callback = timer.callback, None
            if callback is not None:
                self._call(callback)

    def _call(self, callback: Callback) -> None:
        try:
            callback()
        except Exception as error:
            self._on_error(error)

    def close(self) -> None:
        """Free the selector."""
        self._selector.close()

"""Work that would block the agent, done in a forked child that answers with one JSON value.

The child keeps none of the agent's descriptors (an inherited lock or socket would outlive the
agent). If the agent dies, the child finishes its work unseen; so the work must be such that it may
be done again.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any, Callable, Optional, Set, Tuple

from .loop import Loop

Answer = Callable[[Any, Optional[str]], None]


LIVING: "Set[Child]" = set()
"""Children at work; an agent that ends in peace waits for them (what they build would be left half
built).
"""


def default_signals() -> None:
    """Undo the agent's signal dispositions in a forked child."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


class Child:
    """A forked child at work; `answer(value, None)` or `answer(None, error)` is called once, unless
    dropped.
    """

    def __init__(
        self, loop: Loop, work: Callable[[], Any], answer: Answer, keep: Tuple[int, ...] = ()
    ) -> None:
        """Fork. `keep`: descriptors that the child has, too. Raises OSError when that is not
        possible.
        """
        self._loop, self._answer = loop, answer
        self.status = 0
        """Its wait status, once it has answered."""
        LIVING.add(self)
        self._parts = b""
        self._fd, theirs = os.pipe()
        try:
            self.pid = os.fork()
        except OSError:
            LIVING.discard(self)
            os.close(self._fd)
            os.close(theirs)
            raise
        if self.pid == 0:
            _work(work, theirs, keep)
        os.close(theirs)
        os.set_blocking(self._fd, False)
        loop.on_read(self._fd, self._read)

    def _read(self) -> None:
        try:
            part = os.read(self._fd, 65536)
        except BlockingIOError:
            return
        if part:
            self._parts += part
            return
        self._close()
        try:
            value, error = json.loads(self._parts.decode("utf-8"))
        except ValueError:
            value, error = None, "it was killed"
        self._answer(value, error)

    def _close(self) -> None:
        self._loop.forget(self._fd)
        os.close(self._fd)
        self._fd = -1
        LIVING.discard(self)
        self.status = os.waitpid(self.pid, 0)[1]

    def drop(self) -> None:
        """End it at once; nobody is told."""
        if self._fd >= 0:
            os.kill(self.pid, signal.SIGKILL)
            self._close()


def _work(work: Callable[[], Any], out: int, keep: Tuple[int, ...]) -> None:
    try:
        default_signals()
        first = 3
        for kept in sorted((out, *keep)):
            os.closerange(first, kept)
            first = kept + 1
        os.closerange(first, 4096)
        try:
            value = [work(), None]
        except Exception as error:
            value = [None, "%s" % error if str(error) else type(error).__name__]
        body = json.dumps(value).encode("ascii")
        while body:
            body = body[os.write(out, body) :]
    finally:
        os._exit(0)

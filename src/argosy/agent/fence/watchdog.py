"""The watchdog: a small process that outlives the agent, and kills what runs once the fence is out.

It reads the record (record.py) a few times a second: what was suspended or frozen with it is dead
within a second after it goes on. It ends when there is no fence any more, and when the agent is
gone and nothing runs, in two looks. The agent starts it again when somebody killed it (keeper.py).
"""

from __future__ import annotations

import fcntl
import os
import time

from ..processes.locks import locked
from . import record
from .sweep import Sweep, start_of

TYPE_CHECKING = False  # as `typing` has it, which is not loaded here
if TYPE_CHECKING:
    from typing import Optional

POLL_S = 0.25
PASS_S, PASS_MOST_S = 0.02, 1.0
"""Between two passes of killing, at first and for what does not end on SIGKILL."""
AGAIN_S = 2.0
"""Between two looks whether anything came to life again, while the fence is out."""
IDLE_S = 1.0
"""Between two looks whether there is anything left to watch."""


def watch(home: str, shared: str) -> None:
    """Watch over one home until there is nothing to watch."""
    os.chdir(home)
    lock = os.open(record.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # another one watches
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d %d" % (os.getpid(), start_of(os.getpid())), 0)
    _hold_on()
    Watchdog(home, shared).run()


def _hold_on() -> None:
    """Be the last whom a full memory takes; only root may say so."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("-900")
    except OSError:
        pass


class Watchdog:
    """One life of the watchdog."""

    def __init__(self, home: str, shared: str) -> None:
        self._boot = record.boot_id()
        self._sweep = Sweep(home, shared, self._boot)
        self._known: Optional[record.Record] = None
        self._quiet_until = 0.0
        self._pause = PASS_S
        self._idle_at = record.boottime() + IDLE_S
        self._idle = False
        """Whether the last look found nothing left to watch."""

    def run(self) -> None:
        """Until there is nothing to watch."""
        while True:
            self._known = known = record.read(record.NAME) or self._known
            if known is None or known.boot != self._boot or known.seconds <= 0:
                return
            now = record.boottime()
            left = known.left(now)
            if left > 0:
                self._quiet_until, self._pause = 0.0, PASS_S
                time.sleep(min(POLL_S, left))
            elif now >= self._quiet_until:
                if self._sweep.once():
                    self._quiet_until, self._pause = now + AGAIN_S, PASS_S
                time.sleep(self._pause)
                self._pause = min(self._pause * 1.1, PASS_MOST_S)
            else:
                time.sleep(POLL_S)
            if now >= self._idle_at:
                self._idle_at = now + IDLE_S
                idle = not locked("agent.lock") and not self._sweep.living()
                if idle and self._idle:  # what a killed agent had begun may come to life yet
                    return
                self._idle = idle

"""The agent's side of the fence: it says when heartbeats were acknowledged, keeps the watchdog
alive, and ends its attempts itself when the fence runs out.

What makes it safe (docs/decisions/0009): the time that counts is when an acknowledged heartbeat was
*sent*; once the fence has run out, no acknowledgement undoes it, everything that was there ends,
and no control stream is taken until it has ended.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from typing import Any, Callable, Dict, List, Optional

from ..decide import Stage
from ..loop import Timer
from ..place import Place
from . import record
from .record import Record, boottime
from .sweep import start_of
from .told import fence

LOOK_EVERY = 1.0
AGAIN_AFTER = 0.2
"""A watchdog that has ended is started again after so long."""


class Keeper:
    """The fence of one agent's home. `seconds` is what holds now, 0 where there is none."""

    def __init__(self, place: Place, attempts: Dict[str, Any], command: List[str]) -> None:
        """`attempts`: those of the agent, by id. `command` is how a watchdog is started, without
        home and shared folder.
        """
        self.on_out: Callable[[], None] = lambda: None
        """Called when the fence has run out: no control stream is good any more."""
        self._place, self._attempts, self._command = place, attempts, command
        self._path = os.path.join(place.home, record.NAME)
        known = record.read(self._path)
        if known is None or known.boot != place.boot:
            known = Record(place.boot, 0.0, 0.0)
        self._record = known
        self._wanted = known.seconds
        self._out = False
        self._pid = 0
        self._timer: Optional[Timer] = None
        self._looking: Optional[Timer] = None

    @property
    def seconds(self) -> float:
        """How long after the sending of the newest acknowledged heartbeat everything ends."""
        return self._record.seconds

    def begin(self) -> None:
        """Go on where an earlier life of the agent was; after everything was adopted."""
        if self.seconds and not self.check():
            self._wait()
        self._look()

    # -- the server -----------------------------------------------------------------------------

    def open(self, wanted: float) -> bool:
        """A control stream is opened by a server that wants this fence (seconds, 0: none); False:
        not yet, since what has run out of it has not ended.

        A disk that does not take it leaves what was, which the agent then says.
        """
        if self.check():
            # Nothing runs here, so the time may begin anew.
            fresh = Record(self._place.boot, wanted, boottime())
            if not self._is_over() or not self._write(fresh):
                return False
            self._out = False
        elif not self.seconds or not wanted:
            self._write(Record(self._place.boot, wanted, boottime()))
        elif wanted > self.seconds:
            self._write(Record(self._place.boot, wanted, self._record.acked))
        self._wanted = wanted
        if self.seconds:
            self._wait()
        self._look()
        return True

    def acked(self, sent_at: float) -> None:
        """A heartbeat that was sent then has been acknowledged; too late, it counts no more."""
        if self.seconds and not self.check():
            # A shorter fence than before holds from here on, a longer one since it was asked for.
            before, seconds = self.seconds, self._wanted or self.seconds
            self._write(Record(self._place.boot, seconds, max(sent_at, self._record.acked)))
            if self.seconds < before:
                self._wait()

    def check(self) -> bool:
        """Whether the fence has run out; everything is ended then."""
        if self.seconds and not self._out and self._record.left(boottime()) <= 0:
            self._out = True
            sys.stderr.write("the fence of %g s has run out\n" % self.seconds)
            for attempt in self._attempts.values():
                if attempt.stage is not Stage.ENDED:
                    fence(attempt)
            self.on_out()
        return self._out

    def _all_ended(self) -> bool:
        return all(one.stage is Stage.ENDED for one in self._attempts.values())

    def _is_over(self) -> bool:
        """Whether what the fence ends has ended, and so has the watchdog, which may be just about
        to kill what comes next.
        """
        if self._all_ended() and self._watched():
            _end_watchdog(os.path.join(self._place.home, record.LOCK))
        return self._all_ended() and not self._watched()

    def _write(self, fresh: Record) -> bool:
        """Whether it stands there now; else what stood there goes on."""
        if not fresh.seconds and not self.seconds:
            return True  # no file where there never was a fence
        try:
            record.write(self._path, fresh)
        except OSError as error:
            sys.stderr.write("%s: %s\n" % (self._path, error.strerror))
            return False
        self._record = fresh
        return True

    def _wait(self) -> None:
        """Look again when the fence would run out."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._place.loop.at(self._record.acked + self._record.seconds, self._run_out)

    def _run_out(self) -> None:
        self._timer = None
        if self.seconds and not self.check():
            self._wait()

    # -- the watchdog ---------------------------------------------------------------------------

    def _look(self) -> None:
        """See that there is a watchdog, now and then."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if not self.seconds:
            return
        needed = not (self._out and self._all_ended())
        if needed and not self._pid and not self._watched():
            self._start()
        self._looking = self._place.loop.after(LOOK_EVERY, self._look)

    def _watched(self) -> bool:
        """Whether a watchdog lives; True also when that cannot be found out just now."""
        path = os.path.join(self._place.home, record.LOCK)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(fd)
        return False

    def _start(self) -> None:
        home, shared = self._place.home, self._place.shared
        every = set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
        env = {"PATH": os.defpath, "LANG": "C.UTF-8", "ARGOSY_MARK": "agent@" + home}
        null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)]
        try:
            self._pid = os.posix_spawn(
                self._command[0], [*self._command, home, shared], env, file_actions=null,
                setsid=True, setsigmask=[], setsigdef=sorted(every),
            )  # fmt: skip
        except OSError as error:
            sys.stderr.write("watchdog: %s\n" % error)
            return
        self._place.loop.on_exit(self._pid, self._ended)

    def _ended(self, _status: int) -> None:
        self._pid = 0
        if self._looking is not None:
            self._looking.cancel()
            self._looking = self._place.loop.after(AGAIN_AFTER, self._look)

    def close(self) -> None:
        """The agent ends: the watchdog goes on while anything runs."""
        if self.seconds and self._all_ended():
            _end_watchdog(os.path.join(self._place.home, record.LOCK))


def _end_watchdog(lock: str) -> None:
    """Kill the one that says in its lock who it is."""
    try:
        with open(lock, "rb") as file:
            pid, started = map(int, file.read().split())
        if start_of(pid) == started:
            os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError):
        pass  # it is just starting, or has ended

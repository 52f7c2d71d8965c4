"""Commands that are run inside a living attempt: `exec`, and probes that are commands.

A guest is a child of the agent in the attempt's namespaces, environment, working directory and
user, with a terminal or with pipes. It ends with the agent's end of it (SIGHUP, then SIGKILL), and
at the latest with the attempt: it bears its mark.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..child import default_signals
from ..loop import Loop
from ..net import enter
from ..records import dataclass

KILL_AFTER = 2.0
ENTERING_AGAIN = 0.005
"""Seconds until one asks again after `Entering`."""
Size = Tuple[int, int]
"""Rows and columns of a terminal."""


class Entering(Exception):
    """The program is just entering its namespaces: ask again in a moment."""


@dataclass(frozen=True)
class Inside:
    """Where a guest runs: beside the program `pid`, or (spec None) only in its folder and
    environment.
    """

    pid: int
    env: Dict[str, str]
    cwd: str
    """The attempt's working directory; when it is gone, the root stands in for it."""
    spec: Optional[Dict[str, Any]] = None


class Guest:
    """One command. `out` and `err` are to be read (err is -1 with a terminal), `into` is to be
    written.
    """

    def __init__(self, loop: Loop, inside: Inside, argv: List[str], size: Optional[Size]) -> None:
        """Fork and execute, on a terminal of that size; None: with pipes. Raises OSError."""
        self.status: Optional[int] = None
        self.on_end: Callable[[], None] = lambda: None
        self._loop = loop
        fds = _terminal() if size else _pipes()
        self.into, self.out, self.err = fds[:3]
        if size:  # before the command can ask
            self.resize(*size)
        ready, told = os.pipe()
        try:
            self.pid = os.fork()
        except OSError:
            for fd in {*fds, ready, told} - {-1}:
                os.close(fd)
            raise
        if self.pid == 0:
            _become(inside, argv, fds[3:], size is not None)
        for fd in {*fds[3:], told}:
            os.close(fd)
        os.read(ready, 1)  # ends when the child has its own session, and takes signals
        os.close(ready)
        for fd in {self.into, self.out, self.err} - {-1}:
            os.set_blocking(fd, False)
        loop.on_exit(self.pid, self._ended)

    def _ended(self, status: int) -> None:
        self.status = status
        self.on_end()

    def resize(self, rows: int, cols: int) -> None:
        """Tell the terminal its size."""
        fcntl.ioctl(self.out, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def signal(self, number: int) -> None:
        """Send a signal to the command and its group."""
        if self.status is None:
            try:
                os.killpg(self.pid, number)
            except (ProcessLookupError, PermissionError):
                pass

    def close_input(self) -> None:
        """End-of-file for the command."""
        if self.into >= 0 and self.into != self.out:
            self._loop.forget(self.into)
            os.close(self.into)
            self.into = -1

    def hang_up(self) -> None:
        """Nobody listens any more: SIGHUP and SIGCONT, then SIGKILL."""
        self.close()
        self.signal(signal.SIGHUP)
        self.signal(signal.SIGCONT)
        self._loop.after(KILL_AFTER, lambda: self.signal(signal.SIGKILL))

    def close(self) -> None:
        """Close this end of its descriptors."""
        for fd in {self.into, self.out, self.err} - {-1}:
            self._loop.forget(fd)
            os.close(fd)
        self.into = self.out = self.err = -1


def _pipes() -> List[int]:
    theirs_in, into = os.pipe()
    out, theirs_out = os.pipe()
    err, theirs_err = os.pipe()
    return [into, out, err, theirs_in, theirs_out, theirs_err]


def _terminal() -> List[int]:
    ours, theirs = os.openpty()
    return [ours, ours, -1, theirs, theirs, theirs]


def _become(inside: Inside, argv: List[str], fds: List[int], tty: bool) -> None:
    """The forked child: a session of its own, its descriptors, its place, its program."""
    try:
        default_signals()
        os.setsid()
        for number, fd in enumerate([os.dup(fd) for fd in fds]):
            os.dup2(fd, number)
        if tty:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.closerange(3, 4096)  # which tells the agent
        os.umask(0o022)
        cwd = inside.cwd if os.path.isdir(inside.cwd) else "/"
        if inside.spec is not None:
            enter.exec_into(inside.spec, inside.pid, argv, inside.env, cwd)
        os.chdir(cwd)
        os.execvpe(argv[0], argv, inside.env)
    except FileNotFoundError:
        os.write(2, ("argosy: %s: no such command\n" % argv[0]).encode("utf-8", "replace"))
    except Exception as error:
        os.write(2, ("argosy: cannot run %s: %s\n" % (argv[0], error)).encode("utf-8", "replace"))
        os._exit(126)
    finally:
        os._exit(127)

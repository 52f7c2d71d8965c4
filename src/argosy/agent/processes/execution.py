"""One execution: asked for, watched, adopted, stopped; and the agent's end of the launcher.

An execution is watched by a FIFO that its wrapper holds: immune to reuse of pids, the same for own
and adopted ones, on every Python. OVER means that no descendant is left. Everything here may be
repeated.
"""

from __future__ import annotations

import enum
import os
import signal
import socket
import sys
from typing import Callable, Dict, List, Optional

from ..loop import Loop, Timer
from . import folder as folders
from . import tree
from .folder import Claim, Exit, Request

ASK_AGAIN = 0.2
KILL_PASS, KILL_PASS_MAX = 0.01, 1.0
PLAIN_PASSES = 2
STUCK_AFTER = 5.0
LAUNCHER_NAME = "argosy-attempt"
"""What the launcher, wrappers, and programs that are not executed yet are called (`launcher.py`).
"""
FILE_TIME_STEP = 0.02
"""File times lag behind the clock by up to a tick of the kernel."""
EXIT_SETTLES = 0.003
LEFTOVER_GRACE = 2.0
"""Seconds that background processes get after their program has ended by itself."""


class Phase(enum.IntEnum):
    """How far an execution has come; it only grows."""

    ASKED = 0
    RUNNING = 1
    EXITED = 2
    """The program's status is in hand, descendants of it remain."""
    OVER = 3


class Launcher:
    """The agent's end of the launcher: started when first needed, started again when it dies."""

    def __init__(self, loop: Loop, argv: List[str], mark: str = "agent") -> None:
        """`mark` is what its environment says (ARGOSY_MARK), and so that of the wrappers."""
        self._loop, self._argv, self._mark = loop, argv, mark
        self._socket: Optional[socket.socket] = None
        self._pending: Dict[str, bool] = {}
        """Folders asked for and not yet seen claimed -> whether the datagram was sent."""
        self._reap = False
        self._delay = ASK_AGAIN / 2
        self.pid = 0

    def ask(self, folder: str) -> None:
        """Ask that the folder be executed; asked again until `settled`."""
        self._pending[folder] = False
        self._flush()

    def settled(self, folder: str) -> None:
        """The folder was seen claimed."""
        self._pending.pop(folder, None)
        self._delay = ASK_AGAIN / 2

    def reap(self) -> None:
        """Let the launcher collect wrappers that have ended."""
        if not self._reap:
            self._reap = True
            self._loop.soon(self._flush)

    def close(self) -> None:
        """Let the launcher end; what it started goes on."""
        if self._socket is not None:
            self._drop()

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        every = set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
        try:
            self.pid = os.posix_spawn(
                self._argv[0],
                self._argv,
                {"PATH": os.defpath, "LANG": "C.UTF-8", "ARGOSY_MARK": self._mark},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                    (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=sorted(every),
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._loop.on_read(ours.fileno(), self._answer)

    def _answer(self) -> None:
        assert self._socket is not None
        try:
            answer = self._socket.recv(16)
        except BlockingIOError:
            return
        except OSError:
            answer = b""
        if not answer:
            self._drop()
        if self._pending:
            for folder in self._pending:
                self._pending[folder] = False
            self._loop.after(self._delay, self._flush)
            self._delay = min(self._delay * 2, 2.0)

    def _drop(self) -> None:
        assert self._socket is not None
        self._loop.forget(self._socket.fileno())
        self._socket.close()
        self._socket = None
        pid, self.pid = self.pid, 0
        if pid:
            self._collect(pid)

    def _collect(self, pid: int, tries: int = 100) -> None:
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return
        if not ended and tries:
            self._loop.after(0.02, lambda: self._collect(pid, tries - 1))

    def _flush(self) -> None:
        """Send what is to be sent, as far as the socket takes it."""
        unsent = [folder for folder, sent in self._pending.items() if not sent]
        if self._socket is None:
            if not unsent:
                self._reap = False
                return
            try:
                self._start()
            except OSError as error:
                sys.stderr.write("launcher: %s\n" % error)
                self._loop.after(ASK_AGAIN, self._flush)
                return
        assert self._socket is not None
        fd = self._socket.fileno()
        try:
            if self._reap:
                self._socket.send(b".")
                self._reap = False
            for folder in unsent:
                self._socket.send(os.fsencode(folder))
                self._pending[folder] = True
        except BlockingIOError:
            self._loop.on_write(fd, self._flush)
            return
        except OSError:
            return  # it is gone: its end-of-file comes as an answer
        self._loop.on_write(fd, None)


class Execution:
    """One program in its folder. `on_change` is called when `phase` or `stuck` changed."""

    def __init__(
        self, loop: Loop, launcher: Launcher, folder: str, mark: str, keeps: bool = False
    ) -> None:
        """`keeps`: what the program leaves in the background lives on until `stop`."""
        self.folder, self.mark, self.keeps = folder, mark, keeps
        self.on_change: Callable[[], None] = lambda: None
        self.phase = Phase.ASKED
        self.exit: Optional[Exit] = None
        self.never = False
        """It was forbidden before it started."""
        self.stopped = False
        """Our signal came before the exit."""
        self.stuck: Optional[tree.Stuck] = None
        """A process that SIGKILL does not end."""
        self.claim: Optional[Claim] = None
        self.strays: Callable[[], List[int]] = lambda: []
        """What of it fell to others than the launcher when its wrapper was killed."""
        self._loop, self._launcher = loop, launcher
        self._fd = -1
        self._timer: Optional[Timer] = None
        self._kill_at: Optional[float] = None
        """When SIGKILL is due, None while nobody ends it."""
        self._killing_since: Optional[float] = None
        self._exit_seen: Optional[Timer] = None
        self._empty = 0
        self._pause = KILL_PASS
        self._passes = 0
        self._killed: List[int] = []

    def start(self, request: Request) -> None:
        """Start it unless it was started before. Raises OSError when the folder cannot be made."""
        folders.make(self.folder, request)
        self._watch()
        if not folders.claimed(self.folder):
            self._launcher.ask(self.folder)
        self._look()

    def adopt(self, boot: str, stopped_at: Optional[float] = None) -> bool:
        """Take over what another life of the agent asked for; False: it asked for nothing.

        `stopped_at` (seconds since the epoch): when that life sent SIGTERM, if it did.
        """
        if not folders.claimed(self.folder):
            if not os.path.exists(os.path.join(self.folder, "request")):
                return False
            self._watch()
            self._again(self._loop.now() + ASK_AGAIN, self._ask_again)
            return True
        ended_at = folders.status_time(self.folder)
        if stopped_at is not None and ended_at is not None:
            self.stopped = ended_at + FILE_TIME_STEP >= stopped_at
        claim = folders.read_claim(self.folder)
        if claim is not None and claim.wrapper.boot != boot:
            self.claim, self.exit = claim, folders.read_status(self.folder)
            self._over()
            return True
        self._watch()
        self._look()
        return True

    def stop(self, grace: float, signalled: bool = False) -> None:
        """SIGTERM to its group now, SIGKILL to all its descendants after the grace (seconds).

        Said again, only the earlier SIGKILL counts. `signalled`: an earlier life sent the SIGTERM.
        """
        if self.phase is Phase.OVER or self._killing_since is not None:
            return
        if self.phase is Phase.ASKED and self._forbid(grace):
            return
        due, first = self._loop.now() + grace, self._kill_at is None
        self._kill_at = due if self._kill_at is None else min(due, self._kill_at)
        if signalled:
            self.stopped = self.stopped or self.exit is None
            self._again(self._kill_at, self._kill)
        elif first:
            self._terminate()
        else:
            self._again(self._kill_at, self._kill)

    def _forbid(self, grace: float) -> bool:
        """Keep it from starting; False when it has started (or is starting just now)."""
        self._launcher.settled(self.folder)
        try:
            if not folders.forbid(self.folder):
                return False
        except (
            OSError
        ):  # disk full: it cannot start either, but the launcher may still have been asked
            self._again(self._loop.now() + 1.0, lambda: self.stop(grace))
            return True
        self.never = True
        self._over()
        return True

    def _terminate(self) -> None:
        """SIGTERM and SIGCONT, as soon as the claim says to whom."""
        if self.phase is Phase.OVER or self._kill_at is None:
            return
        if self.claim is None:
            self.claim = folders.read_claim(self.folder)
        if self.claim is None:  # being written just now
            self._again(self._loop.now() + KILL_PASS, self._terminate)
            return
        if self.exit is None and folders.read_status(self.folder) is None:
            self.stopped = True
        tree.send_group(self.claim.program, signal.SIGTERM)
        self.signal_all(signal.SIGCONT)
        self._again(self._kill_at, self._kill)

    def signal_all(self, number: int) -> int:
        """Send a signal to the program and all its descendants; how many got it."""
        return sum(tree.send(pid, number) for pid in self.processes())

    def processes(self) -> List[int]:
        """The living processes of the execution, without its wrapper."""
        if self.claim is None or self.phase is Phase.OVER or not tree.alive(self.claim.wrapper):
            return []
        return tree.descendants(self.claim.wrapper.pid)

    def _watch(self) -> None:
        self._unwatch()
        self._fd = folders.open_alive(self.folder)
        if self._fd >= 0:
            self._loop.on_read(self._fd, self._woken)

    def _unwatch(self) -> None:
        if self._fd >= 0:
            self._loop.forget(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _woken(self) -> None:
        """The FIFO said something: a start, a status, or that nobody holds it (which it says again
        and again).
        """
        if not folders.held(self._fd):
            self._unwatch()
        self._look()

    def _look(self) -> None:
        """See how far it has come. What is read after the hang-up is final: the wrapper writes no
        more.
        """
        if self.phase is Phase.OVER:
            return
        # A wrapper holds the FIFO before it claims: looked at the other way round, one that claims
        # between the two looks would pass for gone.
        claimed = folders.claimed(self.folder)
        held = folders.held(self._fd)
        if claimed and self.claim is None:
            self.claim = folders.read_claim(self.folder)
        before = self.phase
        if self.exit is None:
            self.exit = folders.read_status(self.folder)
        if self.claim is not None and self.phase is Phase.ASKED:
            self._launcher.settled(self.folder)
            self.phase = Phase.RUNNING
        if held and self.exit is not None and self.phase < Phase.EXITED:
            if self._exit_seen is None:  # mostly the wrapper ends now: one change instead of two
                self._exit_seen = self._loop.after(EXIT_SETTLES, self._look)
            elif self._exit_seen.callback is None:
                self.phase = Phase.EXITED
                self._leftovers()
        elif not held and claimed:
            self._hung_up()
            return
        elif not claimed and self._timer is None:
            self._again(self._loop.now() + ASK_AGAIN, self._ask_again)
        if self.phase is not before:
            self.on_change()

    def _ask_again(self) -> None:
        """A wrapper came and went without a claim, or none came yet."""
        self._timer = None
        if self.phase is Phase.ASKED and not folders.claimed(self.folder):
            self._watch()
            self._launcher.ask(self.folder)
        self._look()

    def _leftovers(self) -> None:
        """The program ended and left processes behind: they get their chance, a short one if nobody
        stopped it.
        """
        if self._kill_at is not None or self.keeps:
            return
        self._kill_at = self._loop.now() + LEFTOVER_GRACE
        self.signal_all(signal.SIGTERM)
        self.signal_all(signal.SIGCONT)
        self._again(self._kill_at, self._kill)

    def _hung_up(self) -> None:
        """No wrapper holds it any more: over, or the wrapper was killed and the rest is to be
        ended.
        """
        self._unwatch()
        self._launcher.reap()
        if self.exit is not None and folders.ended_whole(self.folder):
            self._over()
        elif self.claim is None:
            self.never = folders.forbidden(self.folder)
            self._over()
        elif self._killing_since is None:
            self._kill()

    def _kill(self) -> None:
        """One pass of killing; passes go on until nothing is left."""
        if self.phase is Phase.OVER:
            return
        if self._killing_since is None:
            self._killing_since = self._loop.now()
        assert self.claim is not None
        if self._passes < PLAIN_PASSES:
            pids = self._rest()
        else:  # it multiplies faster than it is killed
            pids = tree.freeze(self._rest)
        tree.kill_all(pids)
        self._passes += 1
        self._empty = 0 if pids else self._empty + 1
        if (
            self._fd < 0 and self._empty >= 2
        ):  # the second look sees what was being reparented in the first
            self._over()
            return
        if self._loop.now() - self._killing_since > STUCK_AFTER:
            stuck = tree.explain(pids[0]) if pids else None
            if stuck != self.stuck:
                self.stuck = stuck
                self.on_change()
        same, self._killed = pids == self._killed, pids
        self._pause = min(self._pause * 1.5, KILL_PASS_MAX) if same else KILL_PASS
        self._again(self._loop.now() + self._pause, self._kill)

    def _rest(self) -> List[int]:
        """What is to be killed: the wrapper's descendants, or with the wrapper gone all that can be
        found.
        """
        assert self.claim is not None
        if self._fd < 0 or not tree.alive(self.claim.wrapper):  # its pid may be another's now
            return (
                tree.rest_of(self.claim, "ARGOSY_MARK=" + self.mark)
                + self._orphans()
                + self.strays()
            )
        tree.send(self.claim.wrapper.pid, signal.SIGCONT)  # a wrapper that somebody froze
        return tree.descendants(self.claim.wrapper.pid)

    def _orphans(self) -> List[int]:
        """What fell to the launcher when the wrapper died, whatever its session and environment."""
        if not self._launcher.pid:
            return []
        found = []
        for pid in tree.children(self._launcher.pid):
            if tree.command_name(pid) != LAUNCHER_NAME and tree.state_of(pid) not in ("", "Z"):
                found.append(pid)
        return found

    def _over(self) -> None:
        self.close()
        self._launcher.settled(self.folder)
        self._launcher.reap()
        self.phase = Phase.OVER
        self.stuck = None
        self.on_change()

    def _again(self, when: float, callback: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.at(when, callback)

    def close(self) -> None:
        """Stop watching; the execution goes on."""
        self._unwatch()
        for timer in (self._timer, self._exit_seen):
            if timer is not None:
                timer.cancel()
        self._timer = self._exit_seen = None

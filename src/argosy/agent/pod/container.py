"""An agent that is alone in a container: PID 1, which keeps it alive, and what programs find there.

The container is the node: programs have its environment, its network and its names. So nothing is
tried or isolated; the hosts file is the container's own, rewritten where this user may write it,
and else the names are those of the cluster's DNS.

PID 1 reaps what falls to it and starts the agent again when it ends. The agent is a fork of PID 1,
called COMMAND: one interpreter less to start. PID 1 itself has imported next to nothing. SIGTERM
means that the container is to end: the agent is told (SIGUSR1, until it has heard), ends what runs,
each with its grace, and PID 1 ends when it has.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any, Callable, Dict, List, NoReturn, Optional

FILE = "container.json"
HOSTS = "/etc/hosts"
LEAVE = signal.SIGUSR1
OF_PID_1 = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
"""What it waits for; LEAVE it ignores."""
NOT_OURS = ("ARGOSY_", "SKYPILOT_", "KUBERNETES_")
OF_A_PROCESS = ("PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME", "HOME", "USER", "LOGNAME")
DIAL = "ARGOSY_DIAL"
"""The variable that says where the server is, if agents are to dial it (dial.py)."""
PAUSE_FIRST, PAUSE_MOST = 0.05, 5.0
"""Seconds until the agent is started again; doubles while it does not live that long."""
TELL_AGAIN = 0.1
"""Seconds until an agent, which may just be starting, is told again that it is to leave."""
LEAVE_TRIES = 3
"""So many agents may end otherwise, before the container ends with whatever still runs."""
COMMAND = "argosy-agent"
"""What /proc calls the agent, whose command line is that of PID 1."""
EXIT_BROKEN = 70
EXIT_LEFT = 9
"""With it the agent ends after it has ended all that ran, because the container is to end."""


def image_environment(home: str) -> Optional[Dict[str, str]]:
    """What the image sets for all its programs; None: this agent is in no container of its own."""
    try:
        with open(os.path.join(home, FILE), encoding="utf-8") as file:
            found: Dict[str, str] = json.load(file)["env"]
            return found
    except (OSError, ValueError, KeyError):
        return None


def network(home: str) -> Optional[Dict[str, Any]]:
    """The answer of a trial of the network (`net.trial`), without one; None: in no container."""
    if image_environment(home) is None:
        return None
    names = "container" if os.access(HOSTS, os.W_OK) else "dns"
    return {
        "mode": "host", "names": names, "pid_namespaces": False, "way_out": False,
        "failed_step": "", "reason": "", "hint": "",
    }  # fmt: skip


def serve(home: str, agent: Callable[[], int], dialer: Callable[[], int]) -> int:
    """Be PID 1 of the container; `agent` is what the agent does, and `dialer` what lets the server
    in where agents dial. Ends with 0 after a SIGTERM.
    """
    os.makedirs(home, mode=0o700, exist_ok=True)
    _write(os.path.join(home, FILE), json.dumps({"env": _environment()}))
    kept = [_Kept(COMMAND, agent)]
    if os.environ.get(DIAL):
        kept.append(_Kept("argosy-dialer", dialer))
    return _Keeper(kept).run()


def _environment() -> Dict[str, str]:
    """As this process was given it: Python adds a variable for its locale."""
    with open("/proc/self/environ", "rb") as file:
        given = [os.fsdecode(one).partition("=") for one in file.read().split(b"\0")]
    return {
        name: value
        for name, equals, value in given
        if equals and name not in OF_A_PROCESS and not name.startswith(NOT_OURS)
    }


def _write(path: str, text: str) -> None:
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(path + ".part", path)


class _Kept:
    """One process that is started again whenever it ends."""

    def __init__(self, name: str, work: Callable[[], int]) -> None:
        self.name, self.pid = name, 0
        self._work = work
        self._began, self._pause = 0.0, 0.0

    @property
    def due(self) -> float:
        """When it is to be started, as the monotonic clock has it."""
        return self._began + self._pause

    def start(self) -> None:
        """Start it; where that is not possible now, it is due later."""
        self._began = time.monotonic()
        try:
            self.pid = os.fork()
        except OSError as error:
            self._fell("could not be started: %s" % error)
            return
        if self.pid == 0:
            _become(self.name, self._work)

    def ended(self, code: int) -> None:
        """It has ended."""
        self.pid = 0
        self._fell("" if code == EXIT_LEFT else "ended with %d" % code)

    def _fell(self, why: str) -> None:
        lived = time.monotonic() - self._began
        self._pause = PAUSE_FIRST if lived > PAUSE_MOST else min(self._pause * 2, PAUSE_MOST)
        self._pause = max(self._pause, PAUSE_FIRST)
        if why:
            sys.stderr.write("the %s %s: started again\n" % (self.name, why))
            sys.stderr.flush()


def _become(name: str, work: Callable[[], int]) -> NoReturn:
    """What the child of PID 1 does: no signal is blocked or handled as there, but LEAVE ignored."""
    code = EXIT_BROKEN
    try:
        os.setsid()
        for number in OF_PID_1:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        with open("/proc/self/comm", "w") as file:
            file.write(name)
        code = work()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class _Keeper:
    """Keeps an agent alive, which is the first of `kept`, and what serves it."""

    def __init__(self, kept: List[_Kept]) -> None:
        self._kept, self._leaving = kept, False

    def run(self) -> int:
        """Until the agent has left."""
        signal.pthread_sigmask(signal.SIG_BLOCK, OF_PID_1)
        for number in OF_PID_1:  # PID 1 is sent only what it has a handler for
            signal.signal(number, lambda *_: None)
        signal.signal(LEAVE, signal.SIG_IGN)  # so does an agent that is just starting
        agent, tries = self._kept[0], LEAVE_TRIES
        while tries:
            due = self._start_due()
            found = signal.sigtimedwait(OF_PID_1, TELL_AGAIN if self._leaving else due)
            if found is not None and found.si_signo != signal.SIGCHLD:
                self._leaving = True
            if self._leaving and agent.pid:
                os.kill(agent.pid, LEAVE)
            status = self._reap()
            if status == EXIT_LEFT:
                break
            tries -= self._leaving and status is not None
        for one in self._kept:
            if one.pid:
                os.kill(one.pid, signal.SIGKILL)
        return 0

    def _start_due(self) -> float:
        """Start what is to be started; seconds until the next is."""
        now, wait = time.monotonic(), 3600.0
        for one in self._kept:
            if not one.pid and one.due <= now:
                one.start()
            elif not one.pid:
                wait = min(wait, one.due - now)
        return wait

    def _reap(self) -> Optional[int]:
        """Collect whatever has ended; the exit code of the agent, if it has."""
        code = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return code
            if not pid:
                return code
            for one in self._kept:
                if one.pid == pid:
                    one.ended(_exit_code(status))
                    if one is self._kept[0]:
                        code = _exit_code(status)


def _exit_code(status: int) -> int:
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)

"""Run a function in a forked child that has joined some namespaces, and bring its result back.

Namespaces belong to a process, and a user namespace can be joined only by a single-threaded one:
so whatever has to happen inside happens in a child. A child never returns into the caller's code.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional

from ...records import dataclass
from ..network import Holder, NetworkError
from . import kernel
from .hints import hint

KIND = {
    "user": kernel.CLONE_NEWUSER,
    "mnt": kernel.CLONE_NEWNS,
    "net": kernel.CLONE_NEWNET,
    "pid": kernel.CLONE_NEWPID,
    "uts": kernel.CLONE_NEWUTS,
}


@dataclass(frozen=True)
class Child:
    """A child at work; `result` must be called once."""

    pid: int
    fd: int

    def result(self) -> Any:
        """Wait for the function's value; raises NetworkError as the child met it."""
        return read_answer(self.fd, self.pid)


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Name the step in which an OSError happens."""
    try:
        yield
    except OSError as error:
        raise failed(name, error) from error


def failed(name: str, error: OSError) -> NetworkError:
    """The error of a step, with what can be done about it."""
    number = error.errno or 0
    code = errno.errorcode.get(number, "")
    where = " (%s)" % error.filename if error.filename else ""
    reason = "%s %s%s" % (code, error.strerror or error, where)
    return NetworkError(name, reason.strip(), hint(name, number))


def start(function: Callable[[], Any]) -> Child:
    """Begin `function` in a child; its value must be JSON."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return Child(pid, reader)
    try:
        os.close(reader)
        plain_signals()
        os.write(writer, answer(function).encode())
    finally:
        os._exit(0)


def answer(function: Callable[[], Any]) -> str:
    """The function's value or error as one JSON text."""
    out: Dict[str, Any]
    try:
        out = {"value": function()}
    except NetworkError as error:
        out = {"step": error.step, "reason": error.reason, "hint": error.hint}
    except Exception as error:
        out = {"step": "child", "reason": "%s: %s" % (type(error).__name__, error), "hint": ""}
    return json.dumps(out)


def read_answer(fd: int, pid: Optional[int]) -> Any:
    """Read an `answer` to its end, reap `pid`, and give the value or raise the error."""
    raw = b""
    try:
        while True:
            more = os.read(fd, 65536)
            if not more:
                break
            raw += more
    finally:
        os.close(fd)
        if pid is not None:
            reap(pid)
    if not raw:
        raise NetworkError("child", "the child process ended without an answer")
    out = json.loads(raw.splitlines()[-1])  # an error may follow an early answer
    if "step" in out:
        raise NetworkError(out["step"], out["reason"], out["hint"])
    return out["value"]


def reap(pid: int) -> None:
    """Wait for a child; somebody else may have done so."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def call(function: Callable[[], Any]) -> Any:
    """`start` and `result` in one."""
    return start(function).result()


def join(holder: Holder, *names: str) -> None:
    """Join the holder's user namespace, if it has another, and then those named.

    For a single-threaded child. The PID namespace is joined by the children that it then forks.
    """
    fds = [(os.open("/proc/%d/ns/%s" % (holder.pid, n), os.O_RDONLY), KIND[n]) for n in names]
    own = "/proc/self/ns/user"
    other = "/proc/%d/ns/user" % holder.pid
    if os.readlink(own) != os.readlink(other):
        fds.insert(0, (os.open(other, os.O_RDONLY), KIND["user"]))
    if kernel.start_time(holder.pid) != holder.start:
        raise ProcessLookupError(errno.ESRCH, "the group's holder is gone", str(holder.pid))
    for fd, kind in fds:
        kernel.setns(fd, kind)
        os.close(fd)


def plain_signals() -> None:
    """Undo what the parent set, for a child that goes on for a while or executes something."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def execute(
    argv: List[str], keep: Dict[int, int], env: Optional[Dict[str, str]] = None
) -> NoReturn:
    """Become `argv` with the descriptors `keep` (number there -> number here) and no others.

    What of 0, 1 and 2 is not kept is /dev/null.
    """
    null = os.open("/dev/null", os.O_RDWR)
    wanted = {0: null, 1: null, 2: null, **keep}
    # move all out of the way first, so that no number is overwritten before it is copied
    high = {there: fcntl_dup(here) for there, here in wanted.items()}
    for there, here in high.items():
        os.dup2(here, there, inheritable=True)
    top = max(wanted) + 1
    for fd in range(3, top):
        if fd not in wanted:
            with contextlib.suppress(OSError):
                os.close(fd)
    os.closerange(top, max(4096, max(high.values()) + 1))
    os.execve(argv[0], argv, clean_environment() if env is None else env)


def fcntl_dup(fd: int) -> int:
    """A copy of `fd` with a number of 100 or more."""
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100)


def clean_environment() -> Dict[str, str]:
    """What our own long-lived processes get: nothing of the shell that started the agent."""
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

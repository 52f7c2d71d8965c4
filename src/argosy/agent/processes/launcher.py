"""The launcher: a small process that forks one frugal wrapper per execution, and nothing else.

Started once per agent, with a SEQPACKET socket as descriptor 0. A datagram is one of

* ``FOLDER``: start what the folder asks for (see `folder.py`), once: the wrapper claims it by
  a rename before it executes anything, so it may be sent any number of times;
* ``b"."``: reap wrappers that have ended.

It answers ``b"!"`` when it could not fork; the agent asks again. At end-of-file (the agent is gone)
it ends; its wrappers go on, each the subreaper of its program, and write the exit status.

Memory is kept small by three habits: what the launcher touches between two forks stays private in
every wrapper, so it reads only a path; the program's child does all the work (it goes at exec);
names are bound once instead of being looked up. Hence the unusual look of this file.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import ctypes
import gc
import marshal
import os

from .layout import JOIN_BYTES, STATUS_BYTES

TYPE_CHECKING = False  # as `typing` has it, which is not loaded here (launch.py)
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    Join = Callable[[int], None]
    Enter = Callable[[Dict[str, Any]], None]

EXIT_TAKEN = 75
EXIT_BROKEN = 71

# `PyDLL` and its fork: Python's own prepares for threads, of which there are none, and touches
# forty kilobytes of every wrapper. Without use_errno: that costs as much again.
_libc = ctypes.PyDLL(None)
_prctl, _fork = _libc.prctl, _libc.fork
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_read, _wait, _open, _exit = os.read, os.wait, os.open, os._exit
_pread, _rename, _unlink, _close = os.pread, os.rename, os.unlink, os.close
_set_signal = _signal.signal
_RDWR = os.O_RDWR
_Taken, _Childless = FileNotFoundError, ChildProcessError
# Of the module below `signal`: that one makes enums, and would do so in every program's child.
_IGNORED = (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM)
_CHANGED = (*_IGNORED, _signal.SIGPIPE, _signal.SIGXFSZ)
"""What is not as the agent's spawn left it, which sets all to their defaults and blocks none: by
`run`, and by Python itself."""


def _write_claim(claim: int) -> None:
    """Say on the claim who runs: boot id, the wrapper's stat line, the program's stat line.

    From /proc, which is the host's also when the wrapper lives in a PID namespace (os.getpid() is
    not).
    """

    def text(name: str) -> bytes:
        part = os.open("/proc/" + name, os.O_RDONLY)
        return os.read(part, 4096)

    own = text("self/stat")
    parent = own[own.rindex(b")") :].split()[2].decode()
    whole = text("sys/kernel/random/boot_id") + text(parent + "/stat") + own
    os.pwrite(claim, whole, STATUS_BYTES)  # at once: who reads it sees all or nothing


def _program(folder: bytes, claim: int, alive: int, enter: Optional[Enter]) -> None:
    """Become the user's program; whatever this dirties goes at exec.

    Until then it holds the FIFO too: one that is not held has a complete claim, or never started.
    """
    try:
        os.setsid()  # signals first: who reads the claim may send one
        for number in _CHANGED:
            _set_signal(number, _signal.SIG_DFL)
        os.chdir(folder)
        _write_claim(claim)
        os.write(alive, b"+")
        with open("request", "rb") as file:
            file.seek(JOIN_BYTES)
            cwd, env, argv, output, limits, spec = marshal.load(file)
        out = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        if spec is not None and enter is not None:
            enter(spec)
        os.closerange(3, 4096)
        os.umask(0o022)
        if limits:
            import resource

            for name, value in limits.items():
                resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))
        os.chdir(cwd)
        os.execve(argv[0], argv, env)
    except Exception as error:
        text = b"cannot start: %a\n" % error
        os.chdir(folder)  # first the file: that it is there says it, where the disk takes no text
        os.write(os.open("failed", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), text)
        os.write(2, b"argosy: " + text)
    finally:
        _exit(127)


def _tell_status(folder: bytes, alive: int, text: bytes) -> None:
    """Write the exit status, into blocks that the agent reserved: a full disk cannot lose it."""
    os.chdir(folder)
    file = os.open("claim", os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(file, (text + b".").ljust(STATUS_BYTES - 1) + b"\n")
    os.close(file)
    os.write(alive, b".")


def _ended(folder: bytes, status: int, alive: int) -> None:
    if status & 127:
        _tell_status(folder, alive, b"signal %d" % (status & 127))
    else:
        _tell_status(folder, alive, b"exit %d" % (status >> 8))


def _errno() -> int:
    """Of the call of `_libc` before, for which the interpreter let nobody else run."""
    location = _libc.__errno_location
    location.restype = ctypes.c_void_p
    return ctypes.c_int.from_address(location()).value


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except _Childless:
        pass


def _wrap(folder: bytes, join: Optional[Join], enter: Optional[Enter]) -> None:
    """The wrapper, from its fork to its end: as little Python as can be."""
    alive = _open(folder + b"/alive", _RDWR)  # never blocks, no SIGPIPE; close-on-exec
    if join is not None:
        request = _open(folder + b"/request", 0)
        if _pread(request, 1, 0) == b"/":
            try:
                join(request)  # from here on this is another process
            except OSError as error:
                _rename(folder + b"/unclaimed", folder + b"/claim")
                _tell_status(folder, alive, b"refused %d" % (error.errno or 0))
                _exit(EXIT_BROKEN)
        _close(request)
    try:  # after alive: a claim that is not held is over
        _rename(folder + b"/unclaimed", folder + b"/claim")
    except _Taken:
        _exit(EXIT_TAKEN)
    claim = _open(folder + b"/claim", _RDWR)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # kept over exec, not inherited by fork
    program = _fork()
    if program < 0:
        _tell_status(folder, alive, b"refused %d" % _errno())
        _exit(EXIT_BROKEN)
    if program == 0:
        _program(folder, claim, alive, enter)
    _close(0)
    try:
        while True:
            ended, status = _wait()
            if ended == program:
                _ended(folder, status, alive)
    except _Childless:
        _unlink("alive")  # no descendant is left; a wrapper that was killed leaves the FIFO behind
        _exit(0)


def _loop(join: Optional[Join], enter: Optional[Enter]) -> None:
    folder = _read(0, 4096)
    while folder:
        if folder == b".":
            _reap()
        else:
            wrapper = _fork()
            if wrapper < 0:
                raise OSError(_errno(), "fork")
            if wrapper == 0:
                try:
                    _wrap(folder, join, enter)
                finally:
                    _exit(EXIT_BROKEN)  # a wrapper that failed must never become a second launcher
        folder = _read(0, 4096)


def run(join: Optional[Join] = None, enter: Optional[Enter] = None) -> None:
    """Serve descriptor 0 until its end-of-file.

    `join(fd)` is called in a wrapper whose request begins with what it reads from there; it moves
    the wrapper into a group's PID namespace (it may fork, end the caller and return in the
    child). `enter(spec)` is called in the child that becomes the program, when the
    request has a spec.
    """
    for number in _IGNORED:  # wrappers inherit it; _program() undoes it
        _set_signal(number, _signal.SIG_IGN)
    _prctl(_PR_SET_NAME, b"argosy-attempt", 0, 0, 0)  # for ps
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # the orphans of a killed wrapper stay in sight
    gc.collect()
    gc.disable()
    gc.freeze()
    while True:
        try:
            _loop(join, enter)
            return
        except OSError:
            os.write(0, b"!")

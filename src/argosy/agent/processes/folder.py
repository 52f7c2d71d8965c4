"""The folder of one execution: what is asked, who claimed it, how it ended. Any agent can read it.

    request   cwd, environment, argv, output file, limits, namespaces to enter (marshal)
    join      the PID namespace to live in, and whether in a namespace of its own below it
              (`net.enter.record`); only where there is one
    alive     FIFO that the wrapper holds open as long as any process of the execution lives; it
              removes it when none is left, so one that is there and not held means that the wrapper
              was killed
    claim     made by exclusive create: whoever makes it decides that this starts (or never will)
    failed    why it could not be executed (it then ends with 127), only if so
    status    exit status, written by rename over `status.tmp`, whose blocks the agent reserved
    output    where standard output and error go; it may lie elsewhere, and executions may share it

A folder is used for one execution, ever. A process is known by boot id + pid + start time.
"""

from __future__ import annotations

import errno
import marshal
import os
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from ..net.enter import record
from .launcher import STATUS_BYTES

NEVER = b"never\n"


@dataclass(frozen=True)
class Identity:
    """One process, told apart from any other that ever has its pid."""

    boot: str
    pid: int
    started: int
    """Clock ticks since boot, field 22 of /proc/PID/stat."""


@dataclass(frozen=True)
class Claim:
    """Who runs the execution: the wrapper and the program (which leads its session and group)."""

    wrapper: Identity
    program: Identity


@dataclass(frozen=True)
class Exit:
    """How a program ended: `exit CODE`, `signal NUMBER`, or `refused ERRNO` (never started)."""

    kind: str
    number: int

    @property
    def code(self) -> Optional[int]:
        """The exit code, None when there is none."""
        return self.number if self.kind == "exit" else None

    @property
    def signal(self) -> Optional[int]:
        """The signal that ended it, None when none did."""
        return self.number if self.kind == "signal" else None


@dataclass(frozen=True)
class Request:
    """What to execute. `argv[0]` is a path; `env` is the whole environment; limits are RLIMIT
    names.
    """

    cwd: str
    env: Dict[str, str]
    argv: List[str]
    output: str
    limits: Optional[Dict[str, int]] = None
    spec: Optional[Dict[str, Any]] = None
    """What `net` gave for `enter` and `join`, None in the machine's own namespaces."""


def boot_id() -> str:
    """The id of this start of the kernel."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def stat_fields(text: bytes) -> Tuple[int, List[bytes]]:
    """(pid, fields from `state` on) of a line of /proc/PID/stat; the command may hold any byte."""
    pid = int(text[: text.index(b" ")])
    return pid, text[text.rindex(b")") + 2 :].split()


def identity_of(pid: int, boot: str) -> Optional[Identity]:
    """The identity of a living process, None when there is none with that pid."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = stat_fields(file.read())[1]
    except OSError:
        return None
    return Identity(boot, pid, int(fields[19]))


def make(folder: str, request: Request) -> None:
    """Create the folder with all that the wrapper needs. Raises OSError; harmless to repeat.

    What exists is left as it is: a request never changes once it was written.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if claimed(folder):
        return
    _reserve(os.path.join(folder, "status.tmp"))
    join = request.spec.get("join") if request.spec else None
    if join is not None:
        holder, _, own = join
        write_once(os.path.join(folder, "join"), record(holder, own))
    env = {_bytes(name): _bytes(value) for name, value in request.env.items()}
    argv = [_bytes(part) for part in request.argv]
    cwd, output = os.fsencode(request.cwd), os.fsencode(request.output)
    body = marshal.dumps((cwd, env, argv, output, request.limits, request.spec))
    write_once(os.path.join(folder, "request"), body)
    try:
        os.mkfifo(os.path.join(folder, "alive"), 0o600)
    except FileExistsError:
        pass


def _bytes(text: str) -> bytes:
    """Text as the program is to see it, whatever the locale of the agent is."""
    return text.encode("utf-8", "surrogateescape")


def _reserve(path: str) -> None:
    """Make the file's blocks exist, so that a later overwrite needs no space."""
    with open(path, "wb") as file:
        file.write(b" " * STATUS_BYTES)


def write_once(path: str, body: bytes) -> None:
    """Write a file whole or not at all, and never again (an existing one is kept)."""
    if os.path.exists(path):
        return
    part = path + ".part"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(body)
    os.rename(part, path)


def forbid(folder: str) -> bool:
    """Make sure that the execution never starts; False when it did already."""
    try:
        fd = os.open(os.path.join(folder, "claim"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        with open(os.path.join(folder, "claim"), "rb") as file:
            return file.read() == NEVER
    except OSError as error:
        if error.errno == errno.ENOENT:
            return True  # no folder: nothing can start in it
        raise
    try:
        os.write(fd, NEVER)
    finally:
        os.close(fd)
    return True


def claimed(folder: str) -> bool:
    """Whether anybody has claimed the execution (a forbidden one is claimed too)."""
    return os.path.exists(os.path.join(folder, "claim"))


def forbidden(folder: str) -> bool:
    """Whether the agent claimed it so that it never starts."""
    try:
        with open(os.path.join(folder, "claim"), "rb") as file:
            return file.read() == NEVER
    except OSError:
        return False


def read_claim(folder: str) -> Optional[Claim]:
    """The claim, None while nobody made or completed it."""
    try:
        with open(os.path.join(folder, "claim"), "rb") as file:
            lines = file.read().splitlines()
        boot = lines[0].decode("ascii")
        pids = [stat_fields(line) for line in lines[1:3]]
        wrapper, program = (Identity(boot, pid, int(fields[19])) for pid, fields in pids)
    except (OSError, ValueError, IndexError):
        return None
    return Claim(wrapper, program)


def read_status(folder: str) -> Optional[Exit]:
    """The exit status, None while there is none."""
    try:
        with open(os.path.join(folder, "status"), "rb") as file:
            kind, number = file.read().split()
        return Exit(kind.decode("ascii"), int(number))
    except (OSError, ValueError):
        return None


def status_time(folder: str) -> Optional[float]:
    """When the exit status was written (seconds since the epoch), None while there is none."""
    try:
        return os.stat(os.path.join(folder, "status")).st_mtime
    except OSError:
        return None


def read_environment(folder: str) -> Dict[str, str]:
    """The environment that was asked for; {} when there is no request (any more)."""
    try:
        with open(os.path.join(folder, "request"), "rb") as file:
            env = marshal.load(file)[1]
    except (OSError, ValueError, EOFError):
        return {}
    return {
        k.decode("utf-8", "surrogateescape"): v.decode("utf-8", "surrogateescape")
        for k, v in env.items()
    }


def read_failure(folder: str) -> str:
    """Why the program could not be executed, "" when it could."""
    try:
        with open(os.path.join(folder, "failed"), "rb") as file:
            text = file.read(4096).decode("utf-8", "replace").strip()
        return text or "cannot start: the disk has no room for the reason"
    except OSError:
        return ""


def open_alive(folder: str) -> int:
    """A descriptor to watch the FIFO with, to be read with `held`; -1 when there is no FIFO (any
    more).
    """
    try:
        return os.open(os.path.join(folder, "alive"), os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return -1


def ended_whole(folder: str) -> bool:
    """Whether the wrapper saw the last descendant end."""
    return not os.path.exists(os.path.join(folder, "alive"))


def held(fd: int) -> bool:
    """Whether a wrapper holds the FIFO; swallows the byte that says that a status has come."""
    while fd >= 0:
        try:
            if not os.read(fd, 64):
                return False
        except BlockingIOError:
            return True
    return False

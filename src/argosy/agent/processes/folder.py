"""The folder of one execution: what is asked, who claimed it, how it ended. Any agent can read it.

    request    the PID namespace to live in, if any (JOIN_BYTES, `join_record`); cwd, environment,
               argv, output file, limits, other namespaces to enter (marshal)
    unclaimed  what becomes `claim` or `never`, by rename: whoever does it decides that this starts
               or never will
    claim      the exit status, a line that is blank at first (STATUS_BYTES), then who runs; the
               blocks were reserved
    never      it was forbidden before it started
    alive      FIFO that the wrapper holds open as long as any process of the execution lives; it
               removes it when none is left, so one that is there and not held means that the
               wrapper was killed
    failed     why it could not be executed (it then ends with 127), only if so

Standard output and error go to a file that may lie elsewhere and be shared. A folder is used for
one execution, ever; other files may lie in it. A process is known by boot id + pid + start time.
As few files as can be: making and removing them is most of what an execution costs an agent.
"""

from __future__ import annotations

import marshal
import os
from typing import Any, Dict, List, Optional, Tuple

from ..records import dataclass
from .layout import JOIN_BYTES, STATUS_BYTES, join_record


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
    path = os.path.join(folder, "request")
    if claimed(folder):
        return
    if not os.path.exists(path):  # nobody was asked yet, so nobody can be claiming it
        _reserve(os.path.join(folder, "unclaimed"))
        write_once(path, _body(request))
    try:
        os.mkfifo(os.path.join(folder, "alive"), 0o600)
    except FileExistsError:
        pass


def _body(request: Request) -> bytes:
    """The request as the wrapper and its child read it."""
    spec = request.spec
    join = spec.get("join") if spec else None
    head = join_record(join[0], join[2]) if join is not None else b""
    env = {_bytes(name): _bytes(value) for name, value in request.env.items()}
    argv = [_bytes(part) for part in request.argv]
    cwd, output = os.fsencode(request.cwd), os.fsencode(request.output)
    body = marshal.dumps((cwd, env, argv, output, request.limits, spec))
    return head.ljust(JOIN_BYTES) + body


def _bytes(text: str) -> bytes:
    """Text as the program is to see it, whatever the locale of the agent is."""
    return text.encode("utf-8", "surrogateescape")


def _reserve(path: str) -> None:
    """Make the file's first block exist, so that what is written into it needs no space."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, b"\n".rjust(STATUS_BYTES))
    finally:
        os.close(fd)


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
        os.rename(os.path.join(folder, "unclaimed"), os.path.join(folder, "never"))
    except FileNotFoundError:  # without a claim nothing was asked for: nothing can start
        return not os.path.exists(os.path.join(folder, "claim"))
    return True


def claimed(folder: str) -> bool:
    """Whether anybody has claimed the execution (a forbidden one is claimed too)."""
    return os.path.exists(os.path.join(folder, "claim")) or forbidden(folder)


def forbidden(folder: str) -> bool:
    """Whether the agent claimed it so that it never starts."""
    return os.path.exists(os.path.join(folder, "never"))


def _read(folder: str) -> bytes:
    """The claim file, b"" while there is none."""
    try:
        with open(os.path.join(folder, "claim"), "rb") as file:
            return file.read()
    except OSError:
        return b""


def read_claim(folder: str) -> Optional[Claim]:
    """The claim, None while nobody made or completed it."""
    try:
        lines = _read(folder).splitlines()
        boot = lines[1].decode("ascii")
        pids = [stat_fields(line) for line in lines[2:4]]
        wrapper, program = (Identity(boot, pid, int(fields[19])) for pid, fields in pids)
    except (ValueError, IndexError):
        return None
    return Claim(wrapper, program)


def read_status(folder: str) -> Optional[Exit]:
    """The exit status, None while there is none. Its full stop says that it is complete."""
    text = _read(folder)[:STATUS_BYTES].strip()
    if not text.endswith(b"."):
        return None
    try:
        kind, number = text[:-1].split()
        return Exit(kind.decode("ascii"), int(number))
    except ValueError:
        return None


def status_time(folder: str) -> Optional[float]:
    """When the exit status was written (seconds since the epoch), None while there is none."""
    if read_status(folder) is None:
        return None
    try:
        return os.stat(os.path.join(folder, "claim")).st_mtime
    except OSError:
        return None


def read_environment(folder: str) -> Dict[str, str]:
    """The environment that was asked for; {} when there is no request (any more)."""
    try:
        with open(os.path.join(folder, "request"), "rb") as file:
            file.seek(JOIN_BYTES)
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

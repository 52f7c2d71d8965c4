"""Finding and signalling processes: descendants of a wrapper, members of a session, bearers of a
mark.

A pass can miss what moves, so whoever wants all of them gone looks again until nothing is left.
Scans of /proc are done when something is stopped, never in a timer.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Callable, Dict, Iterable, List, Optional, Set

from ..records import dataclass
from .folder import Claim, Identity, identity_of, stat_fields


@dataclass(frozen=True)
class Stuck:
    """A process that a SIGKILL did not end (yet): where the kernel keeps it, or why we may not."""

    pid: int
    command: str
    state: str
    where: str


def _read_all(path: str) -> bytes:
    """The whole file: one read of a /proc list can give a part of it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        parts: List[bytes] = []
        while True:
            part = os.read(fd, 65536)
            if not part:
                return b"".join(parts)
            parts.append(part)
    finally:
        os.close(fd)


def children(pid: int) -> List[int]:
    """The children of a process (of any of its threads), [] when it is gone."""
    found: List[int] = []
    tasks = "/proc/%d/task/" % pid
    try:
        for thread in os.listdir(tasks):
            found += [int(child) for child in _read_all(tasks + thread + "/children").split()]
    except OSError:
        if not os.path.exists("/proc/self/task/%d/children" % os.getpid()):
            return _children_by_stat(pid)  # a kernel without CONFIG_PROC_CHILDREN
    return found


def _children_by_stat(parent: int) -> List[int]:
    return [pid for pid, fields in all_stats() if int(fields[1]) == parent]


def all_stats() -> Iterable["tuple[int, List[bytes]]"]:
    """(pid, stat fields from `state` on) of every process that can be seen."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                yield stat_fields(_read_all("/proc/%s/stat" % name))
            except (OSError, ValueError):
                continue


def descendants(pid: int) -> List[int]:
    """All descendants of a process, parents before their children."""
    todo, seen = [pid], []
    while todo:
        found = children(todo.pop())
        seen += found
        todo += found
    return seen


def stat_of(pid: int) -> Optional[List[bytes]]:
    """The stat fields of a process from `state` on, None when it is gone."""
    try:
        return stat_fields(_read_all("/proc/%d/stat" % pid))[1]
    except (OSError, ValueError):
        return None


def state_of(pid: int) -> str:
    """The state letter of a process, "" when it is gone."""
    fields = stat_of(pid)
    return fields[0].decode("ascii") if fields else ""


def command_name(pid: int) -> str:
    """The name of a process as the kernel has it (15 characters), "" when it is gone."""
    try:
        return _read_all("/proc/%d/comm" % pid).decode("utf-8", "replace").rstrip("\n")
    except OSError:
        return ""


def alive(identity: Identity) -> bool:
    """Whether that very process still exists (a zombie whose threads live counts as alive)."""
    found = identity_of(identity.pid, identity.boot)
    return found == identity


def send(pid: int, number: int) -> bool:
    """Send a signal to a process; False when it is gone or not ours to signal."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def send_group(program: Identity, number: int) -> bool:
    """Send a signal to the process group that the program leads; False when no member is left.

    A group id is not reused while a member lives; that it is still the program's group is checked
    by the leader's start time, or, with the leader gone, left to the caller (the wrapper still
    holds it).
    """
    found = identity_of(program.pid, program.boot)
    if found is not None and found != program:
        return False
    try:
        os.killpg(program.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def with_marks(marks: Iterable[str]) -> Dict[str, Set[int]]:
    """For each mark (a whole environment entry), the processes that bear it; one scan for all."""
    wanted = {mark.encode("utf-8", "surrogateescape"): mark for mark in marks}
    found: Dict[str, Set[int]] = {mark: set() for mark in wanted.values()}
    if not wanted:
        return found
    me = os.getpid()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == me:
            continue
        for entry in _environment(name):
            mark = wanted.get(entry)
            if mark is not None:
                found[mark].add(int(name))
                break
    return found


def _environment(pid: str) -> List[bytes]:
    """The environment entries that a process started with; [] when they cannot be read."""
    try:
        return _read_all("/proc/%s/environ" % pid).split(b"\0")
    except OSError:
        pass
    try:  # its leader thread has ended, another one may answer
        for thread in os.listdir("/proc/%s/task" % pid):
            if thread != pid:
                return _read_all("/proc/%s/task/%s/environ" % (pid, thread)).split(b"\0")
    except OSError:
        pass
    return []


def rest_of(claim: Claim, mark: Optional[str]) -> List[int]:
    """What is left of an execution whose wrapper is gone: its session, and whatever bears its mark.

    A session id is not reused while a member lives. If a process leads a session of that id and is
    not our program, the id was reused, and the session is somebody else's.
    """
    program = claim.program
    leader = identity_of(program.pid, program.boot)
    found: Set[int] = set()
    if leader is None or leader == program:
        for pid, fields in all_stats():
            if int(fields[3]) == program.pid and int(fields[19]) >= program.started:
                found.add(pid)
    if mark is not None:
        found |= with_marks([mark])[mark]
    return sorted(pid for pid in found if not _gone(pid))


def _gone(pid: int) -> bool:
    """Whether a process is over: no such process, or a zombie without living threads."""
    state = state_of(pid)
    if state not in ("Z", "X"):
        return not state
    try:
        return len(os.listdir("/proc/%d/task" % pid)) <= 1
    except OSError:
        return True


def kill_all(pids: Iterable[int]) -> int:
    """SIGKILL each; how many there were."""
    count = 0
    for pid in pids:
        count += send(pid, signal.SIGKILL)
    return count


def freeze(look: Callable[[], List[int]], seconds: float = 0.05) -> List[int]:
    """SIGSTOP whatever `look` shows until it shows nothing new: what is stopped cannot fork.

    Takes so many seconds at most; gives the pids.
    """
    deadline = time.monotonic() + seconds
    seen: Set[int] = set()
    while time.monotonic() < deadline:
        new = set(look()) - seen
        if not new:
            break
        for pid in new:
            send(pid, signal.SIGSTOP)
        seen |= new
    return sorted(seen)


def explain(pid: int) -> Optional[Stuck]:
    """What keeps a process that was killed and is still there; None when it is gone."""
    state = state_of(pid)
    if not state:
        return None
    command = where = ""
    try:
        command = (
            _read_all("/proc/%d/cmdline" % pid).replace(b"\0", b" ").decode("utf-8", "replace")
        )
        where = _read_all("/proc/%d/wchan" % pid).decode("ascii", "replace")
    except OSError:
        pass
    return Stuck(pid, command.strip()[:200], state, where)

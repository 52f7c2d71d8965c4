"""All processes of one host of this machine, so that it can be frozen, thawed and lost as a whole.

Of a host are: its agent and what the agent started for itself, the wrappers that its attempts'
`claim` files name, all their descendants, and whatever bears the mark of one of its attempts. The
network of a group belongs to all its hosts and is left alone. A pass can miss what moves: passes
are repeated until one finds nothing new. Everything here blocks.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

PASSES_MAX: Final = 200
STANDING: Final = ("T", "t", "Z", "X", "")  # states that a stopped process may be in
PAUSE: Final = 0.005  # seconds between two passes of killing


def freeze(home: Path, agent: int) -> dict[int, int]:
    """SIGSTOP to everything, the agent (pid; 0: none) first; what there was, once it stands: pid
    -> start time."""
    done: dict[int, int] = {}
    for _ in range(PASSES_MAX):
        fresh = {pid: started(pid) for pid in of_host(home, agent) if pid not in done}
        if not fresh:
            break
        for pid in fresh:
            _send(pid, signal.SIGSTOP)
        done |= fresh
    for _ in range(PASSES_MAX):
        if all(_state(pid) in STANDING for pid in done):
            break
        time.sleep(PAUSE)
    return done


def thaw(home: Path, agent: int) -> None:
    """SIGCONT to everything, the agent last, so that it sees a host that runs."""
    for pid in reversed(list(of_host(home, agent))):
        _send(pid, signal.SIGCONT)


def kill(home: Path, agent: int) -> list[int]:
    """SIGKILL to everything; what is left after all passes cannot be killed: another user's, or
    stuck in the kernel. It is frozen first, so that nothing forks away or is started meanwhile."""
    seen = freeze(home, agent)
    trials = _trials(seen)
    left: list[int] = []
    for _ in range(PASSES_MAX):
        # What was seen is remembered: a child whose parent has died is not found by it any more.
        seen |= {pid: started(pid) for pid in of_host(home, agent) if pid not in seen}
        left = [pid for pid, since in seen.items() if started(pid) == since and not _over(pid)]
        if not left:
            break
        for pid in left:
            _send(pid, signal.SIGKILL)
        time.sleep(PAUSE)
    for pid, since in trials.items():
        if since and started(pid) == since:
            _send(pid, signal.SIGKILL)
    return left


def kill_one(pid: int) -> None:
    """SIGKILL to one process (0: to none), and wait until it is over; silent when it is gone."""
    if not pid:
        return
    _send(pid, signal.SIGKILL)
    for _ in range(PASSES_MAX):
        if _over(pid):
            return
        time.sleep(PAUSE)


def of_host(home: Path, agent: int) -> Iterator[int]:
    """Every process of the host, each once, the agent first."""
    seen: set[int] = set()
    roots = ([agent] if agent else []) + list(_claimed(home)) + list(_marked(home))
    while roots:
        pid = roots.pop(0)
        if pid in seen or not _exists(pid):
            continue
        seen.add(pid)
        yield pid
        roots += children(pid)


def children(pid: int) -> list[int]:
    """The children of any of its threads; [] when it is gone."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += [int(word) for word in file.read().split()]
    except OSError:
        pass
    return found


def started(pid: int) -> int:
    """Its start time in clock ticks; 0 when it is gone, or dead and not yet collected."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def _claimed(home: Path) -> Iterator[int]:
    """Wrappers and programs that live, from the claims of all attempts (docs/agent-protocol.md)."""
    for claim in home.glob("attempts/**/claim"):
        try:
            lines = claim.read_bytes().splitlines()[2:4]
        except OSError:
            continue
        for line in lines:
            words = line.rpartition(b")")[2].split()
            try:
                pid, since = int(line.split(b" ", 1)[0]), int(words[19])
            except (ValueError, IndexError):  # it is just being written
                continue
            if started(pid) == since:
                yield pid


def _marked(home: Path) -> Iterator[int]:
    """What bears the mark of an attempt of this host in its environment."""
    try:
        marks = {f"ARGOSY_MARK={name}".encode() for name in os.listdir(home / "attempts")}
    except OSError:
        return
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if marks.intersection(file.read().split(b"\0")):
                    yield int(name)
        except OSError:
            continue


def _trials(pids: Mapping[int, int]) -> dict[int, int]:
    """Holders of the networks that these processes were just trying out, and would have ended; all
    as pid -> start time."""
    marks = {b"trial-%d-%d" % one for one in pids.items()}
    found = {}
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"argosy-net" in words and marks.intersection(words):
            found[int(name)] = started(int(name))
    return found


def _exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def _over(pid: int) -> bool:
    """A zombie without living threads, or nothing."""
    try:
        return _state(pid) in ("", "Z", "X") and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except OSError:
        return True


def _state(pid: int) -> str:
    """The state letter; "" when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode("ascii")
    except OSError:
        return ""


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass

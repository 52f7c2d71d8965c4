"""Kills all that runs for an agent's home, by what lies on its disk: the agent may be gone.

One pass marks every attempt of which something lives (the file `fenced` in its folder: whoever sees
its end knows why), keeps from starting what was only asked for, and kills: the holders of isolated
networks, the descendants of wrappers, the sessions of wrappers that are gone, and what bears the
mark of an attempt. Who wants all gone makes passes until one finds nothing. Imports as little as
can be: it is a part of the watchdog, which is there all the time.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import marshal
import os

from ..processes.layout import JOIN_BYTES, PARTS, STATUS_BYTES, folder_of

TYPE_CHECKING = False  # as `typing` has it, which is not loaded here
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Set, Tuple

MARKER = "fenced"
SAFE = 3
"""Fields of /proc/PID/stat behind the command: state, parent, group, session; 19: start time."""


class Sweep:
    """Passes over one home, on this start of the machine."""

    def __init__(self, home: str, shared: str, boot: str) -> None:
        self._home, self._shared, self._boot = home, shared, boot

    def once(self) -> bool:
        """One pass; whether nothing was there to be killed."""
        victims: List[int] = []
        marks: Set[bytes] = set()
        lost: Dict[str, Tuple[int, int]] = {}
        waits = False
        for folder in self._parts():
            claim = _read(folder + "/claim")
            if claim is None:
                waits = self._forbid(folder) or waits
                continue
            known = _claim(claim)
            if known is None or known[0] != self._boot:
                continue
            wrapper, program = known[1], known[2]
            if start_of(wrapper[0]) == wrapper[1]:
                waits = True
                _mark(folder)
                _send(wrapper[0], _signal.SIGCONT)  # a wrapper that somebody froze
                victims += descendants(wrapper[0])
                marks.add(_mark_of(folder))
            else:
                lost[folder] = program
        others = _left_of(lost) | _bearers(marks)
        for folder in lost if others else ():
            _mark(folder)
        others -= {os.getpid(), *victims}
        found = [*victims, *others]
        held = self._end_holders()
        for number in (_signal.SIGSTOP, _signal.SIGKILL):  # no script goes on when its child dies
            for pid in found:
                _send(pid, number)
        return not (found or held or waits)

    def living(self) -> bool:
        """Whether anything of an attempt here lives."""
        lost: Dict[str, Tuple[int, int]] = {}
        for folder in self._parts():
            known = _claim(_read(folder + "/claim") or b"")
            if known is None or known[0] != self._boot:
                continue
            if start_of(known[1][0]) == known[1][1]:
                return True
            lost[folder] = known[2]
        return bool(_left_of(lost))

    def _parts(self) -> Iterator[str]:
        """The folders of executions that have not ended whole."""
        attempts = os.path.join(self._home, "attempts")
        for name in _names(attempts):
            for part in PARTS:
                folder = folder_of("%s/%s" % (attempts, name), part)
                forbidden = os.path.exists(folder + "/never")
                if os.path.exists(folder + "/alive") and not forbidden:
                    yield folder

    def _forbid(self, folder: str) -> bool:
        """Keep it from starting; whether it has begun meanwhile."""
        _mark(folder)
        try:
            os.rename(folder + "/unclaimed", folder + "/never")
        except OSError:
            return True  # it starts just now: again in the next pass
        return False

    def _end_holders(self) -> bool:
        """Kill the holders of groups that no other home uses; whether there was one."""
        found = False
        groups = os.path.join(self._shared, "groups")
        for name in _names(groups):
            record = _read("%s/%s/net/network.json" % (groups, name))
            users = _names("%s/%s/users" % (groups, name))
            if record is None or len(users) > 1:
                continue
            import json  # seldom: it would be there all the time

            try:
                holder = json.loads(record.decode("utf-8")).get("holder") or {}
                pid, start, boot = int(holder["pid"]), int(holder["start"]), holder["boot"]
            except (ValueError, KeyError, TypeError):
                continue
            if boot == self._boot and start_of(pid) == start:
                found = _send(pid, _signal.SIGKILL) or found
        return found


def descendants(pid: int) -> List[int]:
    """All descendants of a process, parents before their children."""
    todo, seen = [pid], []  # type: List[int], List[int]
    while todo:
        found = _children(todo.pop())
        seen += found
        todo += found
    return seen


def _children(pid: int) -> List[int]:
    found: List[int] = []
    tasks = "/proc/%d/task" % pid
    threads = _names(tasks)
    for thread in threads:
        text = _read("%s/%s/children" % (tasks, thread))
        if text is None and not os.path.exists("/proc/self/task/%d/children" % os.getpid()):
            return [one for one, fields in _stats() if int(fields[1]) == pid]
        found += [int(child) for child in (text or b"").split()]
    return found


def _claim(text: bytes) -> Optional[Tuple[str, Tuple[int, int], Tuple[int, int]]]:
    """(boot id, wrapper, program) of a claim, each of the two as (pid, start time)."""
    try:
        boot, wrapper, program = text.splitlines()[1:4]
        return boot.decode("ascii"), _identity(wrapper), _identity(program)
    except (ValueError, IndexError):
        return None


def _identity(stat: bytes) -> Tuple[int, int]:
    return int(stat[: stat.index(b" ")]), int(stat[stat.rindex(b")") + 2 :].split()[19])


def _stats() -> Iterator[Tuple[int, List[bytes]]]:
    for name in _names("/proc"):
        text = _read("/proc/%s/stat" % name) if name.isdigit() else None
        if text:
            yield int(name), text[text.rindex(b")") + 2 :].split()


def start_of(pid: int) -> int:
    """The start time of a living process, -1 when there is none (a zombie is none)."""
    text = _read("/proc/%d/stat" % pid)
    fields = text[text.rindex(b")") + 2 :].split() if text else [b"X"]
    return -1 if fields[0] in (b"Z", b"X") else int(fields[19])


def _left_of(lost: Dict[str, Tuple[int, int]]) -> Set[int]:
    """What lives of executions whose wrappers are gone: folder -> program."""
    return _sessions(list(lost.values())) | _bearers({_mark_of(folder) for folder in lost})


def _sessions(programs: List[Tuple[int, int]]) -> Set[int]:
    """What is left of the sessions that these programs led, unless their ids were used again."""
    if not programs:
        return set()
    stats = dict(_stats())
    found = set()
    for program, started in programs:
        leader = stats.get(program)
        if leader is not None and int(leader[19]) != started:
            continue
        for pid, fields in stats.items():
            living = fields[0] not in (b"Z", b"X")
            if living and int(fields[SAFE]) == program and int(fields[19]) >= started:
                found.add(pid)
    return found


def _bearers(marks: Set[bytes]) -> Set[int]:
    """The living processes that bear one of the marks."""
    found = set()
    marks = marks - {b""}
    for name in _names("/proc") if marks else []:
        text = _read("/proc/%s/environ" % name) if name.isdigit() else None
        if text and not marks.isdisjoint(text.split(b"\0")):
            found.add(int(name))
    return found


def _mark_of(folder: str) -> bytes:
    """The environment entry that the processes of an execution bear; b"" when it is not known."""
    text = _read(folder + "/request")
    try:
        env: Dict[bytes, bytes] = marshal.loads((text or b"")[JOIN_BYTES:])[1]
        return b"ARGOSY_MARK=" + env[b"ARGOSY_MARK"]
    except (ValueError, EOFError, KeyError, TypeError, IndexError):
        return b""


def _mark(folder: str) -> None:
    """Say why the attempt ends, unless its program has ended by itself."""
    attempt = os.path.dirname(folder) if folder.endswith("/setup") else folder
    claim = _read(folder_of(attempt, "run") + "/claim")
    if claim is not None and claim[:STATUS_BYTES].strip():
        return
    try:
        os.close(os.open("%s/%s" % (attempt, MARKER), os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError:
        pass  # it ends all the same


def _names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(path: str) -> Optional[bytes]:
    """The whole file: one read of a /proc list can give a part of it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts: List[bytes] = []
        while True:
            part = os.read(fd, 65536)
            if not part:
                return b"".join(parts)
            parts.append(part)
    except OSError:
        return None
    finally:
        os.close(fd)


def _send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True

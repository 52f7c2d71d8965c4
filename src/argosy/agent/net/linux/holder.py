"""The holder: one tiny process that owns a group's isolated network and all that runs in it.

It is PID 1 of the group's PID namespace and owns the router's network namespace and a private mount
namespace in which every node's network has a file. Kill it and the kernel frees processes, mounts,
namespaces and links. It depends on nobody: it outlives agent and server.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from typing import Iterator, List, Optional, Tuple

from ..network import Holder, NetworkError, boot_id
from . import inside, kernel

WORD = "argosy-net"  # stands in the command line before the mark
# A folder that nothing in the holder's mounts needs: a tmpfs there has the namespaces' names. Not
# /run: resolv.conf often points there, and pasta reads it.
PLACES = ("/mnt", "/media", "/srv", "/run")
# As PID 1 it reaps the orphans of the group; the shell's `wait` does that while `sleep` lives.
SCRIPT = 'trap "" TERM INT HUP QUIT; sleep 2147483647 & while :; do wait; done'
LOCK_FD = 9
SLEEP = [b"sleep", b"2147483647"]
KILL_SECONDS = 10.0
SLOW_SECONDS = 0.3


def start(mark: str, user: bool, lock: int) -> Holder:
    """Start a holder with an empty router; `user` makes a user namespace first.

    It keeps `lock`, of `clear`, for life. Raises NetworkError with the step that was refused.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            os.write(writer, inside.answer(lambda: _separate(mark, user, lock, writer)).encode())
        finally:
            os._exit(1)
    os.close(writer)
    value = inside.read_answer(reader, pid)
    return Holder(boot_id(), value["pid"], value["start"])


def clear(directory: str, mark: str) -> int:
    """End every holder with that mark, those too that a killed agent had only begun to start.

    Gives a descriptor with the lock that each holder keeps for life: while one lives, or is on the
    way to become one, it cannot be had. Only then they are looked for: that takes longer the more
    runs on the machine. (One whose folder somebody removed is found when the network is ended.)
    """
    lock = os.open(os.path.join(directory, "holder.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + KILL_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(lock)
                text = "another holder of this group is being started"
                raise NetworkError("holder", text) from None
        for old in find(mark):
            kill(old)
        time.sleep(0.005)


def folder() -> str:
    """Where, in the holder's mounts, the namespaces' files are."""
    return next((place for place in PLACES if os.path.isdir(place)), "/run")


def _separate(mark: str, user: bool, lock: int, writer: int) -> None:
    """Make the namespaces and fork the holder into them; this process ends."""
    os.setsid()
    inside.plain_signals()
    if user:
        uid, gid = os.geteuid(), os.getegid()
        with inside.step("user-namespace"):
            kernel.unshare(kernel.CLONE_NEWUSER)
        with inside.step("id-maps"):
            kernel.map_ids("0 %d 1" % uid, "0 %d 1" % gid)
    with inside.step("unshare"):
        kernel.private_mounts(kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS | kernel.CLONE_NEWPID)
        if os.fork():
            os._exit(0)
    os.write(writer, inside.answer(lambda: _become_holder(mark, lock, writer)).encode())
    os._exit(1)


def _become_holder(mark: str, lock: int, writer: int) -> None:
    os.setsid()
    os.chdir("/")
    with inside.step("mounts"):
        place = folder()
        kernel.mount("argosy", place, "tmpfs", 2 | 4, "mode=755,size=4m")
        open(place + "/router", "wb").close()
        kernel.bind("/proc/self/ns/net", place + "/router")
    # /proc is the host's, so this is our number there
    me = os.readlink("/proc/self")
    ready = inside.answer(lambda: {"pid": int(me), "start": kernel.start_time(me)})
    os.write(writer, ready.encode() + b"\n")
    inside.execute(["/bin/sh", "-c", SCRIPT, WORD, mark], {LOCK_FD: lock})


def alive(holder: Holder) -> bool:
    """Is exactly this process there, on this boot, with its namespaces?"""
    if not is_there(holder):
        return False
    try:
        os.readlink("/proc/%d/ns/net" % holder.pid)
    except OSError:
        return False  # it is ending: it has given them up
    return True


def is_there(holder: Holder) -> bool:
    """Has exactly this process not ended yet, be it on its way?"""
    fields = _stat(holder.pid)
    if not fields or int(fields[19]) != holder.start or fields[0] in (b"Z", b"X"):
        return False
    return holder.boot == boot_id()


def running(pid: int) -> bool:
    """Is there a process with that number that has not ended?"""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in (b"Z", b"X")


def _stat(pid: int) -> List[bytes]:
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def find(mark: str) -> List[Holder]:
    """All holders with that mark, by their command lines."""
    return [holder for other, holder in every() if other == mark]


def every() -> Iterator[Tuple[str, Holder]]:
    """(mark, holder) of all holders, by their command lines."""
    wanted = [b"/bin/sh", b"-c", SCRIPT.encode(), WORD.encode()]
    for name in os.listdir("/proc"):
        words = command_line(int(name)) if name.isdigit() else []
        if words[:-1] == wanted:
            try:
                found = Holder(boot_id(), int(name), kernel.start_time(name))
            except ProcessLookupError:
                continue
            yield words[-1].decode("utf-8", "replace"), found


def command_line(pid: int) -> List[bytes]:
    """The arguments of a process; [] when it is gone or not for us."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read().split(b"\0")[:-1]
    except OSError:
        return []


def kill(holder: Holder) -> None:
    """End it and all that is in its namespace; returns when it is gone. Fine if it was."""
    if not is_there(holder):
        return
    space = _pid_namespace(holder.pid)
    try:
        os.kill(holder.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    began = time.monotonic()
    pause = 0.001
    while is_there(holder):
        waited = time.monotonic() - began
        # It ends only when all in its namespace were reaped. If a reaper outside is slow to do
        # that, it is enough that nothing runs any more.
        if waited > SLOW_SECONDS and not _members(space):
            return
        if waited > KILL_SECONDS:
            raise NetworkError("kill", "the holder %d does not end" % holder.pid)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _pid_namespace(pid: int) -> str:
    try:
        return os.readlink("/proc/%d/ns/pid" % pid)
    except OSError:
        return ""


def _members(space: str) -> List[int]:
    """What still runs in that PID namespace."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    mates = [pid for pid in pids if _pid_namespace(pid) == space]
    # the holder itself waits, not a zombie and without a network
    return [pid for pid in mates if running(pid) and os.path.exists("/proc/%d/exe" % pid)]


def child_pids(pid: int) -> Optional[List[int]]:
    """The children of a process, host numbers; None when it is gone."""
    found: List[int] = []
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task), "rb", 0) as file:
                found += [int(number) for number in file.readall().split()]
    except OSError:
        return None
    return found

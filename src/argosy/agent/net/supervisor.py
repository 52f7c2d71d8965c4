"""Keeps a group's way out (pasta) and proxy running: a shell loop of 0.1 MB for each, flocked.

A loop starts its program again whenever that ends, at once at first and every 2 s if it goes on
ending. The loops depend on no agent; any agent revives a dead loop by `ensure`. In mode isolated
they live in the holder's PID namespace and end with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from typing import Dict, List, Optional, Tuple

from .linux import holder as holders
from .linux import inside, kernel, router
from .network import Holder, Network, NetworkError, boot_id

LOCK_FD = 9  # what a shell can name
# $1 mark, $2 what it is; the lock is the loop's alone, so each child is started without it.
LOOP = """
trap '' HUP INT; shift 2; n=0
while :; do
  : >/proc/self/fd/1; s=$(date +%s 9<&-)
  "$@" 9<&-
  [ $(($(date +%s 9<&-) - s)) -gt 10 ] && n=0
  n=$((n + 1)); case $n in 1|2|3) ;; 4|5|6|7) sleep 0.3 9<&- ;; *) sleep 2 9<&- ;; esac
done
"""
STOP_SECONDS = 5.0


def ensure(network: Network, proxy: bool = True) -> None:
    """Start the loops that are missing; costs a flock each when none is.

    `proxy` False leaves the proxy out. Raises NetworkError when a loop cannot be started.
    """
    if network.way_out:
        _ensure(network, "pasta", router.pasta_command(network.namespaces), ("mnt", "pid"))
    if proxy and network.balanced:
        _ensure(network, "proxy", proxy_command(network), ("net", "pid"))


def stop(network: Network) -> None:
    """End loops and programs. In mode isolated the end of the holder does the same."""
    for name in ("pasta", "proxy"):
        _end(_identity(network.directory, name))
    _end(_identity(network.directory, "proxy.running"))


def running(network: Network, name: str) -> bool:
    """Is that loop there?"""
    fd = _locked_file(network.directory, name)
    if fd is not None:
        os.close(fd)
    return fd is None


def proxy_command(network: Network) -> List[str]:
    """How the proxy is started: by this interpreter, from wherever this package lies."""
    folder = os.path.dirname(os.path.abspath(__file__))
    package = __name__.split(".")[:-1]
    top = package.index("agent") if "agent" in package else 0
    for _ in package[top:]:
        folder = os.path.dirname(folder)
    code = (
        "import sys; sys.path.append(sys.argv[1]); from %s.proxy.serve import main; "
        "main(sys.argv[2:])"
    )
    return [
        *(sys.executable, "-I", "-S", "-c", code % ".".join(package[top:]), folder),
        *(network.directory, holders.WORD, network.mark),
    ]


def _ensure(network: Network, name: str, command: List[str], namespaces: Tuple[str, ...]) -> None:
    lock = _locked_file(network.directory, name)
    if lock is None:
        return
    path = os.path.join(network.directory, name + ".log")
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        inside.call(
            lambda: _start(network, [name, *command], namespaces, {"lock": lock, "log": log})
        )
    finally:
        os.close(log)
        os.close(lock)


def _start(
    network: Network, words: List[str], namespaces: Tuple[str, ...], fds: Dict[str, int]
) -> bool:
    """In a child: join, fork the loop, and leave it to the holder.

    By two forks: the end of a PID namespace waits until all in it are reaped, so nothing in it may
    have a reaper outside, which may take its time.
    """
    with inside.step(words[0]):
        if network.holder is not None:
            inside.join(network.holder, *namespaces)
        os.setsid()
        between = os.fork()
        if between:
            inside.reap(between)
            return True
    try:
        if os.fork():
            os._exit(0)
        os.chdir("/")
        me = os.readlink("/proc/self")
        os.ftruncate(fds["lock"], 0)
        os.pwrite(fds["lock"], b"%s %d\n" % (me.encode(), kernel.start_time(me)), 0)
        argv = ["/bin/sh", "-c", LOOP, holders.WORD, network.mark, *words]
        inside.execute(argv, {1: fds["log"], 2: fds["log"], LOCK_FD: fds["lock"]})
    finally:
        os._exit(127)


def _locked_file(directory: str, name: str) -> Optional[int]:
    """The lock of a loop, taken; None if it is held, so the loop lives."""
    path = os.path.join(directory, name + ".lock")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _identity(directory: str, name: str) -> Optional[Tuple[int, int]]:
    try:
        with open(os.path.join(directory, name + ".lock"), encoding="ascii") as file:
            pid, start = file.read().split()
    except (OSError, ValueError):
        return None
    return int(pid), int(start)


def _end(identity: Optional[Tuple[int, int]]) -> None:
    """Kill that process, then what it had started, and wait for both."""
    if identity is None or not _is(identity):
        return
    children = [(pid, _start_of(pid)) for pid in holders.child_pids(identity[0]) or []]
    for one in [identity, *children]:
        if _is(one):
            with contextlib.suppress(ProcessLookupError):  # it ended between the two
                os.kill(one[0], signal.SIGKILL)
    deadline = time.monotonic() + STOP_SECONDS
    while any(_is(one) for one in [identity, *children]):
        if time.monotonic() > deadline:
            raise NetworkError("stop", "process %d does not end" % identity[0])
        time.sleep(0.002)


def _start_of(pid: int) -> int:
    try:
        return kernel.start_time(pid)
    except ProcessLookupError:
        return -1


def _is(identity: Tuple[int, int]) -> bool:
    return holders.is_there(Holder(boot_id(), *identity))

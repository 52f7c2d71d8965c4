"""A home with a real server and agents, whose processes can be killed at a chosen system call.

A point is (process, system call, count): `strace` attaches to all threads of that one process and
kills it with SIGKILL at the entry of the call. A point that is not reached in time becomes a kill
at that moment. Where there is no `strace`, a point is a moment (`.ci/run` installs it).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
COMMITS = "fdatasync,fsync,pwrite64,rename,renameat,renameat2,unlink,unlinkat,ftruncate"
TALK = "write,writev,sendto,sendmsg,recvfrom,recvmsg,read,openat,close,clone,fork,vfork,epoll_wait"
CALLS = (COMMITS, TALK)
STRIKE_SECONDS = 2.0


def until(what: str, seconds: float, holds: Callable[[], object]) -> None:
    """Wait for a condition; AssertionError after so long."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"after {seconds} s not true: {what}"
        time.sleep(0.02)


def processes_of(home: Path) -> Iterator[tuple[int, str]]:
    """(pid, command line) of every living process that belongs to a home: by arguments or mark."""
    needles = [os.fsencode(str(home))]  # the network of a group bears only its id
    needles += [
        b"argosy-net\0" + one.name.encode() for one in home.glob("infra/local/*/shared/groups/*")
    ]
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
            around = (entry / "environ").read_bytes()
            state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if state != b"Z" and any(one in line or one in around for one in needles):
            yield int(entry.name), line.replace(b"\0", b" ").decode("utf-8", "replace").strip()


@dataclass
class Bench:
    """One home."""

    home: Path
    seed: int
    struck: list[str] = field(default_factory=list)

    @property
    def chance(self) -> random.Random:
        """The generator of this bench; the same seed draws the same points."""
        if not hasattr(self, "_chance"):
            self._chance = random.Random(self.seed)
        return self._chance

    def argosy(self, *words: str, seconds: float = 60.0, check: bool = False) -> str:
        """Run the command as a user would; its standard output."""
        environment = {**os.environ, "ARGOSY_HOME": str(self.home), "NO_COLOR": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "argosy", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            cwd=self.home,
        )
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def group(self, name: str) -> dict[str, object]:
        """The overview of a group; {} while no server answers."""
        try:
            found: dict[str, object] = json.loads(self.argosy("status", name, "-o", "json"))
        except (ValueError, subprocess.TimeoutExpired):
            return {}
        return found

    def server(self) -> int:
        """The pid of the server; 0 when none runs."""
        return _pid(self.home / "server.json")

    def agent(self) -> int:
        """The pid of the agent; 0 when none runs."""
        return _pid(self.home / "infra/local/machine/hosts/localhost/agent.json")

    def wrappers(self) -> list[int]:
        """The pids of wrappers: whoever holds an attempt's `alive` open and is named so.

        Its child that is about to become the program does so too; to kill that one is no loss of a
        wrapper but an end of the program like any other.
        """
        found = set()
        for pid, line in processes_of(self.home):
            if "launch()" in line and pid not in (self.server(), self.agent()) and _holds(pid):
                found.add(pid)
        return sorted(pid for pid in found if _parent(pid) not in found)

    def launcher(self) -> int:
        """The pid of the agent's launcher; 0 when there is none."""
        agent = self.agent()
        for pid, line in processes_of(self.home):
            if "launch()" in line and not _holds(pid) and _parent(pid) == agent:
                return pid
        return 0

    def strike(self, trigger: Callable[[], object]) -> None:
        """Kill one process at a drawn point while `trigger` makes things happen."""
        chance = self.chance
        who = chance.choice(("server", "server", "agent", "agent", "wrapper", "launcher"))
        calls, count = chance.choice(CALLS), chance.randint(1, 25)
        pid = self._target(who)
        if not pid:
            trigger()
            return
        if who == "wrapper":
            calls, count = "wait4,openat,write,rename,close,chdir", chance.randint(1, 5)
        point = f"{who} at {calls.partition(',')[0]}... {count}"
        if shutil.which("strace") is None:
            point = self._kill_amid(pid, trigger)
            self.struck.append(f"{who} {point}")
            return
        tracer = subprocess.Popen(
            ["strace", "-qq", "-o", "/dev/null", "-p", ",".join(_threads(pid)),
             "-e", f"inject={calls}:signal=KILL:when={count}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        trigger()
        try:
            tracer.wait(STRIKE_SECONDS)
        except subprocess.TimeoutExpired:
            tracer.terminate()  # it detaches
            tracer.wait(10)
            if _alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.struck.append(point)

    def _kill_amid(self, pid: int, trigger: Callable[[], object]) -> str:
        """Kill it at a drawn moment while `trigger` makes things happen; the moment in words."""
        after = self.chance.uniform(0.0, 0.5)
        killer = threading.Timer(after, lambda: _alive(pid) and os.kill(pid, signal.SIGKILL))
        killer.start()
        trigger()
        killer.join()
        return f"after {after:.3f} s"

    def _target(self, who: str) -> int:
        if who == "wrapper":
            found = self.wrappers()
            return self.chance.choice(found) if found else 0
        return {"server": self.server, "agent": self.agent, "launcher": self.launcher}[who]()

    def close(self) -> None:
        """End the server and what is left; the caller has checked before that nothing is."""
        for pid, _ in list(processes_of(self.home)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        until("all processes are gone", 10, lambda: not list(processes_of(self.home)))


def _pid(path: Path) -> int:
    try:
        pid = int(json.loads(path.read_text())["pid"])
    except (OSError, ValueError, KeyError):
        return 0
    return pid if _alive(pid) else 0


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state != b"Z"


def _threads(pid: int) -> list[str]:
    """The ids of its threads, itself first; those that it starts later are not among them."""
    try:
        return [str(pid), *(one for one in os.listdir(f"/proc/{pid}/task") if one != str(pid))]
    except OSError:
        return [str(pid)]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _holds(pid: int) -> bool:
    try:
        return any(os.readlink(one).endswith("/alive") for one in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False

"""What of Argosy is still on this machine, and how a home's server and agents are ended.

    python scripts/leftovers.py                  list what there is; exit 1 for something
    python scripts/leftovers.py --save FILE      keep the list, for a later look
    python scripts/leftovers.py --except FILE    list only what was not there then

Only the standard library: it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

END_SECONDS = 20.0  # that a server or an agent gets to end
STEP = 0.05
MARK = b"ARGOSY_MARK="
HOLDER = b"argosy-net"  # a word in the command line of each group's network
PROGRAMS = (b"argosy.server.main", b"/agent/agent-")
RIG = (b"/kuberig/kube", b"/kuberig/coredns")  # the programs of a cluster that tests started
RIG_FOLDER = "/argk-"  # in the path of each of its mounts, namespaces included


def everywhere() -> list[str]:
    """A line for each process and mount of any home, `KIND ID: WHAT`."""
    return _processes(_bears_a_mark) + _mounts("argosy") + _mounts(RIG_FOLDER)


def of_home(home: Path) -> list[str]:
    """A line for each process, mount and control group that belongs to this home."""
    path = os.fsencode(home.resolve())
    groups = {os.fsencode(folder.name) for folder in home.glob("infra/local/*/shared/groups/*")}

    def mine(words: list[bytes], environment: list[bytes]) -> bool:
        if any(path in part for part in words + environment):
            return True
        return HOLDER in words and not groups.isdisjoint(words)

    return _processes(mine) + _mounts(str(home.resolve())) + _cgroups(groups)


def end_home(home: Path) -> list[str]:
    """End the server and the agents of a home, by pid; what did not end by itself then.

    Groups that live should be cancelled before: their programs outlive both. What stays is told,
    and killed.
    """
    _end(home / "server.json")
    deadline = time.monotonic() + END_SECONDS
    while True:
        for file in home.glob("infra/**/agent.json"):  # what the server started at last, too
            _end(file)
        left = of_home(home)
        if not left or time.monotonic() > deadline:
            break
        time.sleep(STEP)
    _kill(left)
    return left


def links() -> set[str]:
    """The names of this machine's network interfaces."""
    lines = Path("/proc/net/dev").read_text(encoding="ascii").splitlines()
    return {line.split(":")[0].strip() for line in lines if ":" in line}


def start_time(pid: int) -> int:
    """In clock ticks since the boot; 0 when there is no such process, or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def _end(file: Path) -> None:
    """SIGTERM to the process that a file names, if it is still that process; waits for its end."""
    try:
        fields = json.loads(file.read_bytes())
        pid, since = int(fields["pid"]), int(fields["start_time"])
    except (OSError, ValueError, KeyError):
        return
    if start_time(pid) != since:
        return
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    deadline = time.monotonic() + END_SECONDS
    while start_time(pid) == since and time.monotonic() < deadline:
        time.sleep(STEP)


def _kill(lines: list[str]) -> None:
    """SIGKILL to the processes in lines of this module, those that still are what they were."""
    for line in lines:
        kind, *words = line.split(":")[0].split()
        if kind == "process" and start_time(int(words[0])) == int(words[1]) != 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(words[0]), signal.SIGKILL)


def _processes(ours: Callable[[list[bytes], list[bytes]], bool]) -> list[str]:
    found = []
    family = set(_ancestors())
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        words, environment = _entries(pid, "cmdline"), _entries(pid, "environ")
        if pid not in family and words and ours(words, environment):
            text = b" ".join(word[:100] for word in words).decode(errors="replace")
            found.append(f"process {pid} {start_time(pid)}: {' '.join(text.split())[:300]}")
    return found


def _bears_a_mark(words: list[bytes], environment: list[bytes]) -> bool:
    return (
        HOLDER in words
        or any(program in word for program in PROGRAMS for word in words)
        or words[0].endswith(RIG)
        or any(entry.startswith(MARK) for entry in environment)
    )


def _entries(pid: int, file: str) -> list[bytes]:
    """The words of a file of a process; [] for a zombie, and for what may not be read."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return []


def _ancestors() -> Iterator[int]:
    """This process, and those that started it."""
    pid = os.getpid()
    while pid > 0:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


def _mounts(word: str) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    return [f"mount {line.split()[0]}: {line}" for line in lines if word in line]


def _cgroups(groups: set[bytes]) -> list[str]:
    names = {os.fsdecode(group) for group in groups}
    tree = (folder for folder, _, _ in os.walk("/sys/fs/cgroup"))
    return [f"cgroup {folder}: {folder}" for folder in tree if names & set(folder.split("/"))]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--save", type=Path, metavar="FILE")
    parser.add_argument("--except", type=Path, metavar="FILE", dest="known")
    asked = parser.parse_args()
    found = everywhere()
    if asked.save:
        asked.save.write_text("".join(line.split(":")[0] + "\n" for line in found))
        return 0
    known = asked.known.read_text().splitlines() if asked.known else []
    left = [line for line in found if line.split(":")[0] not in known]
    print("\n".join(left) or "nothing of Argosy is left on this machine")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())

"""What a host is and what its programs use: read from /proc, /sys and `nvidia-smi` where there is
one.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, Iterable, List, Optional, Tuple

from .processes.tree import stat_of

GIB = float(1 << 30)
SMI_SECONDS = 20
_TICK = float(os.sysconf("SC_CLK_TCK"))
_PAGE = os.sysconf("SC_PAGE_SIZE")


def host_facts(home: str) -> Dict[str, Any]:
    """Cores, memory, GPUs, disk, Python and name of this machine (`network` is added by the
    caller).
    """
    disk = os.statvfs(home)
    return {
        "cpus": cores(),
        "memory_gib": round(memory_gib(), 2),
        "gpus": gpus(),
        "disk_free_gib": round(disk.f_bavail * disk.f_frsize / GIB, 2),
        "python": sys.version.split()[0],
        "hostname": os.uname().nodename,
    }


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_gib() -> float:
    """The machine's memory, or what a memory cgroup leaves of it."""
    total = os.sysconf("SC_PHYS_PAGES") * _PAGE
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:
                total = min(total, int(file.read()))
        except (OSError, ValueError):
            continue
    return total / GIB


def gpus(command: str = "nvidia-smi") -> List[Dict[str, Any]]:
    """The GPUs as `nvidia-smi` lists them; [] where there is none, or no answer in time. Blocks."""
    found = []
    for index, name, memory in _cards(command, "name", "memory.total"):
        if memory.replace(".", "").isdigit():
            memory_gib = round(float(memory) / 1024.0, 2)
            found.append({"index": int(index), "name": name, "memory_gib": memory_gib})
    return found


def gpu_usage(command: str = "nvidia-smi") -> List[Dict[str, Any]]:
    """What the GPUs are used for now: `percent` of the time, and `memory_gib`; None where a card
    does not say. Blocks.
    """
    return [
        {
            "index": int(index), "percent": _number(percent),
            "memory_gib": _number(memory, 1024.0),
        }
        for index, percent, memory in _cards(command, "utilization.gpu", "memory.used")
    ]  # fmt: skip


def _number(text: str, unit: float = 1.0) -> Optional[float]:
    """A number that may also be `[N/A]`."""
    try:
        return round(float(text) / unit, 2)
    except ValueError:
        return None


def _cards(command: str, *fields: str) -> List[List[str]]:
    """For each card its index and these fields; [] when there is no answer in SMI_SECONDS."""
    paths = [os.path.join(folder, command) for folder in os.get_exec_path()]
    path = next((one for one in paths if os.path.isfile(one) and os.access(one, os.X_OK)), None)
    if path is None:
        return []
    import subprocess  # here only: it would cost every agent a megabyte

    query = [path, "--query-gpu=" + ",".join(("index", *fields)), "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            query, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=SMI_SECONDS, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    rows = [[part.strip() for part in line.split(",")] for line in lines]
    return [row for row in rows if len(row) == 1 + len(fields) and row[0].isdigit()]


def usage(pids: Iterable[int]) -> Tuple[float, int]:
    """(CPU seconds, bytes of resident memory) of processes; with a wrapper among them, of all that
    it reaped.
    """
    ticks = rss = 0
    for pid in pids:
        fields = stat_of(pid)
        if fields is not None:
            ticks += sum(int(field) for field in fields[11:15])
            rss += int(fields[21]) * _PAGE
    return ticks / _TICK, rss


def oom_kills(root: str = "/sys/fs/cgroup", of: str = "/proc/self/cgroup") -> int:
    """How many processes the kernel has killed for want of memory: in the agent's own cgroup, as a
    container has one, else on the machine since it started; 0 when neither says.
    """
    for folder, second in _memory_cgroups(root, of):
        name = "memory.events" if second else "memory.oom_control"
        found = _number_after("oom_kill ", os.path.join(folder, name))
        if found is not None:
            return found
    return _number_after("oom_kill ", "/proc/vmstat") or 0


def memory_words(root: str = "/sys/fs/cgroup", of: str = "/proc/self/cgroup") -> str:
    """`the limit is 512 MiB, the peak was 511 MiB` of the agent's own cgroup; "" where it has no
    limit.
    """
    for folder, second in _memory_cgroups(root, of):
        names = ("memory.max", "memory.peak") if second else (
            "memory.limit_in_bytes", "memory.max_usage_in_bytes",
        )  # fmt: skip
        limit, peak = (_number_after("", os.path.join(folder, name)) for name in names)
        if limit is not None and limit < os.sysconf("SC_PHYS_PAGES") * _PAGE:
            words = "the limit is %d MiB" % (limit >> 20)
            return words if peak is None else words + ", the peak was %d MiB" % (peak >> 20)
    return ""


def _memory_cgroups(root: str, of: str) -> List[Tuple[str, bool]]:
    """(folder, whether it is of version 2) of the cgroups that may count this process's memory.

    A container has its own where the machine has the root of all, whatever path /proc says.
    """
    found: List[Tuple[str, bool]] = []
    try:
        with open(of) as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return found
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            base = os.path.join(root, "memory")
            found[:0] = [(base + path, False), (base, False)]
        elif not controllers:
            found += [(root + path, True), (root, True)]
    return found


def _number_after(word: str, path: str) -> Optional[int]:
    """The number behind a word at the beginning of a line of a file; None when there is none."""
    try:
        with open(path) as file:
            for line in file:
                if line.startswith(word) and line[len(word) :].strip().isdigit():
                    return int(line[len(word) :])
    except OSError:
        pass
    return None

"""What a host is and what its programs use: read from /proc, /sys and `nvidia-smi` where there is
one.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
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
    return {
        "cpus": cores(),
        "memory_gib": round(memory_gib(), 2),
        "gpus": gpus(),
        "disk_free_gib": round(shutil.disk_usage(home).free / GIB, 2),
        "python": platform.python_version(),
        "hostname": socket.gethostname(),
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
    path = shutil.which(command)
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


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory since it started; 0 when it does
    not say.
    """
    try:
        with open("/proc/vmstat") as file:
            for line in file:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0

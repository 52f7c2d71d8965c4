"""What a process uses, from /proc: CPU seconds of all its threads, resident and private memory."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

MIB = 1024.0 * 1024.0


def cpu_seconds(pid: int) -> float:
    """On a core so far, all threads, in nanosecond steps."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def percent_of_a_core(pids: Iterable[int], seconds: float) -> float:
    """What the processes use together while nothing is asked of them."""
    pids = list(pids)
    before, began = sum(map(cpu_seconds, pids)), time.monotonic()
    time.sleep(seconds)
    used = sum(map(cpu_seconds, pids)) - before
    return 100.0 * used / (time.monotonic() - began)


def rss_mib(pid: int) -> float:
    """Resident memory."""
    return _kib(f"/proc/{pid}/status", "VmRSS:") / 1024.0


def private_dirty_mib(pid: int) -> float:
    """Memory that is there because of this process and of no other."""
    return _kib(f"/proc/{pid}/smaps_rollup", "Private_Dirty:") / 1024.0


def parent(pid: int) -> int:
    """Its parent's pid."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _kib(path: str, name: str) -> int:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise LookupError(f"{path} has no {name}")

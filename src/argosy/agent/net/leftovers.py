"""What of a group's network is still on this machine: for tests, `doctor`, and a careful ending."""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Set

from .linux import holder as holders


def leftovers(mark: str, directory: Optional[str] = None) -> List[str]:
    """One line for each process with the mark, each mount of the directory's files, and itself.

    A process is found by a whole argument, or by a whole value in its environment. What may not be
    looked at (other users' processes) is not found.
    """
    found = []
    seen: Set[str] = set()
    for name in sorted(os.listdir("/proc")):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        pid = int(name)
        words = holders.command_line(pid)
        if mark.encode() in words or _in_environment(pid, mark):
            short = b" ".join(word[:60] for word in words)[:300].decode(errors="replace")
            found.append("process %d: %s" % (pid, short))
        if directory is not None:
            found += _mounts(pid, os.path.realpath(directory), seen)
    if directory is not None and os.path.exists(directory):
        found.append("directory %s" % directory)
    return found


def namespaces() -> Dict[str, Set[str]]:
    """All namespaces that a visible process is in, by kind: to compare before and after.

    A process that has ended but was not reaped holds none that could be entered.
    """
    found: Dict[str, Set[str]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and holders.running(int(name)):
            for kind in ("net", "mnt", "pid", "uts", "user"):
                try:
                    found.setdefault(kind, set()).add(os.readlink("/proc/%s/ns/%s" % (name, kind)))
                except OSError:
                    continue
    return found


def links() -> Set[str]:
    """The names of the interfaces in the caller's network."""
    with open("/proc/net/dev", encoding="ascii") as file:
        return {line.split(":")[0].strip() for line in file if ":" in line}


def _in_environment(pid: int, mark: str) -> bool:
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return False
    return any(entry.partition(b"=")[2] == mark.encode() for entry in entries)


def _mounts(pid: int, directory: str, seen: Set[str]) -> List[str]:
    """Mounts whose root is in the directory, once for each mount namespace."""
    try:
        namespace = os.readlink("/proc/%d/ns/mnt" % pid)
        if namespace in seen:
            return []
        seen.add(namespace)
        with open("/proc/%d/mountinfo" % pid, encoding="utf-8", errors="replace") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []
    # the root is told within its file system, so compare the end of the path
    tail = "/" + os.path.basename(directory) + "/"
    return [
        "mount %s on %s in process %d" % (row[3], row[4], pid)
        for row in rows
        if len(row) > 4 and (tail in row[3] and (directory + "/").endswith(_head(row[3], tail)))
    ]


def _head(root: str, tail: str) -> str:
    return root[: root.index(tail)] + tail

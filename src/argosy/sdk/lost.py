"""Finds a server that runs and cannot be reached, since somebody removed its socket."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

from argosy.sdk.home import socket_file

MENDING = "`argosy server stop` ends it, programs go on"


def lost_server(home: Path) -> int | None:
    """The pid of the server that holds the home's lock while its socket is gone; else None.

    The lock is tried only where `server.json` names a process that lives, so that no server that
    is just starting meets it.
    """
    if socket_file(home).exists():
        return None
    try:
        told = json.loads((home / "server.json").read_bytes())
        pid = int(told["pid"])
        if _start_time(pid) != int(told["start_time"]) or not _held(home / "server.lock"):
            return None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
    return pid


def lost_text(pid: int) -> str:
    """What is to be said of it."""
    return f"a server runs (pid {pid}), but its socket is gone"


def _held(lock: Path) -> bool:
    descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _start_time(pid: int) -> int:
    """When that process started, in clock ticks since the boot."""
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])

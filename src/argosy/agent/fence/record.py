"""What the agent and its watchdog share: the file `fence` in the agent's home, one line of fixed
length.

    BOOT SECONDS ACKED CHECK

SECONDS is the fence (0: none), ACKED when the newest acknowledged heartbeat was *sent*
(CLOCK_BOOTTIME, which goes on while the machine is suspended). It is written in place, so that a
full disk does not stop it, and never synced: after a power cut nothing runs that it is about.
Imports as little as can be: the watchdog pays for each page.
"""

from __future__ import annotations

import binascii
import os
import time

TYPE_CHECKING = False  # as `typing` has it, which is not loaded here
if TYPE_CHECKING:
    from typing import Optional

NAME = "fence"
LOCK = "fence.lock"
"""Locked by the watchdog as long as it lives."""
LINE = 256


class Record:
    """One state of the file."""

    __slots__ = ("acked", "boot", "seconds")

    def __init__(self, boot: str, seconds: float, acked: float) -> None:
        self.boot, self.seconds, self.acked = boot, seconds, acked

    def left(self, now: float) -> float:
        """Seconds until the fence runs out; below 0: it has."""
        return self.acked + self.seconds - now


def boottime() -> float:
    """Seconds since the machine was started, its sleeps included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """The id of this start of the kernel."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def read(path: str) -> Optional[Record]:
    """The newest state; None when there is none, or it is just being written."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        body, _, check = os.pread(fd, LINE, 0).rstrip(b" \n").rpartition(b" ")
        if check != b"%08x" % binascii.crc32(body):
            return None
        boot, seconds, acked = body.split()
        return Record(boot.decode("ascii"), float(seconds), float(acked))
    except (OSError, ValueError):
        return None
    finally:
        os.close(fd)


def write(path: str, record: Record) -> None:
    """Replace the state in place. Raises OSError."""
    body = ("%s %017.6f %017.6f" % (record.boot, record.seconds, record.acked)).encode("ascii")
    line = body + b" %08x" % binascii.crc32(body)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, line.ljust(LINE - 1) + b"\n", 0)
    finally:
        os.close(fd)

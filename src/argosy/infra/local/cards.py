"""Who holds which real GPU of this machine: a file that all servers and users honour.

JSON of {index: holder}, changed under flock, in a folder that everybody may write. The holder is a
server's process: leases outlive it, so a server writes its entries again when it starts, and what
its programs use meanwhile stands in the agents' own file (`agent/gpus.py`), which is read too.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from argosy.errors import AccessError, InfraError
from argosy.model.ids import LeaseId

MACHINE_FILE: Final = Path("/tmp/argosy-gpu-leases.json")
AGENTS_FILE: Final = Path("/tmp/argosy-gpus.json")
SIZE_MAX: Final = 1 << 20

RETRY_SECONDS: Final = 2.0

Entries = dict[str, dict[str, Any]]


class BookLocked(InfraError):
    """Somebody else has the reservation file locked just now; nobody waits for that here."""


@dataclass(frozen=True, slots=True)
class CardBook:
    """The machine's reservations, as one server sees them."""

    server: str
    path: Path = MACHINE_FILE
    agents: Path = AGENTS_FILE

    @contextlib.contextmanager
    def locked(self, mine: Mapping[int, LeaseId]) -> Iterator[set[int]]:
        """The indices that others hold; `mine` is written down first.

        What is added to the set is held by this server from then on. Never waits. Raises
        AccessError, BookLocked.
        """
        try:
            fd = _opened(self.path)
        except OSError as error:
            raise AccessError(
                f"the reservation file {self.path} cannot be opened: {error.strerror}",
                code="local/reservations",
                hint=f"`chmod 666 {self.path}` as its owner, or remove it when nothing runs",
            ) from error
        try:
            self._lock(fd)
            entries = {
                index: entry
                for index, entry in _parsed(os.pread(fd, SIZE_MAX, 0)).items()
                if entry.get("server") != self.server and _lives(entry)
            }
            others = {int(index) for index in entries} | self._used() - set(mine)
            taken = set(others)
            yield taken
            me = identity(os.getpid())
            for index in (taken - others) | set(mine):
                entries[str(index)] = {"server": self.server, "uid": os.getuid(), **me}
            body = json.dumps(entries, sort_keys=True).encode("ascii")
            os.pwrite(fd, body, 0)
            os.ftruncate(fd, len(body))
        finally:
            os.close(fd)

    def _lock(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BookLocked(
                f"who holds which card is not known: another process has {self.path} locked",
                code="local/reservations-locked",
                hint=f"`fuser {self.path}` shows which; end it when it does not go on",
                retry=RETRY_SECONDS,
            ) from error

    def _used(self) -> set[int]:
        """What programs of any agent use now."""
        try:
            entries = _parsed(self.agents.read_bytes())
        except OSError:
            return set()
        return {int(index) for index, entry in entries.items() if _lives(entry)}


def _opened(path: Path) -> int:
    """The file, for all users: a sticky folder refuses O_CREAT of what is another's."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        os.fchmod(fd, 0o666)  # whatever the umask is
    except FileExistsError:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    return fd


def _parsed(body: bytes) -> Entries:
    """The entries but the damaged ones: a file that anybody writes may hold anything."""
    try:
        found = json.loads(body) if body else {}
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        index: entry
        for index, entry in found.items()
        if index.isdecimal() and isinstance(entry, dict)
    }


def identity(pid: int) -> dict[str, Any]:
    """Boot, pid and start time: one process, ever."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    with open(f"/proc/{pid}/stat", "rb") as stat:
        started = int(stat.read().rpartition(b")")[2].split()[19])
    return {"boot": boot, "pid": pid, "started": started}


def _lives(entry: Mapping[str, Any]) -> bool:
    """Whether the very process that made the entry still is."""
    try:
        found = identity(int(entry["pid"]))
    except (OSError, ValueError, KeyError, TypeError, IndexError, OverflowError):
        return False
    return all(entry.get(name) == value for name, value in found.items())

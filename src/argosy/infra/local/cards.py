"""Who holds which real GPU of this machine: a file that all servers and users honour.

JSON of {index: holder}, changed under flock, in a folder that everybody may write. The holder is a
server's process: leases outlive it, so a server writes its entries again when it starts, and what
its programs use meanwhile stands in the agents' own file (`agent/gpus.py`), which is read too; so
is what servers elsewhere have leased of this machine by SSH (`agent/leases/book.py`). Those choose
under the lock of this file, too, so that nothing is given twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from argosy.errors import AccessError, InfraError
from argosy.model.ids import LeaseId

MACHINE_FILE: Final = Path("/tmp/argosy-gpu-leases.json")
AGENTS_FILE: Final = Path("/tmp/argosy-gpus.json")
LEASES_FILE: Final = Path("/var/tmp/argosy-leases.json")
SIZE_MAX: Final = 1 << 20
LEASES_MAX: Final = 16 << 20

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
    leases: Path = LEASES_FILE

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
            self._lock(fd, self.path)
            entries = {
                index: entry
                for index, entry in _parsed(os.pread(fd, SIZE_MAX, 0)).items()
                if entry.get("server") != self.server and _lives(entry)
            }
            used = self._used() | self._leased()
            others = {int(index) for index in entries} | used - set(mine)
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

    def _lock(self, fd: int, path: Path) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BookLocked(
                f"who holds which card is not known: another process has {path} locked",
                code="local/reservations-locked",
                hint=f"`fuser {path}` shows which; end it when it does not go on",
                retry=RETRY_SECONDS,
            ) from error

    def _used(self) -> set[int]:
        """What programs of any agent use now."""
        try:
            entries = _parsed(self.agents.read_bytes())
        except OSError:
            return set()
        return {int(index) for index, entry in entries.items() if _lives(entry)}

    def _leased(self) -> set[int]:
        """What is leased by SSH. Raises AccessError for a file that says nothing sure, BookLocked.

        Its lock keeps a writer from being met in the middle.
        """
        try:
            fd = os.open(self.leases, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise self._unsure(str(error.strerror)) from error
        try:
            self._lock(fd, self.leases)
            body = os.pread(fd, LEASES_MAX, 0)
        finally:
            os.close(fd)
        boot, line = boot_id(), _counting_line(body)
        if line is None and body.strip(b"\0"):
            raise self._unsure("no line of it is whole")
        try:
            living = [one for one in json.loads(line or b"{}").values() if one["boot"] == boot]
            return {int(index) for one in living for index in one["indices"]}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._unsure(repr(error)) from error

    def _unsure(self, why: str) -> AccessError:
        return AccessError(
            f"which cards are leased by SSH is not known: {self.leases}: {why}",
            code="local/reservations",
            hint=f"make {self.leases} readable and writable, or remove it once nothing runs there",
        )


def _counting_line(body: bytes) -> bytes | None:
    """The JSON of the last whole line of `CRC JSON`; None when there is none."""
    for line in reversed(body.split(b"\n")[:-1]):
        check, _, text = line.partition(b" ")
        if check == b"%08x" % zlib.crc32(text):
            return text
    return None


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


def boot_id() -> str:
    """What changes when the machine starts anew."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def identity(pid: int) -> dict[str, Any]:
    """Boot, pid and start time: one process, ever."""
    boot = boot_id()
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

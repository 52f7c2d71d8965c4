"""The machine's reservation file: who has leased what of it, honoured by all servers and users.

One line of JSON, {lease: entry}, changed under flock. It lies where a restart of the machine leaves
it: an entry with another boot id is a lease that was lost, and takes nothing any more. A file that
cannot be read is an error and never an empty one: absence would be taken for evidence.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from typing import Any, Dict, Iterator, List, Set

from ..processes.folder import identity_of

MACHINE_FILE = "/var/tmp/argosy-leases.json"
OTHERS = ("/tmp/argosy-gpu-leases.json", "/tmp/argosy-gpus.json")
"""Who holds which GPU, as servers on this machine itself and as programs of any agent say."""
SIZE_MAX = 16 << 20
LOCK_SECONDS, LOCK_PAUSE = 2.0, 0.005

Entries = Dict[str, Dict[str, Any]]


class Refused(Exception):
    """A lease is not given: `code`, words, and whether a later try makes sense."""

    def __init__(self, code: str, text: str, hint: str, later: bool) -> None:
        super().__init__(text)
        self.code, self.text, self.hint, self.later = code, text, hint, later


class Book:
    """One reservation file. Each method opens, locks, perhaps changes and closes it."""

    def __init__(self, path: str, boot: str) -> None:
        self.path, self.boot = path, boot

    def entries(self) -> Entries:
        """Everything that is reserved. Raises Refused."""
        if not os.path.exists(self.path):
            return {}
        with self.changed() as entries:
            return dict(entries)

    @contextlib.contextmanager
    def changed(self) -> Iterator[Entries]:
        """The entries, under the lock; written when they differ at the end. Raises Refused."""
        try:
            fd = _opened(self.path)
        except OSError as error:
            raise self._broken("cannot be opened: %s" % error.strerror) from error
        try:
            self._lock(fd)
            entries = self._parsed(os.pread(fd, SIZE_MAX, 0))
            before = json.dumps(entries, sort_keys=True)
            yield entries
            after = json.dumps(entries, sort_keys=True)
            if after != before:
                self._write(fd, after.encode("ascii") + b"\n")
        finally:
            os.close(fd)

    def living(self, entries: Entries) -> List[Dict[str, Any]]:
        """The entries that take something: made since the machine was started."""
        return [one for one in entries.values() if one.get("boot") == self.boot]

    def gpus_of_others(self, entries: Entries) -> Set[int]:
        """The GPUs that are held by somebody who keeps no entry here."""
        found: Set[int] = set()
        for path in OTHERS:
            found |= _held(path, self.boot)
        for one in self.living(entries):
            found -= set(one["indices"])
        return found

    def _lock(self, fd: int) -> None:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Refused(
                        "locked", "another process has %s locked" % self.path,
                        "`fuser %s` on the host shows which" % self.path, True,
                    ) from None  # fmt: skip
            time.sleep(LOCK_PAUSE)

    def _parsed(self, body: bytes) -> Entries:
        line = body.partition(b"\n")[0].strip(b"\0 ")  # the rest: its writer was killed
        try:
            found = json.loads(line) if line else {}
            for one in found.values():
                (one["home"], one["boot"], [int(index) for index in one["indices"]])
                (float(one["cpus"]), float(one["memory_gib"]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._broken("is damaged: %r" % error) from error
        return dict(found)

    def _write(self, fd: int, body: bytes) -> None:
        try:
            os.posix_fallocate(fd, 0, len(body))  # a full disk says so before anything is changed
            os.pwrite(fd, body, 0)
            os.ftruncate(fd, len(body))
        except OSError as error:
            raise self._broken("cannot be written: %s" % error.strerror) from error

    def _broken(self, what: str) -> Refused:
        return Refused(
            "reservations", "the reservation file %s %s" % (self.path, what),
            "make it readable and writable for all, or remove it once nothing runs there", True,
        )  # fmt: skip


def _opened(path: str) -> int:
    """The file, for all users: a sticky folder refuses O_CREAT of what is another's."""
    plain = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(path, plain | os.O_CREAT | os.O_EXCL, 0o666)
        os.fchmod(fd, 0o666)  # whatever the umask is
        return fd
    except FileExistsError:
        return os.open(path, plain)


def _held(path: str, boot: str) -> Set[int]:
    """The indices in a file of {index: process} whose process lives."""
    try:
        with open(path, "rb") as file:
            entries = json.loads(file.read(SIZE_MAX) or b"{}")
        return {int(index) for index, one in entries.items() if _lives(one, boot)}
    except (OSError, ValueError, AttributeError):
        return set()


def _lives(entry: Any, boot: str) -> bool:
    try:
        found = identity_of(int(entry["pid"]), boot)
        return found is not None and (found.boot, found.started) == (
            entry["boot"], int(entry["started"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, OverflowError):
        return False

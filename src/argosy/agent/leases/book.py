"""The machine's reservation file: who has leased what of it, honoured by all servers and users.

Lines of `CRC {lease: entry}`, of which the last whole one counts; changed under flock. It is never
replaced (in a sticky folder nobody may replace what is another's), and no write touches the line
that counts: whoever is killed in the middle of one leaves the state before it. It lies where a
restart of the machine leaves it: an entry with another boot id is a lease that was lost, and takes
nothing any more. A file that cannot be read is an error and never an empty one: absence would be
taken for evidence.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import zlib

from ..processes.folder import identity_of

TYPE_CHECKING = False  # as `typing` has it, which is not loaded here
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

    Entries = Dict[str, Dict[str, Any]]

MACHINE_FILE = "/var/tmp/argosy-leases.json"
SERVERS_FILE = "/tmp/argosy-gpu-leases.json"
OTHERS = (SERVERS_FILE, "/tmp/argosy-gpus.json")
"""Who holds which GPU, as servers on this machine itself and as programs of any agent say."""
SIZE_MAX = 16 << 20
LOCK_SECONDS, LOCK_PAUSE = 2.0, 0.005
TOUCH_AFTER = 86400.0
"""Seconds; systems remove what lies in such a folder, and nobody has touched for weeks."""


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
    def changed(self, cards: bool = False) -> Iterator[Entries]:
        """The entries, under the lock; written when they differ at the end. Raises Refused.

        `cards`: meanwhile servers on this machine itself choose none, which they do under the lock
        of their own file.
        """
        with contextlib.ExitStack() as held:
            fd = self._locked(held, self.path)
            if time.time() - os.fstat(fd).st_mtime > TOUCH_AFTER:
                os.utime(fd)
            if cards:
                self._locked(held, SERVERS_FILE)
            end, entries = self._newest(os.pread(fd, SIZE_MAX, 0))
            before = json.dumps(entries, sort_keys=True)
            yield entries
            after = json.dumps(entries, sort_keys=True)
            if after != before:
                self._write(fd, end, line_of(after))

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

    def _locked(self, held: contextlib.ExitStack, path: str) -> int:
        """A descriptor of the file, locked until `held` lets go of it. Raises Refused."""
        try:
            fd = _opened(path)
        except OSError as error:
            raise _broken(path, "cannot be opened: %s" % error.strerror) from error
        held.callback(os.close, fd)
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Refused(
                        "locked", "another process has %s locked" % path,
                        "`fuser %s` on the host shows which" % path, True,
                    ) from None  # fmt: skip
            time.sleep(LOCK_PAUSE)

    def _newest(self, body: bytes) -> Tuple[int, Entries]:
        """(where the line that counts ends, what it says). Raises Refused."""
        found = newest_line(body)
        if found is None:
            if body.strip(b"\0"):
                raise _broken(self.path, "is damaged: no line of it is whole")
            return 0, {}
        end, text = found
        try:
            entries = json.loads(text)
            for one in entries.values():
                (one["home"], one["boot"], [int(index) for index in one["indices"]])
                (float(one["cpus"]), float(one["memory_gib"]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _broken(self.path, "is damaged: %r" % error) from error
        return end, dict(entries)

    def _write(self, fd: int, end: int, line: bytes) -> None:
        """A new line behind the one that counts; then, where it has room before itself, a copy of
        it at the front, and the rest is cut off.
        """
        try:
            if not end:  # less than a page is written whole or not at all
                end = os.pwrite(fd, line_of("{}"), 0)
            self._put(fd, end, line)
            os.ftruncate(fd, end + len(line))  # what a killed writer had begun
            if len(line) <= end:
                self._put(fd, 0, line)
                os.ftruncate(fd, len(line))
        except OSError as error:
            raise _broken(self.path, "cannot be written: %s" % error.strerror) from error

    @staticmethod
    def _put(fd: int, at: int, line: bytes) -> None:
        os.posix_fallocate(fd, at, len(line))  # a full disk says so before anything is changed
        while line:
            done = os.pwrite(fd, line, at)
            at, line = at + done, line[done:]


def line_of(text: str) -> bytes:
    """The line that says so."""
    body = text.encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(body), body)


def newest_line(body: bytes) -> Optional[Tuple[int, bytes]]:
    """(where it ends, JSON) of the last whole line, None when there is none."""
    end = body.rfind(b"\n") + 1
    while end > 0:
        begin = body.rfind(b"\n", 0, end - 1) + 1
        check, _, text = body[begin : end - 1].partition(b" ")
        if check == b"%08x" % zlib.crc32(text):
            return end, text
        end = begin
    return None


def _broken(path: str, what: str) -> Refused:
    return Refused(
        "reservations", "the reservation file %s %s" % (path, what),
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

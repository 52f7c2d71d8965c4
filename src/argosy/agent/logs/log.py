"""The log of one attempt: a file that its programs append to, read by offset, with an index of
offset to time.

Offsets are *logical*: bytes since the first one ever written. They stay when the oldest part is
freed (a hole is punched below `kept`) and when a program empties the file (`> /dev/stderr`): then
`base`, what is added to an offset in the file, grows. Times are seconds since the epoch.
"""

from __future__ import annotations

import os
import struct
import time
from typing import Callable, List, Optional, Tuple

from .. import libc
from ..records import dataclass

CHUNK = 65536
MATCH_LONGEST = 65536
"""Regular expressions see so many bytes of a line: they run in the agent's loop."""
HOLE_UNIT = 65536
INDEX_EVERY_S, INDEX_EVERY_BYTES = 1.0, 1 << 20
_TAIL = 64
_RECORD = struct.Struct("<QQQQ")


@dataclass(frozen=True)
class Record:
    """At that time the log had that many (logical) bytes; base and kept as they were then."""

    offset: int
    at: float
    base: int
    kept: int


@dataclass(frozen=True)
class Change:
    """What a look at the file has shown."""

    grew: bool = False
    truncated: bool = False
    capped: bool = False
    uncappable: bool = False
    disk_full: bool = False

    def news(self) -> List[Tuple[str, str]]:
        """(code, text) of what people should know of it."""
        found = []
        if self.truncated:
            text = "the program emptied its own log; use >&2, not >/dev/stderr"
            found.append(("log-truncated", text))
        if self.capped:
            found.append(("log-capped", "the oldest part of the log was freed"))
        if self.uncappable:
            found.append(("log-cap-failed", "this file system cannot free a part of a file"))
        if self.disk_full:
            text = "the disk of the logs is full: what the program writes now is lost"
            found.append(("log-write-failed", text))
        return found


class Index:
    """The records of one log, in a file beside it that the first record makes; a torn last record
    is cut off.
    """

    def __init__(self, path: str) -> None:
        self._path, self._fd = path, -1
        self._count, self._torn = 0, False
        try:
            self._open(0)
        except FileNotFoundError:
            return
        size = os.fstat(self._fd).st_size
        self._count, self._torn = size // _RECORD.size, size % _RECORD.size != 0

    def _open(self, create: int) -> None:
        self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | create, 0o600)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> Record:
        if place < 0:
            place += self._count
        offset, at, base, kept = _RECORD.unpack(
            os.pread(self._fd, _RECORD.size, place * _RECORD.size)
        )
        return Record(offset, at / 1000.0, base, kept)

    def append(self, record: Record) -> None:
        """Add a record; on a full disk it is dropped (times get coarser, nothing else)."""
        body = _RECORD.pack(record.offset, int(record.at * 1000), record.base, record.kept)
        try:
            if self._fd < 0:
                self._open(os.O_CREAT)
            if self._torn:
                os.ftruncate(self._fd, self._count * _RECORD.size)
            self._torn = os.write(self._fd, body) != len(body)
        except OSError:
            return
        self._count += not self._torn

    def body(self, last: Record) -> bytes:
        """All records as a file has them, and one more."""
        body = os.pread(self._fd, self._count * _RECORD.size, 0) if self._count else b""
        return body + _RECORD.pack(last.offset, int(last.at * 1000), last.base, last.kept)

    def last_until(self, at: float) -> Optional[Record]:
        """The last record no later than a time."""
        place = self._first(lambda record: record.at > at)
        return self[place - 1] if place else None

    def first_from(self, at: float) -> Optional[Record]:
        """The first record no earlier than a time."""
        place = self._first(lambda record: record.at >= at)
        return self[place] if place < self._count else None

    def covering(self, offset: int) -> Optional[Record]:
        """The first record that has the byte at an offset: that byte was there by then."""
        place = self._first(lambda record: record.offset > offset)
        return self[place] if place < self._count else None

    def _first(self, holds: Callable[[Record], bool]) -> int:
        """The place of the first record for which it holds (it holds for all after it)."""
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if holds(self[middle]):
                high = middle
            else:
                low = middle + 1
        return low

    def close(self) -> None:
        """Free the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)


class Log:
    """One log. `poll` looks at the file; all else answers from what the last look showed."""

    def __init__(self, path: str, cap_bytes: int = 0) -> None:
        """Open it, creating it where needed; `cap_bytes` 0 means no cap. Raises OSError."""
        self.path, self.cap_bytes = path, cap_bytes
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.index = Index(path + ".index")
        self.base = self.kept = self._size = 0
        self._tail = b""
        self._capping = cap_bytes > 0
        self._pending: Optional[Tuple[int, float]] = None
        self._indexed = (0, time.time())
        if len(self.index):
            last = self.index[-1]
            self.base, self.kept = last.base, last.kept
            self._size = last.offset - last.base
            self._indexed = (last.offset, last.at)

    @property
    def end(self) -> int:
        """The logical offset behind the last byte seen."""
        return self.base + self._size

    def poll(self) -> Change:
        """Look at the file, note its growth in the index, free what is above the cap."""
        stat = os.fstat(self._fd)
        size, now = stat.st_size, stat.st_mtime
        truncated = size < self._size or self._replaced()
        if truncated:
            self.base = self.kept = self.end
            self._size = 0
            self._tail = b""
        grew = size > self._size
        if grew:
            if not len(self.index):  # the first growth is told apart from the second
                self.flush()
            self._size = size
            start = max(0, size - _TAIL)
            self._tail = os.pread(self._fd, size - start, start)
            self._pending = (self.end, now)
        if truncated or self._index_due(now):
            self.flush()
        capped, uncappable = self._cap()
        return Change(grew, truncated, capped, uncappable, grew and self._disk_full())

    def _disk_full(self) -> bool:
        """Whether nothing more can be written where it lies."""
        disk = os.fstatvfs(self._fd)
        return (disk.f_bavail if os.geteuid() else disk.f_bfree) == 0

    def _replaced(self) -> bool:
        """Whether what stands before our offset is not what stood there: emptied and refilled
        meanwhile.
        """
        return bool(self._tail) and (
            os.pread(self._fd, len(self._tail), self._size - len(self._tail)) != self._tail
        )

    def _index_due(self, now: float) -> bool:
        offset, at = self._indexed
        return abs(now - at) >= INDEX_EVERY_S or self.end - offset >= INDEX_EVERY_BYTES

    def flush(self) -> None:
        """Write down the time of the last growth (for when the log falls silent)."""
        if self._pending is not None:
            offset, at = self._pending
            self.index.append(Record(offset, at, self.base, self.kept))
            self._indexed, self._pending = (offset, at), None

    def _cap(self) -> Tuple[bool, bool]:
        step = max(HOLE_UNIT, min(4 << 20, self.cap_bytes // 8))
        if not self._capping or self.end - self.kept <= self.cap_bytes + step:
            return False, False
        low = self.kept - self.base
        high = (self._size - self.cap_bytes) // HOLE_UNIT * HOLE_UNIT
        if high <= low:
            return False, False
        try:
            libc.punch(self._fd, low // HOLE_UNIT * HOLE_UNIT, high - low // HOLE_UNIT * HOLE_UNIT)
        except OSError:
            self._capping = False
            return False, True
        self.kept = self.base + high
        self._pending = self._pending or (self.end, self._indexed[1])
        self.flush()
        return True, False

    def read(self, offset: int, limit: int = CHUNK) -> Tuple[int, bytes]:
        """(where the data starts, data) from a logical offset or the oldest byte kept; b"" at the
        end.
        """
        start = max(offset, self.kept)
        count = min(limit, self.end - start)
        if count <= 0:
            return start, b""
        return start, os.pread(self._fd, count, start - self.base)

    def time_at(self, offset: int) -> float:
        """By when the byte at an offset was there; for one not indexed yet, when the last growth
        was seen.
        """
        record = self.index.covering(offset)
        if record is not None:
            return record.at
        return self._pending[1] if self._pending is not None else self._indexed[1]

    def offset_since(self, at: float) -> int:
        """Where what was written after a time starts (or somewhat before: the index is coarse)."""
        record = self.index.last_until(at)
        return max(self.kept, record.offset if record is not None else 0)

    def offset_until(self, at: float) -> int:
        """Where what was written up to a time ends (or somewhat behind)."""
        record = self.index.first_from(at)
        return record.offset if record is not None else self.end

    def offset_of_tail(self, lines: int) -> int:
        """Where the last so many lines start; a last line without its newline counts."""
        if lines <= 0:
            return self.end
        place, wanted = self.end, lines + 1
        if self.read(self.end - 1)[1] != b"\n":
            wanted -= 1
        while place > self.kept:
            start = max(self.kept, place - CHUNK)
            _, block = self.read(start, place - start)
            count = block.count(b"\n")
            if count >= wanted:
                cut = len(block)
                for _ in range(wanted):
                    cut = block.rindex(b"\n", 0, cut)
                return start + cut + 1
            wanted -= count
            place = start
        return self.kept

    def close(self) -> None:
        """Write down what is pending and free the descriptors."""
        self.flush()
        self.index.close()
        os.close(self._fd)


class Lines:
    """Puts chunks together to lines; a line longer than `longest` is given in parts."""

    def __init__(self, longest: int = 4 << 20) -> None:
        self._rest: List[bytes] = []
        self._length = 0
        self._longest = longest

    def feed(self, data: bytes) -> List[bytes]:
        """The lines that are complete now, with their newlines."""
        if b"\n" not in data and self._length + len(data) < self._longest:
            self._rest.append(data)
            self._length += len(data)
            return []
        whole = b"".join(self._rest) + data
        lines = whole.splitlines(True) if b"\r" not in whole else _split(whole)
        rest = b""
        if lines and not lines[-1].endswith(b"\n") and len(lines[-1]) < self._longest:
            rest = lines.pop()
        self._rest, self._length = ([rest] if rest else []), len(rest)
        return lines

    def rest(self) -> bytes:
        """What is left without a newline; it is forgotten here."""
        rest = b"".join(self._rest)
        self._rest, self._length = [], 0
        return rest


def _split(whole: bytes) -> List[bytes]:
    """Lines end at a newline only: a carriage return is part of a progress bar."""
    parts = whole.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])

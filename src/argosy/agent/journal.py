"""What an agent must still know after a kill -9: values by (kind, id), in an append-only file of
JSON lines.

Each line sets one value, or removes it (null). A last line that was torn is cut off; any other line
that cannot be read is skipped and counted. Blocks are reserved ahead, so that a disk that fills up
does not stop the agent at once; when even they are used up, lines wait in memory and are written as
soon as there is room. The file is rewritten (new file, fsync, rename) when most of it is out of
date.

It is not synced line by line: a power cut also ends what runs here, and the boot id tells.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Optional

from . import libc

RESERVE_BYTES = 1 << 18
COMPACT_BYTES = 1 << 20

Value = Dict[str, Any]


def read(path: str) -> Dict[str, Dict[str, Value]]:
    """The values, by kind and id, of a journal that somebody else may be writing; {} for none."""
    values: Dict[str, Dict[str, Value]] = {}
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return values
    for line in lines:
        try:
            kind, name, value = json.loads(line.decode("utf-8"))
        except (ValueError, TypeError):
            continue
        _set(values, kind, name, value)
    return values


def _set(values: Dict[str, Dict[str, Value]], kind: str, name: str, value: Optional[Value]) -> None:
    table = values.setdefault(kind, {})
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value


class Journal:
    """The values; reading is from memory, writing is one append each."""

    def __init__(self, path: str) -> None:
        """Read the file, or begin one. Raises OSError when it cannot be opened at all."""
        self._path = path
        self.values: Dict[str, Dict[str, Value]] = {}
        self.skipped = 0
        """Lines that could not be read."""
        self._waiting: List[bytes] = []
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = self._load()
        self._reserved = self._size
        self._compacted_size = self._size

    def _load(self) -> int:
        """Take in every whole line; the length of what is good."""
        with open(self._path, "rb") as file:
            body = file.read()
        good = body.rfind(b"\n") + 1
        if good != len(body):
            os.ftruncate(self._fd, good)
        for line in body[:good].split(b"\n")[:-1]:
            try:
                kind, name, value = json.loads(line.decode("utf-8"))
                _set(self.values, kind, name, value)
            except (ValueError, TypeError):
                self.skipped += 1
        return good

    def learn(self) -> None:
        """Take in ended attempts that a server has put into the file since (logs of a pod that is
        gone; a server of this machine keeps them in the home of an agent).
        """
        if os.fstat(self._fd).st_size != self._size:
            for name, value in read(self._path).get("attempt", {}).items():
                if value.get("gone"):
                    self.of("attempt").setdefault(name, value)

    def of(self, kind: str) -> Dict[str, Value]:
        """All values of a kind, by id, in the order of their first writing."""
        return self.values.setdefault(kind, {})

    def get(self, kind: str, name: str) -> Optional[Value]:
        """One value, None when there is none."""
        return self.of(kind).get(name)

    def put(self, kind: str, name: str, value: Optional[Value]) -> None:
        """Set a value (None removes it); it is on disk when this returns, unless `behind` says
        otherwise.
        """
        _set(self.values, kind, name, value)
        line = json.dumps([kind, name, value], separators=(",", ":"), ensure_ascii=True)
        self._waiting.append(line.encode("ascii") + b"\n")
        self.flush()

    @property
    def behind(self) -> int:
        """Lines that wait for room on the disk."""
        return len(self._waiting)

    def flush(self) -> bool:
        """Write what waits; False when the disk does not take it."""
        while self._waiting:
            if not self._append(self._waiting[0]):
                return False
            del self._waiting[0]
        if self._size > COMPACT_BYTES and self._size > 2 * self._compacted_size:
            self.compact()
        return True

    def _append(self, line: bytes) -> bool:
        """One line, whole or not at all."""
        if self._size + len(line) > self._reserved - RESERVE_BYTES // 2:
            try:
                libc.reserve(self._fd, self._size, RESERVE_BYTES + len(line))
                self._reserved = self._size + RESERVE_BYTES + len(line)
            except OSError:
                pass  # not offered here, or the disk is full: then what is reserved is used
        try:
            written = os.write(self._fd, line)
        except OSError:
            written = 0
        if written == len(line):
            self._size += written
            return True
        if written:
            os.ftruncate(self._fd, self._size)
        return False

    def compact(self) -> bool:
        """Rewrite the file with what holds now; False when the disk has no room for that."""
        part = self._path + ".part"
        lines = [
            json.dumps([kind, name, value], separators=(",", ":"))
            for kind, table in self.values.items()
            for name, value in table.items()
        ]
        body = "".join(line + "\n" for line in lines).encode("ascii")
        try:
            fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        except OSError:
            return False
        try:
            view = memoryview(body)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
            os.rename(part, self._path)
        except OSError:
            os.close(fd)
            os.unlink(part)
            self._compacted_size = self._size  # not again at once
            return False
        os.close(self._fd)
        self._fd, self._size, self._reserved = fd, len(body), len(body)
        self._compacted_size = len(body)
        self._waiting.clear()
        return True

    def close(self) -> None:
        """Free the descriptor."""
        os.close(self._fd)

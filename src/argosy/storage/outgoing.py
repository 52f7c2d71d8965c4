"""The contents of a snapshot that a host lacks, as frames: one stream of bytes without gaps, in
pieces of about a mebibyte, so that many small files cost no more than one large one.

A frame is `!BI`: 0 as it is or 1 packed by zlib, and the bytes that follow. One of no bytes is the
end. Everything here blocks.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from argosy.storage import manifest
from argosy.storage.manifest import Line
from argosy.storage.snapshot import MANIFEST

FRAME: Final = 1 << 20
SAMPLE: Final = 16 << 10  # of a frame, to see whether it is worth packing
WORTH: Final = 0.9  # what packing must leave at most
LEVEL: Final = 1
HEAD: Final = struct.Struct("!BI")
END: Final = HEAD.pack(0, 0)


class Snapshot:
    """One snapshot, ready to be sent."""

    def __init__(self, path: Path) -> None:
        """Read its manifest. Raises OSError, ValueError."""
        self.path = path
        os.lstat(path)
        self.packed = path.with_name(path.name + MANIFEST).read_bytes()
        self.lines = manifest.parsed(manifest.unpacked(self.packed))
        self.contents = manifest.contents(self.lines)
        self.size = sum(line.size for line in self.contents)

    def times(self) -> bytes:
        """When its files were changed, packed. Raises OSError."""
        return manifest.times(str(self.path), self.lines)

    def outgoing(self, lacks: Sequence[Sequence[int]], begun: Mapping[str, int]) -> Outgoing:
        """What an agent asks for: ranges of contents, and how much of some it has.

        Raises ValueError, TypeError.
        """
        wanted: list[tuple[str, int, int]] = []
        for first, count in lacks:
            if first < 0 or count < 1 or first + count > len(self.contents):
                raise ValueError("the agent asks for what is not there")
            for number in range(first, first + count):
                line, offset = self.contents[number], int(begun.get(str(number), 0))
                if not 0 <= offset < line.size:
                    raise ValueError("the agent has more of a file than there is")
                wanted.append((self._place(line), offset, line.size))
        return Outgoing(wanted)

    def _place(self, line: Line) -> str:
        return os.path.join(self.path, line.path) if line.path else str(self.path)


class Outgoing:
    """Frame after frame, until the end."""

    def __init__(self, wanted: Iterable[tuple[str, int, int]]) -> None:
        """`wanted`: path, first byte, size of each file."""
        self.sent = 0  # bytes of frames
        self._wanted = iter(wanted)
        self._fd = -1
        self._left = 0  # of the open file
        self._over = False

    def frame(self) -> bytes:
        """The next frame, b"" after the last. Raises OSError, ValueError for a file that shrank."""
        if self._over:
            return b""
        data = self._data()
        self._over = not data
        frame = _framed(data) if data else END
        self.sent += len(frame)
        return frame

    def close(self) -> None:
        """Let go of the open file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _data(self) -> bytes:
        parts: list[bytes] = []
        room = FRAME
        while room:
            if self._fd < 0:
                following = next(self._wanted, None)
                if following is None:
                    break
                path, offset, size = following
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                self._left = size - offset
                os.lseek(self._fd, offset, os.SEEK_SET)
            part = os.read(self._fd, min(room, self._left))
            if not part:
                raise ValueError("a file of the snapshot is not what it was")
            parts.append(part)
            room -= len(part)
            self._left -= len(part)
            if not self._left:
                self.close()
        return b"".join(parts)


def _framed(data: bytes) -> bytes:
    sample = data[:SAMPLE]
    if len(zlib.compress(sample, LEVEL)) <= WORTH * len(sample):
        small = zlib.compress(data, LEVEL)
        if len(small) < len(data):
            return HEAD.pack(1, len(small)) + small
    return HEAD.pack(0, len(data)) + data

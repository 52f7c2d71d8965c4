"""The agent's own log: capped, with the older part in one file beside it.

The launcher and what else the agent starts append to the same file, so a full one is copied and
then emptied, not renamed: everybody goes on at its new beginning. It is emptied before a write, so
whatever an agent says last is in it.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TextIO, cast

MAX_BYTES = 10 << 20
OLDER = ".1"


class Capped:
    """Standard error, where that is the agent's log. A disk that is full swallows what is said."""

    def __init__(self, path: str, fd: int) -> None:
        self._path, self._fd, self._pid = path, fd, os.getpid()

    def write(self, text: str) -> int:
        """Append the text."""
        data = text.encode("utf-8", "backslashreplace")
        try:
            if os.getpid() == self._pid:  # not in a forked child
                make_room(self._path, self._fd, len(data))
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            pass
        return len(text)

    def flush(self) -> None:
        """Nothing is kept back."""


def make_room(path: str, fd: int, size: int = 0) -> None:
    """Empty the log when it is full, or would be with `size` bytes more. Raises OSError."""
    if os.fstat(fd).st_size + size <= MAX_BYTES:
        return
    part = path + OLDER + ".part"
    try:
        shutil.copyfile(path, part)
        os.rename(part, path + OLDER)
    finally:  # with no room for a copy, the cap counts more than the old words
        os.ftruncate(fd, 0)


def cap(path: str, fd: int = 2) -> None:
    """Keep standard error below the cap from now on, if it is the file of that path.

    Only what this process writes is checked: what others append counts at its next write.
    """
    try:
        if not os.path.samestat(os.fstat(fd), os.stat(path)):
            return
        make_room(path, fd)
    except OSError:
        return
    sys.stderr = cast(TextIO, Capped(path, fd))

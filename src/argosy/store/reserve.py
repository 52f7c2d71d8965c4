"""Room kept for a full disk: a file beside the store that is given up so that one can still write.

Without it a full disk would refuse `cancel` and `rm` too, and nothing could be freed by them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Final

RESERVE_BYTES: Final = 2 * 2**20
ROOM_BYTES: Final = 4 * RESERVE_BYTES  # so much must be free before the reserve is made


class Reserve:
    """`store.reserve` beside `store.db`. One thread at a time uses it."""

    def __init__(self, store: Path) -> None:
        self._path = store.with_suffix(".reserve")
        self._kept = False

    def keep(self) -> None:
        """Make it where it is missing and there is room; asked after each write."""
        if self._kept:
            return
        try:
            self._kept = self._whole() or self._made()
        except OSError:
            self._remove()

    def spend(self) -> bool:
        """Give the room back to the disk; False: there was none to give."""
        self._kept = False
        return self._remove()

    def _whole(self) -> bool:
        return self._path.exists() and self._path.stat().st_size == RESERVE_BYTES

    def _made(self) -> bool:
        if shutil.disk_usage(self._path.parent).free < ROOM_BYTES:
            return False
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        finally:
            os.close(descriptor)
        return True

    def _remove(self) -> bool:
        with contextlib.suppress(OSError):
            self._path.unlink()
            return True
        return False

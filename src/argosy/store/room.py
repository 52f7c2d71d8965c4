"""Room within the store for a full disk: pages that its files have already, and nobody else takes.

What fills a disk takes at once whatever is given back to it (`reserve.py`), so then a group could
not even be cancelled. Here nothing is given back: the write-ahead log keeps its blocks from one
round to the next (https://sqlite.org/wal.html), and pages that were freed stay in the file.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

ROUND_BYTES: Final = 4_120_000  # of a log until it begins anew: 1,000 pages and their heads
ROOM_BYTES: Final = 5 * 2**20  # written once: into the log, and from there into the file
LEAST_PAGES: Final = 256  # free in the file; below this they are made again
DISK_BYTES: Final = 6 * ROOM_BYTES  # so much must be free on the disk before any is made


class Room:
    """The pages of one store. Only the thread that writes uses it."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine = engine
        self._log = path.with_name(path.name + "-wal")

    def keep(self) -> None:
        """Make what is missing, where the disk has plenty; asked when there is nothing to write."""
        with contextlib.suppress(DBAPIError, OSError), self._engine.connect() as connection:
            raw: Any = connection.connection.driver_connection
            if self._lacks(raw) and shutil.disk_usage(self._log.parent).free >= DISK_BYTES:
                _make(raw)

    def _lacks(self, raw: Any) -> bool:
        (pages,) = raw.execute("PRAGMA freelist_count").fetchone()
        return pages < LEAST_PAGES or os.stat(self._log).st_size < ROUND_BYTES


def _make(raw: Any) -> None:
    """Write a large table and drop it again; one that an earlier life left behind, too."""
    for statement in (
        "BEGIN IMMEDIATE",
        "DROP TABLE IF EXISTS room",
        "CREATE TABLE room (bytes BLOB)",
        f"INSERT INTO room VALUES (zeroblob({ROOM_BYTES}))",
        "COMMIT",
        "DROP TABLE room",
        "PRAGMA wal_checkpoint(RESTART)",
    ):
        raw.execute(statement).close()

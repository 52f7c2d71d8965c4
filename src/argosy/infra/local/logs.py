"""The end of a log as it lies on the disk, for a host whose agent does not answer.

The agent writes it (`agent/logs/log.py`): the file `output`, and `output.index`, whose last record
tells what is to be added to an offset in the file (it was emptied) and below which all was freed.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

from argosy.infra.api import LogEnd

RECORD: Final = struct.Struct("<QQQQ")  # offset, milliseconds, base, kept


def log_end(output: Path, most: int) -> LogEnd | None:
    """Its last bytes, `most` at the most; None when there are none. Blocks."""
    try:
        with open(output, "rb") as file:
            base, kept = _last_record(output.with_name(output.name + ".index"))
            stat = os.fstat(file.fileno())
            start = max(0, kept - base, stat.st_size - most)
            file.seek(start)
            data = file.read(most)
    except OSError:
        return None
    return LogEnd(base + start, stat.st_mtime, data) if data else None


def _last_record(index: Path) -> tuple[int, int]:
    """(base, kept); zeros where nothing was written yet."""
    try:
        with open(index, "rb") as file:
            count = os.fstat(file.fileno()).st_size // RECORD.size
            file.seek(max(0, count - 1) * RECORD.size)
            _, _, base, kept = RECORD.unpack(file.read(RECORD.size))
    except (OSError, struct.error):
        return 0, 0
    return base, kept

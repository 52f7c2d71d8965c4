"""The server's log: one JSON object a line, fields and not sentences, rotated by size."""

from __future__ import annotations

import json
import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

BYTES_MOST: Final = 10 * 2**20  # of one file
FILES_MOST: Final = 3  # older files kept
STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """A record as one line: at, level, logger, event, and whatever `extra` held."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        data: dict[str, Any] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in STANDARD:
                data[name] = value
        if record.exc_info:
            data["trace"] = self.formatException(record.exc_info)
        return json.dumps(data, default=str, ensure_ascii=False)


def log_to(path: Path, level: int = logging.INFO) -> None:
    """Send the records of this process to `path`. A full disk loses lines, never the server."""
    logging.raiseExceptions = False
    handler = RotatingFileHandler(
        path,
        maxBytes=BYTES_MOST,
        backupCount=FILES_MOST,
        encoding="utf-8",
        errors="backslashreplace",  # a path may hold any byte
    )
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    for noisy in ("uvicorn", "asyncio", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)

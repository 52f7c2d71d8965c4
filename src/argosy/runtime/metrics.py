"""One line of JSON for each step, appended to a file that others can read meanwhile.

Lines bear incarnation, attempt and node, so what a killed attempt wrote beyond its last checkpoint
can be told from what its successor wrote for the same steps: `latest` keeps the newest for each.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Union


class Metrics:
    """An open metrics file; lines of several writers do not mix."""

    def __init__(self, path: Union[str, Path, None] = None) -> None:
        """Append to `path`, by default `$ARGOSY_SHARED_DIR/metrics.jsonl`; its folder is made."""
        where = Path(path) if path else Path(os.environ["ARGOSY_SHARED_DIR"]) / "metrics.jsonl"
        where.parent.mkdir(parents=True, exist_ok=True)
        self.path = where
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file: Optional[int] = os.open(where, flags, 0o666)
        self._end_torn_line()

    def add(self, step: int, **values: Any) -> None:
        """Append one line: `time` (seconds since the epoch), who wrote it, `step`, and `values`.

        Numbers of numpy and the like are taken as their `item()`; NaN and infinities, which JSON
        lacks, become null. Raises `ValueError` once closed.
        """
        if self._file is None:
            raise ValueError("these metrics are closed")
        line = {
            "time": round(time.time(), 3),
            "incarnation": int(os.environ.get("ARGOSY_INCARNATION", "0")),
            "attempt": int(os.environ.get("ARGOSY_ATTEMPT", "0")),
            "node": os.environ.get("ARGOSY_NODE", ""),
            "step": step,
        }
        line.update({key: _plain(value) for key, value in values.items()})
        # One write to a file opened for appending: lines of several writers do not mix.
        os.write(self._file, (json.dumps(line, allow_nan=False) + "\n").encode())

    def close(self) -> None:
        """No more lines; closing twice is fine."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end_torn_line(self) -> None:
        """A writer killed by a full disk or a power cut may have left half a line: close it off."""
        assert self._file is not None
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")


def lines(path: Union[str, Path]) -> List[Dict[str, Any]]:
    """All whole lines, in the order they were written; half a line is passed over."""
    found = []
    for line in Path(path).read_bytes().splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict) and "step" in value:
            found.append(value)
    return found


def latest(path: Union[str, Path]) -> List[Dict[str, Any]]:
    """One line for each step, by step: what the newest attempt wrote for it.

    Steps that only a discarded attempt reached, beyond the newest attempt's last one, stay in until
    the newest attempt has passed them.
    """
    by_step: Dict[int, Dict[str, Any]] = {}
    for line in lines(path):
        known = by_step.get(line["step"])
        if known is None or _age(line) >= _age(known):
            by_step[line["step"]] = line
    return [by_step[step] for step in sorted(by_step)]


def _age(line: Dict[str, Any]) -> Any:
    return (line.get("incarnation", 0), line.get("attempt", 0))


def _plain(value: Any) -> Any:
    """The value as JSON has it."""
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value

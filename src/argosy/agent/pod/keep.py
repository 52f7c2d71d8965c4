"""`agent keep`: ended attempts and the ends of their logs, on standard output, for a server that is
about to remove the host.

    {"attempt": ID, "folder": NAME, "record": {...}}      what the journal knows of it
    {"folder": NAME, "name": "output"|"output.index", "at": OFFSET, "size": BYTES}   then the bytes
    {"end": true}

`at` is the place in the file. What comes before it was freed, or is more than is kept: the index
says so, so that the log is read there as it was read here.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import Any, BinaryIO, Dict

from .. import journal
from ..logs.log import Log, Record
from ..naming import safe_name
from ..processes.locks import locked

KEPT = "kept"
"""The file in the home that is locked meanwhile, and is not empty once all was written."""
KEEP_BYTES = 64 << 20
"""Of the end of each log."""
CHUNK = 1 << 20
OF_A_RECORD = (
    "lease", "group", "stage", "at", "outcome", "cause", "text", "exit_code", "signal",
)  # fmt: skip
OF_AN_ORDER = ("attempt", "node", "task", "index", "number", "incarnation", "goal")
"""What is sent: all else is secret, or says something of this host only (paths)."""


def fetched(home: str = ".") -> bool:
    """Whether all was written to somebody once."""
    try:
        return os.stat(os.path.join(home, KEPT)).st_size > 0
    except OSError:
        return False


def being_fetched(home: str = ".") -> bool:
    """Whether somebody reads it just now."""
    return locked(os.path.join(home, KEPT))


def keep(home: str, out: BinaryIO) -> int:
    """Write all that is there. The agent of that home may run; it waits for this before it leaves.

    Raises OSError.
    """
    if not os.path.isdir(home):
        _write(home, out)
        return 0
    fd = os.open(os.path.join(home, KEPT), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        _write(home, out)
        os.pwrite(fd, b"1", 0)
    finally:
        os.close(fd)
    return 0


def _write(home: str, out: BinaryIO) -> None:
    known = journal.read(os.path.join(home, "journal"))
    for name, record in known.get("attempt", {}).items():
        folder = safe_name(name)
        _say(out, {"attempt": name, "folder": folder, "record": _plain(record)})
        path = os.path.join(home, "attempts", folder, "output")
        if os.path.exists(path):
            _send_log(out, folder, path)
    _say(out, {"end": True})
    out.flush()


def _plain(record: Dict[str, Any]) -> Dict[str, Any]:
    """The record of an attempt that is gone, without what it was started with."""
    kept = {key: record[key] for key in OF_A_RECORD if key in record}
    order = {key: record["order"][key] for key in OF_AN_ORDER if key in record["order"]}
    return dict(kept, order=order, gone=True)


def _send_log(out: BinaryIO, folder: str, path: str) -> None:
    log = Log(path)
    try:
        log.poll()
        log.flush()
        kept = max(log.kept, log.end - KEEP_BYTES)
        at, size = kept - log.base, log.end - kept
        _say(out, {"folder": folder, "name": "output", "at": at, "size": size})
        place = kept
        while place < log.end:
            _, data = log.read(place, min(CHUNK, log.end - place))
            if not data:
                raise OSError("%s was cut off meanwhile" % path)
            out.write(data)
            place += len(data)
        body = log.index.body(Record(log.end, log.time_at(log.end), log.base, kept))
        _say(out, {"folder": folder, "name": "output.index", "at": 0, "size": len(body)})
        out.write(body)
    finally:
        log.close()


def _say(out: BinaryIO, message: Dict[str, Any]) -> None:
    out.write(json.dumps(message).encode("ascii") + b"\n")

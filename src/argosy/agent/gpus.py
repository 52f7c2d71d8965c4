"""The host's reservation file: who holds which GPU, honoured by all servers and users of one
machine.

A JSON file of entries {index: holder}, changed under flock. A holder is a process (boot id, pid,
start time): the agent until the program runs, then the wrapper, so a reservation outlives a killed
agent and never outlives its program. Indices are handed out by the control plane; this file only
notices when two of them disagree.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import Any, Dict, List

from .processes.folder import Identity, identity_of

MACHINE_FILE = "/tmp/argosy-gpus.json"
OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class Reservations:
    """The entries of one file; each method opens, locks, changes and closes it."""

    def __init__(self, path: str, boot: str) -> None:
        self._path, self._boot = path, boot

    def take(self, indices: List[int], mark: str, holder: Identity) -> str:
        """Hold the indices for a mark, or hand them on to a new holder; "" or who holds one of them
        instead.
        """
        if not indices:
            return ""
        with _Locked(self._path) as file:
            entries = self._living(file.entries)
            for index in indices:
                other = entries.get(str(index))
                if other is not None and other["mark"] != mark:
                    return "GPU %d is held by %s (pid %d)" % (index, other["mark"], other["pid"])
            for index in indices:
                entries[str(index)] = {
                    "mark": mark, "boot": holder.boot, "pid": holder.pid, "started": holder.started,
                }  # fmt: skip
            file.entries = entries
        return ""

    def give(self, mark: str) -> None:
        """Hold nothing for that mark any more."""
        if os.path.exists(self._path):
            with _Locked(self._path) as file:
                file.entries = {i: e for i, e in file.entries.items() if e["mark"] != mark}

    def _living(self, entries: Dict[str, Any]) -> Dict[str, Any]:
        """The entries whose holder still is."""
        return {
            index: entry for index, entry in entries.items()
            if entry["boot"] == self._boot
            and identity_of(entry["pid"], self._boot)
            == Identity(self._boot, entry["pid"], entry["started"])
        }  # fmt: skip


def _well_formed(found: Any) -> Dict[str, Any]:
    """The entries but the damaged ones: a file that anybody writes may hold anything."""
    kinds = {"mark": str, "boot": str, "pid": int, "started": int}
    entries = found.items() if isinstance(found, dict) else ()
    return {
        index: entry for index, entry in entries
        if isinstance(entry, dict)
        and all(isinstance(entry.get(name), kind) for name, kind in kinds.items())
    }  # fmt: skip


class _Locked:
    """The file, locked; what `entries` is at the end is written back. Raises OSError."""

    def __init__(self, path: str) -> None:
        try:
            self._fd = os.open(path, OPEN | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(self._fd, 0o666)  # all users of the machine
        except FileExistsError:
            self._fd = os.open(path, OPEN)

    def __enter__(self) -> "_Locked":
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        body = os.pread(self._fd, 1 << 20, 0)
        try:
            found = json.loads(body.decode("utf-8")) if body else {}
        except ValueError:
            found = {}
        self.entries: Dict[str, Any] = _well_formed(found)
        self._before = json.dumps(self.entries, sort_keys=True)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            after = json.dumps(self.entries, sort_keys=True)
            if after != self._before:
                os.pwrite(self._fd, after.encode("ascii"), 0)
                os.ftruncate(self._fd, len(after))
        finally:
            os.close(self._fd)

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
import sys
import time
from typing import Any, Callable, Dict, List, Optional

from . import facts
from .child import Child
from .loop import Loop, Timer
from .processes.folder import Identity, identity_of

MACHINE_FILE = "/tmp/argosy-gpus.json"
USAGE_EVERY = 9.0
"""Seconds: less than between two words of usage, so that each has a look of its own."""
OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
LOCK_AGAIN = 0.02
"""Seconds between tries to get the lock, which anybody on the machine may hold for any time."""
LOCK_TRIES, LOCK_PAUSE = 5, 0.0004
"""An agent holds the lock for less than these tries take: it is not worth a round of the loop."""
TELL_EVERY = 500
"""So many tries in vain are told in the agent's log."""


class Reservations:
    """The entries of one file; each method opens, locks, changes and closes it.

    None waits: where somebody else has the lock, `take` says so, and the others go on trying in the
    agent's loop.
    """

    def __init__(self, path: str, boot: str, loop: Loop) -> None:
        self._path, self._boot, self._loop = path, boot, loop
        self._owed: Dict[str, Callable[[], Any]] = {}
        """Mark -> what is still to be written for it."""
        self._paying: Optional[Timer] = None
        self._tries = 0

    def take(self, indices: List[int], mark: str, holder: Identity) -> str:
        """Hold the indices for a mark; "" or who holds one of them, or the file, instead. Raises
        OSError.
        """
        if not indices:
            return ""
        self._owed.pop(mark, None)
        try:
            return self._take(indices, mark, holder)
        except BlockingIOError:
            return "GPU %d cannot be reserved: another process has %s locked" % (
                indices[0], self._path,
            )  # fmt: skip

    def hand_on(self, indices: List[int], mark: str, holder: Identity) -> None:
        """Let another process hold what the mark has, at once or as soon as can be. Raises
        OSError.
        """
        if indices:
            self._owe(mark, lambda: self._take(indices, mark, holder))

    def give(self, mark: str) -> None:
        """Hold nothing for that mark any more, at once or as soon as can be. Raises OSError."""
        self._owed.pop(mark, None)
        if os.path.exists(self._path):
            self._owe(mark, lambda: self._give(mark))

    def _owe(self, mark: str, write: Callable[[], Any]) -> None:
        try:
            write()
            self._owed.pop(mark, None)
        except BlockingIOError:
            if self._paying is None:
                self._tries = 0
                self._paying = self._loop.after(LOCK_AGAIN, self._pay)
            self._owed[mark] = write

    def _pay(self) -> None:
        """Write what is owed, as far as the lock can be had."""
        self._paying = None
        for mark, write in list(self._owed.items()):
            try:
                write()
            except BlockingIOError:
                break
            except OSError as error:  # it lapses with its holder
                sys.stderr.write("%s: %s\n" % (self._path, error.strerror))
            del self._owed[mark]
        self._tries += 1
        if self._owed:
            if self._tries % TELL_EVERY == 0:
                sys.stderr.write("%s: another process has it locked\n" % self._path)
            pause = LOCK_AGAIN * min(self._tries, 50)
            self._paying = self._loop.after(pause, self._pay)

    def _take(self, indices: List[int], mark: str, holder: Identity) -> str:
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

    def _give(self, mark: str) -> None:
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


class CardUsage:
    """What the machine's cards are used for: the newest that `nvidia-smi` said to a child."""

    def __init__(self, loop: Loop, there: bool) -> None:
        self._loop, self._there = loop, there
        self._found: Dict[int, Dict[str, Any]] = {}
        self._child: Optional[Child] = None
        self._next = 0.0

    def of(self, indices: List[int]) -> Optional[List[Dict[str, Any]]]:
        """The protocol's `gpu` of an attempt with these cards; None while nothing is known.

        Asks again beside it, at most every USAGE_EVERY seconds.
        """
        if not self._there or not indices:
            return None
        now = self._loop.now()
        if self._child is None and now >= self._next:
            self._next = now + USAGE_EVERY
            try:
                self._child = Child(self._loop, facts.gpu_usage, self._answered)
            except OSError:  # no child can be forked just now
                pass
        found = [self._found[index] for index in indices if index in self._found]
        return found or None

    def _answered(self, value: Any, error: Optional[str]) -> None:
        self._child = None
        self._found = {card["index"]: card for card in value or []}

    def close(self) -> None:
        """Ask no more."""
        if self._child is not None:
            self._child.drop()
            self._child = None


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
    """The file, locked; what `entries` is at the end is written back.

    Raises OSError, of which BlockingIOError means that somebody else has it locked.
    """

    def __init__(self, path: str) -> None:
        try:
            self._fd = os.open(path, OPEN | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(self._fd, 0o666)  # all users of the machine
        except FileExistsError:
            self._fd = os.open(path, OPEN)

    def __enter__(self) -> "_Locked":
        for left in reversed(range(LOCK_TRIES)):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if not left:
                    os.close(self._fd)
                    raise
            time.sleep(LOCK_PAUSE)
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

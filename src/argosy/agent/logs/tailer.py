"""Watches the logs of running attempts: quiet ones cost nothing, busy ones a look every 0.1 s
(followed) or 1 s.

A quiet log has a one-shot inotify watch (a permanent one would slow its writer). When it fires, the
log is looked at regularly, and after two silent seconds the watch is set again, then the log looked
at once more. Without inotify every log is looked at once a second.
"""

from __future__ import annotations

import os
import struct
from typing import Callable, Dict, Optional, Set

from .. import libc
from ..loop import Loop, Timer
from .log import Change, Log

LOOK_FOLLOWED, LOOK_ALONE = 0.1, 1.0
SILENT_AFTER = 2.0
_EVENT = struct.Struct("iIII")

OnChange = Callable[[Change], None]


class Watched:
    """One log under watch."""

    def __init__(self, log: Log, on_change: OnChange) -> None:
        self.log, self.on_change = log, on_change
        self.followers: Set[Callable[[], None]] = set()
        self.busy_until = 0.0


class Tailer:
    """All logs of the agent that may still grow."""

    def __init__(self, loop: Loop, inotify: bool = True) -> None:
        """`inotify` False: as on a system that has no instance left."""
        self._loop = loop
        self._watched: Dict[str, Watched] = {}
        self._path_by_watch: Dict[int, str] = {}
        self._busy: Set[str] = set()
        self._timer: Optional[Timer] = None
        self._inotify = -1
        try:
            if inotify:
                self._inotify = libc.inotify()
                loop.on_read(self._inotify, self._fired)
        except OSError:
            pass

    def add(self, log: Log, on_change: OnChange) -> None:
        """Watch a log; `on_change` is told of each growth, truncation and cap."""
        self._watched[log.path] = Watched(log, on_change)
        self._busy.add(log.path)
        self._watched[log.path].busy_until = self._loop.now() + SILENT_AFTER
        self._calm(log.path)  # so its first line is seen at once
        if log.path in self._busy:
            self._look(log.path)
            self._schedule()

    def remove(self, path: str) -> None:
        """Look a last time and watch it no more; its followers are told."""
        watched = self._watched.get(path)
        if watched is None:
            return
        self._look(path)
        watched.log.flush()
        self._watched.pop(path, None)
        self._busy.discard(path)
        for watch in [w for w, p in self._path_by_watch.items() if p == path]:
            libc.inotify_forget(self._inotify, watch)
            del self._path_by_watch[watch]
        for follower in list(watched.followers):
            follower()

    def follow(self, path: str, follower: Callable[[], None]) -> bool:
        """Call it after each growth; False when the log is not watched (it is complete)."""
        watched = self._watched.get(path)
        if watched is None:
            return False
        watched.followers.add(follower)
        self._look(path)
        if path in self._busy:
            self._schedule(restart=True)
        return True

    def unfollow(self, path: str, follower: Callable[[], None]) -> None:
        """Call it no more."""
        watched = self._watched.get(path)
        if watched is not None:
            watched.followers.discard(follower)

    def refresh(self, path: str) -> bool:
        """Look at the log now; False when it is not watched."""
        if path not in self._watched:
            return False
        self._look(path)
        return True

    def busy(self) -> bool:
        """Whether any log is looked at regularly just now."""
        return bool(self._busy)

    def growing(self, path: str) -> bool:
        """Whether the log is still watched."""
        return path in self._watched

    def _fired(self) -> None:
        try:
            events = os.read(self._inotify, 65536)
        except BlockingIOError:
            return
        place = 0
        while place < len(events):
            watch, _, _, length = _EVENT.unpack_from(events, place)
            place += _EVENT.size + length
            path = self._path_by_watch.get(watch)
            if path is not None and path in self._watched and path not in self._busy:
                self._wake(path)

    def _wake(self, path: str) -> None:
        self._busy.add(path)
        self._watched[path].busy_until = self._loop.now() + SILENT_AFTER
        self._look(path)
        self._schedule(restart=bool(self._watched[path].followers))

    def _look(self, path: str) -> bool:
        """One look; whether anything had changed."""
        watched = self._watched[path]
        change = watched.log.poll()
        if not (change.grew or change.truncated or change.capped or change.uncappable):
            return False
        watched.busy_until = self._loop.now() + SILENT_AFTER
        watched.on_change(change)
        for follower in list(watched.followers):
            follower()
        return True

    def _schedule(self, restart: bool = False) -> None:
        if self._timer is not None:
            if not restart:
                return
            self._timer.cancel()
        followed = any(self._watched[path].followers for path in self._busy)
        self._timer = self._loop.after(LOOK_FOLLOWED if followed else LOOK_ALONE, self._round)

    def _round(self) -> None:
        """Look at all busy logs; what has been silent goes back under its inotify watch."""
        self._timer = None
        now = self._loop.now()
        for path in list(self._busy):
            if path not in self._watched:
                self._busy.discard(path)
            elif not self._look(path) and now >= self._watched[path].busy_until:
                self._calm(path)
        if self._busy:
            self._schedule()

    def _calm(self, path: str) -> None:
        """Set the watch first, then look: what came between is not missed."""
        self._watched[path].log.flush()
        if self._inotify < 0:
            return
        try:
            watch = libc.inotify_watch(self._inotify, path, libc.IN_MODIFY | libc.IN_ONESHOT)
        except OSError:
            return
        self._path_by_watch = {w: p for w, p in self._path_by_watch.items() if p != path}
        self._path_by_watch[watch] = path
        if not self._look(path):
            self._busy.discard(path)

    def close(self) -> None:
        """Watch nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._inotify >= 0:
            self._loop.forget(self._inotify)
            os.close(self._inotify)

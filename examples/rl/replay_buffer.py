"""The replay buffer: scored groups of answers wait here until a trainer takes them.

A group bears the version of the weights that answered, `[life, step]`. What an earlier life of the
trainer caused, and what is too old, is thrown away when a trainer asks. Putting into a full buffer
waits, so the answers can never run far ahead of the learning.
"""

from __future__ import annotations

import collections
import threading
from typing import Any

import net

CAPACITY = 48  # groups
WAIT = 10.0  # seconds that a request waits here before it is told to come again


class Buffer:
    """Groups in the order they came; each is handed out once."""

    def __init__(self) -> None:
        self._groups: collections.deque[dict[str, Any]] = collections.deque()
        self._changed = threading.Condition()
        self._dropped = 0

    def put(self, body: dict[str, Any]) -> dict[str, Any]:
        """`{groups}`; waits while the buffer is full."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._groups) < CAPACITY, WAIT):
                raise net.Refused(503, "full")
            self._groups.extend(body["groups"])
            self._changed.notify_all()
        return {}

    def take(self, body: dict[str, Any]) -> dict[str, Any]:
        """`{n, life, oldest_step}` -> n groups of that life, none older; waits for them."""
        with self._changed:
            self._changed.wait_for(lambda: self._usable(body) >= body["n"], WAIT)
            if self._usable(body) < body["n"]:
                raise net.Refused(503, "not enough groups yet")
            groups = [self._groups.popleft() for _ in range(body["n"])]
            self._changed.notify_all()
        return {"groups": groups, "dropped": self._dropped}

    def _usable(self, wish: dict[str, Any]) -> int:
        """Throw away what this trainer cannot use; how many groups are left."""
        kept = [
            group
            for group in self._groups
            if group["version"][0] == wish["life"] and group["version"][1] >= wish["oldest_step"]
        ]
        if len(kept) < len(self._groups):
            self._dropped += len(self._groups) - len(kept)
            self._groups = collections.deque(kept)
            self._changed.notify_all()
        return len(self._groups)


if __name__ == "__main__":
    buffer = Buffer()
    net.serve({"/put": buffer.put, "/take": buffer.take})

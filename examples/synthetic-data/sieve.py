"""The filter: fetches sentences from the generators, keeps each right one once, hands them on."""

from __future__ import annotations

import threading
from typing import Any

import net
from sums import right


class Sieve:
    """What was seen is never handed on a second time."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def batch(self, body: dict[str, Any]) -> dict[str, Any]:
        """`{n}` -> about n new sentences of the generators: all of them, and the ones that pass."""
        # The balanced address: whichever generator is free.
        raw = net.call(net.host("generator"), "/generate", {"n": body["n"]})["sentences"]
        with self._lock:
            kept = []
            for sentence in raw:
                if sentence not in self._seen and right(sentence):
                    self._seen.add(sentence)
                    kept.append(sentence)
        return {"raw": raw, "kept": kept}


if __name__ == "__main__":
    sieve = Sieve()
    net.serve({"/batch": sieve.batch})

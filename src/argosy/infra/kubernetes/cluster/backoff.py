"""How long to wait before a server that is busy, or away, is asked again.

Pauses double, and each is shortened by up to a half, by chance that comes from who waits: many that
were refused in one moment do not come back in one moment. What the server asks for (`Retry-After`)
is waited for in any case, and the pause on top of it.
"""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass
from typing import Final

DOUBLINGS_MAX: Final = 16
TURNS_MAX: Final = 10_000  # that are remembered


def now() -> float:
    """Seconds on the clock of the loop that runs."""
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class Backoff:
    """The pauses of one who asks again and again; `tries`: how often in a row it was in vain."""

    who: str  # one of its kind, wherever others ask
    first: float  # seconds
    most: float
    tries: int = 0

    def pause(self, at_least: float = 0.0) -> float:
        """Seconds until the next try; `at_least`: what the server asked for."""
        whole = min(self.most, self.first * 2.0 ** min(self.tries, DOUBLINGS_MAX))
        self.tries += 1
        chance = zlib.crc32(f"{self.who} {self.tries}".encode()) / 2**32
        return at_least + whole * (1.0 - chance / 2)


class Turns:
    """When each of many may try again."""

    def __init__(self, first: float, most: float) -> None:
        self._first, self._most = first, most
        self._next: dict[str, tuple[float, Backoff]] = {}

    def refused(self, who: str, at_least: float = 0.0) -> None:
        """It was in vain; the next try is later than the last time."""
        if len(self._next) > TURNS_MAX:
            self._next.clear()
        _, backoff = self._next.get(who, (0.0, Backoff(who, self._first, self._most)))
        self._next[who] = (now() + backoff.pause(at_least), backoff)

    def over(self, who: str) -> None:
        """It succeeded, or is tried no more."""
        self._next.pop(who, None)

    async def come(self, who: str, seconds: float) -> bool:
        """Wait for its turn, so long at most; whether that has come."""
        left = self._next[who][0] - now() if who in self._next else 0.0
        await asyncio.sleep(max(0.0, min(left, seconds)))
        return left <= seconds

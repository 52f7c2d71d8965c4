"""The only reader of time in the control plane.

`now` is wall time at the start of the process, no lower than a floor (the newest time in the
store), plus what CLOCK_BOOTTIME has counted since: it never goes backwards, and a suspended
machine's sleep counts. Nothing else in the control plane reads a clock.
"""

from __future__ import annotations

import asyncio
import time


class Clock:
    """Seconds since the epoch that only grow."""

    def __init__(self, floor: float = 0.0) -> None:
        self._offset = max(time.time(), floor) - boottime()

    def now(self) -> float:
        """The time now, in seconds since the epoch."""
        return self._offset + boottime()

    async def sleep(self, seconds: float) -> None:
        """Wait; cancellation is normal."""
        await asyncio.sleep(max(0.0, seconds))


def boottime() -> float:
    """Seconds since the machine started, its sleeps included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall() -> float:
    """The wall clock, for people and for file names; never for decisions."""
    return time.time()

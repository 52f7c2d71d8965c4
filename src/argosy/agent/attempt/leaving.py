"""The host goes away: everything on it is to end, each with its grace, and then it is left."""

from __future__ import annotations

from typing import Callable, Dict, Optional

from ..decide import Stage
from ..loop import Loop, Timer
from ..pod.keep import being_fetched, fetched
from .attempts import Attempt

LEFT_AFTER = 2.0
"""Seconds that servers have to hear what has ended, and to fetch its logs."""

AGAIN, FETCH_MOST = 0.1, 60.0
"""Seconds between looks whether logs are being fetched, and how long that is waited for."""


class Leaving:
    """The end of all attempts of an agent. What had not ended by itself is LOST: it is replaced."""

    def __init__(self, loop: Loop, attempts: Dict[str, Attempt]) -> None:
        self._loop, self._attempts = loop, attempts
        self._left: Optional[Callable[[], None]] = None
        """What is called at the end; set once it has begun."""
        self._going: Optional[Timer] = None
        """The next look whether to leave; one at a time."""
        self._waits = int(FETCH_MOST / AGAIN)

    def begin(self, left: Callable[[], None]) -> None:
        """End everything; then, told or not, call `left`. Said again, it is one end."""
        if self._left is not None:
            return
        self._left = left
        living = [one for one in self._attempts.values() if one.stage is not Stage.ENDED]
        for attempt in living:
            self._end(attempt)
        if not living:
            self._go_after(LEFT_AFTER if self._attempts and not fetched() else 0.0)

    def joined(self, attempt: Attempt) -> None:
        """An order for one more has come."""
        if self._left is not None:
            self._end(attempt)

    def look(self) -> None:
        """An attempt has changed."""
        if self._left is not None and self._all_ended():
            self._go_after(LEFT_AFTER)

    def _all_ended(self) -> bool:
        return all(one.stage is Stage.ENDED for one in self._attempts.values())

    def _go_after(self, seconds: float) -> None:
        if self._going is None:
            self._going = self._loop.after(seconds, self._go)

    def _go(self) -> None:
        """Leave, unless somebody fetches the logs just now, or one more has to end first."""
        assert self._left is not None
        self._going = None
        if not self._all_ended():
            return  # its end is a change
        if being_fetched() and self._waits:
            self._waits -= 1
            self._go_after(AGAIN)
        else:
            self._left()

    def _end(self, attempt: Attempt) -> None:
        attempt.record["leaving"] = True
        attempt.save()
        self._loop.soon(attempt.advance)

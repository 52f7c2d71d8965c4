"""Regular expressions that users wrote, searched without holding up the agent.

A pattern such as `(a+)+$` can take years over a short line. So a search in the agent's own process
is cut off by a timer (the regular expression engine looks for signals as it backtracks); what was
cut off, and what the engine would do without looking, is done by a forked child with a time limit.
"""

from __future__ import annotations

import re
import signal
from typing import Any, Callable, List, Optional

from ..child import Child
from ..loop import Loop
from .log import MATCH_LONGEST

SPARE_S = 0.05
"""How long the loop can wait for a search."""
LIMIT_S = 3
"""How long a child may search; whole seconds."""
SHORT = 4096
"""Each start in a line can cost its length without a look at signals: 10 ms for so many bytes."""
PATTERN_MAX = 16384
"""Bytes of a pattern: to compile it takes time too."""
_REPEATS = re.compile(rb"[*+{]")

Found = Callable[[Optional[List[int]]], None]


class TooSlow(Exception):
    """The timer has cut the search off."""


class Search:
    """One pattern, searched in lines. Raises ValueError for what is no regular expression."""

    def __init__(self, loop: Loop, pattern: str) -> None:
        self._loop = loop
        self._child: Optional[Child] = None
        self._slow = False
        """It was cut off once: from then on a child searches."""
        text = pattern.encode("utf-8", "surrogateescape")
        if len(text) > PATTERN_MAX:
            raise ValueError("a regular expression of more than %d bytes" % PATTERN_MAX)
        try:
            self._pattern = re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            words = str(error) or type(error).__name__
            raise ValueError("not a regular expression: %s" % words) from error
        self._repeats = _REPEATS.search(text) is not None

    def now(self, lines: List[bytes]) -> Optional[List[int]]:
        """The places of the lines that match; None: ask `later`, since it may take too long."""
        if self._slow or (self._repeats and any(len(line) > SHORT for line in lines)):
            return None
        found = _cut_off(lambda: self._search(lines))
        self._slow = found is None
        return found

    def later(self, lines: List[bytes], answer: Found) -> None:
        """Search in a child. `answer(places)`, or None when that takes too long. Raises OSError."""

        def done(value: Any, error: Optional[str]) -> None:
            self._child = None
            answer(value if error is None else None)

        self._child = Child(self._loop, lambda: self._limited(lines), done)

    def _limited(self, lines: List[bytes]) -> List[int]:
        """In the child: the alarm ends it, also when the agent was killed meanwhile."""
        signal.alarm(LIMIT_S)
        return self._search(lines)

    def _search(self, lines: List[bytes]) -> List[int]:
        search = self._pattern.search
        return [place for place, line in enumerate(lines) if search(line, 0, MATCH_LONGEST)]

    def close(self) -> None:
        """Search no more; nobody is told."""
        if self._child is not None:
            self._child.drop()
            self._child = None


class _Alarm:
    """The agent's SIGALRM: set once, and it raises only while a search is to be cut off."""

    ready = armed = False

    @classmethod
    def rang(cls, *_: object) -> None:
        """The signal's callback."""
        if cls.armed:
            cls.armed = False
            raise TooSlow


def _cut_off(work: Callable[[], List[int]]) -> Optional[List[int]]:
    """What `work` gives within SPARE_S, else None. For the main thread."""
    if not _Alarm.ready:
        signal.signal(signal.SIGALRM, _Alarm.rang)
        _Alarm.ready = True
    try:
        _Alarm.armed = True
        signal.setitimer(signal.ITIMER_REAL, SPARE_S)
        found: Optional[List[int]] = work()
        _Alarm.armed = False
    except TooSlow:
        found = None
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    return found

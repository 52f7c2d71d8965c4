"""Regular expressions that users wrote, searched without holding up the agent.

A pattern such as `(a+)+$` can take years over a short line. So a search in the agent's own process
is cut off by a timer (the regular expression engine looks for signals as it backtracks); what was
cut off, and what the engine would do without looking, is done by a forked child with a time limit.
Both limits are of processor time: a busy host makes no pattern slow.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from typing import Any, Callable, List, Optional

from ..child import Child
from ..loop import Loop, Timer
from .log import MATCH_LONGEST

SPARE_S = 0.05
"""How long the loop can work at a search."""
LIMIT_S = 3
"""How long a child may work at it."""
FORK_AGAIN = 1.0
"""Seconds until it is tried again, where no child can be forked just now."""
SHORT = 4096
"""Each start in a line can cost its length without a look at signals: 10 ms for so many bytes."""
PATTERN_MAX = 16384
"""Bytes of a pattern: to compile it takes time too."""
_REPEATS = re.compile(rb"[*+{]")

Found = Callable[[Optional[List[int]], str], None]
"""The places of the lines that match, or None and what went wrong: "" when it takes too long."""


class TooSlow(Exception):
    """The timer has cut the search off."""


class Search:
    """One pattern, searched in lines. Raises ValueError for what is no regular expression."""

    def __init__(self, loop: Loop, pattern: str) -> None:
        self._loop = loop
        self._child: Optional[Child] = None
        self._again: Optional[Timer] = None
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
        """Search in a child, as soon as one can be forked."""

        def done(value: Any, error: Optional[str]) -> None:
            assert self._child is not None
            status, self._child = self._child.status, None
            slow = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGVTALRM
            if error is None:
                answer(value, "")
            else:
                answer(None, "" if slow else error)

        try:
            self._child = Child(self._loop, lambda: self._limited(lines), done)
        except OSError as error:
            sys.stderr.write("search: %s\n" % error)
            self._again = self._loop.after(FORK_AGAIN, lambda: self.later(lines, answer))

    def _limited(self, lines: List[bytes]) -> List[int]:
        """In the child: the alarm ends it, also when the agent was killed meanwhile."""
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
        return self._search(lines)

    def _search(self, lines: List[bytes]) -> List[int]:
        search = self._pattern.search
        return [place for place, line in enumerate(lines) if search(line, 0, MATCH_LONGEST)]

    def close(self) -> None:
        """Search no more; nobody is told."""
        if self._again is not None:
            self._again.cancel()
        if self._child is not None:
            self._child.drop()
            self._child = None


class _Alarm:
    """The agent's SIGVTALRM: set once, and it raises only while a search is to be cut off."""

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
        signal.signal(signal.SIGVTALRM, _Alarm.rang)
        _Alarm.ready = True
    try:
        _Alarm.armed = True
        signal.setitimer(signal.ITIMER_VIRTUAL, SPARE_S)
        found = work()
        _Alarm.armed = False  # it may ring until here, and is caught
        return found
    except TooSlow:
        return None
    finally:
        _Alarm.armed = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)

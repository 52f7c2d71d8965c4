"""Whether a running attempt is healthy: its readiness probe at work, of whichever kind."""

from __future__ import annotations

import os
import signal
from typing import Any, Callable, Dict, List, Optional

from ..groups import Group
from ..logs.log import CHUNK, Log
from ..place import Place
from ..probes import Answered, LogMatch, Ready, Watch, read_ready
from .guests import ENTERING_AGAIN, Entering, Guest, Size

SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh")
SEARCH_BYTES = 1 << 20
"""How much of a log is searched at once."""
SEARCH_AGAIN = 1.0
"""Seconds until a part of a log is searched again whose search was killed."""
TOO_SLOW = (
    "the regular expression of `ready: {log: ...}` takes too long to search a part of the log, so"
    " this probe has ended and will not show the task ready; write it without nested `*` and `+`"
)
Invite = Callable[[List[str], Optional[Size]], Guest]


def shell() -> str:
    """The shell that runs scripts: bash where there is one."""
    return next((path for path in SHELLS if os.path.exists(path)), SHELLS[-1])


class Health:
    """The health of one attempt; without a probe it is healthy from `start` to `end`."""

    def __init__(self, place: Place, group: Group, node: str, log: Callable[[], Log]) -> None:
        self.healthy = False
        self.on_change: Callable[[], None] = lambda: None
        self.on_event: Callable[[str, str], None] = lambda code, text: None
        self._place, self._group, self._node, self._log = place, group, node, log
        self._watch: Optional[Watch] = None
        self._match: Optional[LogMatch] = None
        self._offset = 0
        self._problem = ""
        self._over = self._searching = False

    def start(
        self, ready: Optional[Dict[str, Any]], invite: Invite, dismiss: Callable[[Guest], None]
    ) -> None:
        """The program runs: begin to look. `invite` and `dismiss` run a command beside it."""
        probe = read_ready(ready)
        if probe is None:
            self._set(True)
            return
        if self._watch is not None:
            return
        watch = self._watch = Watch(self._place.loop, probe, lambda healthy, _: self._set(healthy))
        if probe.kind == "log":
            self._match = LogMatch(self._place.loop, probe.text)
            self.log_grew()
        elif probe.kind == "command":
            text, limit = probe.text, probe.timeout
            watch.start_asking(lambda answer: self._run(text, limit, answer, invite, dismiss))
        else:
            watch.start_asking(lambda answer: self._ask(probe, answer))

    def _ask(self, probe: Ready, answer: Answered) -> None:
        """Ask from the group's network. When its holder was killed there is none: not healthy."""
        if self._group.network is None:
            self._place.loop.soon(lambda: answer(False, "the group's network is gone"))
            return
        self._place.prober(self._group).ask(self._node, probe, answer)

    def log_grew(self) -> None:
        """Search what is new in the log, if that is the probe."""
        if not self._searching:
            self._search()

    def _search(self) -> None:
        """Search so much as the loop can wait for; the rest in its next rounds."""
        self._searching = False
        for _ in range(SEARCH_BYTES // CHUNK):
            if self._match is None or self._watch is None or self._watch.healthy:
                return
            start, data = self._log().read(self._offset)
            if not data:
                return
            self._offset = start + len(data)
            found = self._match.feed(data, self._searched)
            if found is None:
                self._searching = True
                return
            if found:
                self._watch.matched()
        self._searching = True
        self._place.loop.soon(self._search)

    def _searched(self, found: Optional[bool], problem: str) -> None:
        """A child has searched a part. None: it was killed by something (a `problem`), so again;
        or it could not come to an end, nor will it ever.
        """
        if self._watch is None:
            return
        if problem:
            if problem != self._problem:
                self._problem = problem
                self.on_event("probe-failed", "`ready: {log: ...}`: a search failed: " + problem)
            self._place.loop.after(SEARCH_AGAIN, self._search_again)
            return
        if found is None:
            self._match = None
            self.on_event("probe-too-slow", TOO_SLOW)
            return
        if found:
            self._watch.matched()
        self._search()

    def _search_again(self) -> None:
        if self._match is not None:
            self._match.again(self._searched)

    def _run(
        self,
        text: str,
        limit: float,
        answer: Answered,
        invite: Invite,
        dismiss: Callable[[Guest], None],
    ) -> None:
        """Run the probe's command; exit code 0 within its time-out means yes."""
        loop = self._place.loop
        if self._over:
            return
        try:
            guest = invite([shell(), "-c", text], None)
        except Entering:
            loop.after(ENTERING_AGAIN, lambda: self._run(text, limit, answer, invite, dismiss))
            return
        except (OSError, LookupError) as error:
            words = str(error)
            loop.soon(lambda: answer(False, words))
            return
        late = loop.after(limit, lambda: guest.signal(signal.SIGKILL))

        def ended() -> None:
            late.cancel()
            dismiss(guest)
            answer(guest.status == 0, "wait status %s" % guest.status)

        def drain(fd: int) -> None:
            if not os.read(fd, 65536):
                loop.forget(fd)

        guest.close_input()
        loop.on_read(guest.out, lambda: drain(guest.out))
        loop.on_read(guest.err, lambda: drain(guest.err))
        guest.on_end = ended

    def _set(self, healthy: bool) -> None:
        if healthy != self.healthy and not (healthy and self._over):
            self.healthy = healthy
            self.on_change()

    def end(self) -> None:
        """The program is being stopped or has ended: not healthy any more, and no more looks."""
        self._over = True
        if self._match is not None:
            self._match.close()
            self._match = None
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        self._set(False)

"""Finds out whether an attempt is ready: by HTTP, by TCP, by a command, or by a line of its log.

HTTP and TCP questions go through one `net` prober per network. A probe ticks while its attempt
runs, never faster than its interval; without a probe an attempt is healthy as soon as it runs.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Callable, Dict, List, Mapping, Optional

from .logs.log import Lines
from .logs.search import Search
from .loop import Loop, Timer
from .net import network, probe
from .records import dataclass

LITERAL_MAX = 2000
"""Characters of what is no regular expression that are looked for as they are."""
OnHealth = Callable[[bool, str], None]
Answered = Callable[[bool, str], None]
Matched = Callable[[Optional[bool], str], None]


@dataclass(frozen=True)
class Ready:
    """A readiness probe; times in seconds, `kind` is http, tcp, command or log."""

    kind: str
    port: int = 0
    path: str = "/"
    text: str = ""
    interval: float = 1.0
    timeout: float = 2.0
    failures: int = 3
    start_period: float = 0.0


def read_ready(value: Optional[Mapping[str, Any]]) -> Optional[Ready]:
    """A probe from the protocol's map: `{"kind": "http", ...}`, or as in the file `{"http":
    "/health", ...}`.
    """
    if not value:
        return None
    known = {
        name: value[name]
        for name in ("port", "path", "text", "interval", "timeout", "failures", "start_period")
        if value.get(name) is not None
    }
    kind = value.get("kind")
    if kind is None:
        kind = next(name for name in ("http", "tcp", "command", "log") if name in value)
        given = value[kind]
        known["path" if kind == "http" else "port" if kind == "tcp" else "text"] = given
    return Ready(kind=str(kind), **known)


class Prober:
    """The questions of all attempts in one network, asked by the network's prober process."""

    def __init__(self, loop: Loop, net: network.Network) -> None:
        self._loop, self._net = loop, net
        self._asked: Dict[int, Answered] = {}
        self._prober: Optional[probe.Prober] = None

    def follow(self, net: network.Network) -> None:
        """The network has more nodes now, or was made anew."""
        if net.holder != self._net.holder:
            self._broken()
        self._net = net
        if self._prober is not None:
            self._prober.network = net

    def ask(self, node: str, ready: Ready, answer: Answered) -> None:
        """Ask once; `answer(ok, detail)` is called, also when no answer can come."""
        try:
            if self._prober is None:
                self._prober = probe.Prober(self._net)
                self._loop.on_read(self._prober.fd, self._read)
            number = self._prober.ask(node, ready.kind, ready.port, ready.path, ready.timeout)
        except (OSError, network.NetworkError) as error:
            words = "cannot probe: %s" % error
            self._broken()
            self._loop.soon(lambda: answer(False, words))
            return
        self._asked[number] = answer

    def _read(self) -> None:
        assert self._prober is not None
        try:
            results = self._prober.results()
        except (EOFError, OSError):
            self._broken()
            return
        for result in results:
            answer = self._asked.pop(result["id"], None)
            if answer is not None:
                answer(bool(result["ok"]), str(result["detail"]))

    def _broken(self) -> None:
        asked, self._asked = self._asked, {}
        self.close()
        for answer in asked.values():
            answer(False, "the prober ended")

    def close(self) -> None:
        """End the prober process."""
        if self._prober is not None:
            self._loop.forget(self._prober.fd)
            self._prober.close()
            self._prober = None


class Watch:
    """One probe at work; `on_health(healthy, detail)` is called on every change."""

    def __init__(self, loop: Loop, ready: Ready, on_health: OnHealth) -> None:
        self.healthy = False
        self._loop, self._ready, self._on_health = loop, ready, on_health
        self._failed = 0
        self._timer: Optional[Timer] = None
        self._closed = False
        self._began = loop.now()
        self._ask: Optional[Callable[[Answered], None]] = None

    def start_asking(self, ask: Callable[[Answered], None]) -> None:
        """Ask now, and again an interval after each answer."""
        self._ask = ask
        self._tick()

    def _tick(self) -> None:
        if not self._closed and self._ask is not None:
            self._ask(self._answered)

    def _answered(self, ok: bool, detail: str) -> None:
        if self._closed:
            return
        if ok:
            self._failed = 0
            self._set(True, detail)
        else:
            in_start = self._loop.now() - self._began < self._ready.start_period
            self._failed += 0 if in_start else 1
            if self.healthy and self._failed >= self._ready.failures:
                self._set(False, detail)
        interval = self._ready.interval
        if not self.healthy:  # it is being waited for: soon after the start, look often
            interval = min(interval, 0.05 + (self._loop.now() - self._began) / 10)
        self._timer = self._loop.after(interval, self._tick)

    def _set(self, healthy: bool, detail: str) -> None:
        if healthy != self.healthy:
            self.healthy = healthy
            self._on_health(healthy, detail)

    def matched(self) -> None:
        """The log showed the line."""
        self._set(True, "the log shows it")

    def close(self) -> None:
        """Ask no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()


class LogMatch:
    """Looks for a regular expression in the lines of a log, fed in any pieces."""

    def __init__(self, loop: Loop, pattern: str) -> None:
        self._lines = Lines(1 << 20)
        self._part: List[bytes] = []
        try:
            self._search = Search(loop, pattern)
        except ValueError as error:
            sys.stderr.write("probe: %.500s: %s\n" % (pattern, error))
            self._search = Search(loop, re.escape(pattern[:LITERAL_MAX]))

    def feed(self, data: bytes, later: Matched) -> Optional[bool]:
        """Whether a line that is complete now matches; None: `later` is told.

        It is told None, and what went wrong: "" when the search takes too long.
        """
        self._part = self._lines.feed(data)
        found = self._search.now(self._part)
        if found is not None:
            return bool(found)
        self.again(later)
        return None

    def again(self, later: Matched) -> None:
        """Search the lines of the last `feed` in a child."""

        def done(found: Optional[List[int]], problem: str) -> None:
            later(None if found is None else bool(found), problem)

        self._search.later(self._part, done)

    def close(self) -> None:
        """Look no more."""
        self._search.close()

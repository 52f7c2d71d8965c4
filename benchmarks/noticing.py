"""How fast things are noticed: the first log line, a killed process, its replacement, a frozen and
a lost host; beside supervisord and Ray Jobs.

    python benchmarks/noticing.py [--quick] [--no-ray]
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import peers
from argosy.sdk.client import LogQuery
from home import Home, group_text, until
from marks import FIVE, Marks, now
from measure import Budget, Options, Row, Spread, alone, interleaved, load

BUDGET_LINE = Budget("p50 <= 200 ms", 200.0)
BUDGET_SEEN = Budget("p50 <= 20 ms, p99 <= 100 ms", 20.0, 100.0)
BUDGET_BACK = Budget("<= 150 ms", 150.0)
BUDGET_SUSPECT = Budget("<= 6 s", 6.5)
BUDGET_REPLACED = Budget("<= 3 s", 3.0)
RESTART = "restart: {on: [failure, lost], max: 1000000, backoff: 0s, scope: node}"
POOL = "local:\n  pools:\n    bench: {hosts: 8, cpus: 8, memory: 16}\n"


def first_line(options: Options) -> Iterator[Row]:
    """From the request to the first line of the log at a client that follows it."""
    with Home() as home:
        file = home.file("line", "name: line\nrun: echo hello; exec sleep 1000\n")

        def ours() -> float:
            began = now()
            group = home.launch(file)
            for chunk in home.client.logs(group, LogQuery(follow=True)):
                if chunk.data:
                    break
            took = now() - began
            home.end(group)
            return took

        def bare() -> float:
            began = now()
            with os.popen("echo hello") as pipe:
                pipe.readline()
            return now() - began

        ours()
        found = interleaved(options.rounds(20), {"ours": ours, "bare shell": bare})
    line = found.pop("ours")
    yield Row("submit to first log line", line, "ms", BUDGET_LINE, found, load(), 1000.0)


def killed(options: Options) -> Iterator[Row]:
    """kill -9 of a program: until the event is at a client that follows, until it listens again."""
    rounds = options.rounds(25)
    with Home() as home, closing(peers.Supervisord(home.folder, FIVE)) as watched:
        ours = Killing(home)
        watched.start()
        both: dict[str, list[tuple[float, float]]] = {"ours": [], "supervisord": []}
        for _ in range(rounds):
            both["ours"].append(ours.once())
            both["supervisord"].append(watched.seen_and_back())
        watched.stop()
    spreads = [
        {name: Spread(tuple(value[place] for value in values)) for name, values in both.items()}
        for place in (0, 1)
    ]
    seen, back = (one.pop("ours") for one in spreads)
    if options.ray:
        with Home() as home, closing(peers.Ray(home.folder)) as ray:
            ray.killed_seen()
            spreads[0]["Ray Jobs"] = Spread(tuple(ray.killed_seen() for _ in range(5)))
    yield Row("kill -9 to event at a client", seen, "ms", BUDGET_SEEN, spreads[0], load(), 1000.0)
    yield Row("restart in place, to the marker", back, "ms", BUDGET_BACK, spreads[1], load(), 1e3)


class Killing:
    """A group of five whose trainer is killed again and again, and a client that follows events."""

    def __init__(self, home: Home, extra: str = RESTART) -> None:
        self.marks = Marks(home.folder)
        file = home.file("killed", group_text("killed", self.marks, extra))
        self.group = home.launch(file)
        self.marks.read()
        home.running(self.group)
        self._ended: list[float] = []
        self._news = threading.Condition()
        events = home.client.events(self.group, follow=True)
        threading.Thread(target=self._follow, args=(events,), daemon=True).start()

    def _follow(self, events: Iterator[object]) -> None:
        for event in events:
            if getattr(event, "code", "") == "attempt-ended":
                with self._news:
                    self._ended.append(now())
                    self._news.notify_all()

    def once(self) -> tuple[float, float]:
        """Seconds to the event, and to the marker of the next attempt."""
        self.marks.read()
        pid = self.marks.pid("trainer")
        (self.marks.folder / "trainer").unlink()
        before = len(self._ended)
        began = now()
        os.kill(pid, signal.SIGKILL)
        with self._news:
            if not self._news.wait_for(lambda: len(self._ended) > before, 10.0):
                raise TimeoutError("no event of the killed program")
        seen = self._ended[before] - began
        back = self.marks.read()["trainer"] - began
        time.sleep(0.2)  # between the rounds, out of what is timed: let it come to rest
        return seen, back


def hosts(options: Options) -> Iterator[Row]:
    """A frozen host becomes suspect; what ran on a lost one runs elsewhere."""
    suspect, replaced = [], []
    with Home(POOL) as home:
        marks = Marks(home.folder, ("trainer", "data"))
        extra = "resources: {infra: local/bench, cpus: 6}"
        group = home.launch(home.file("hosts", group_text("hosts", marks, extra)))
        marks.read()
        home.running(group)
        client = home.client
        for _ in range(options.rounds(3)):
            began = now()
            client.chaos(group, "freeze-host", "data", 0)
            until(lambda: _is_suspect(home, group), "the frozen host is suspect")
            suspect.append(now() - began)
            client.chaos(group, "thaw-host", "data", 0)
            until(lambda: not _is_suspect(home, group), "the host is heard again")
            (marks.folder / "trainer").unlink()
            began = now()
            client.chaos(group, "lose-host", "trainer", 0)
            replaced.append(marks.read()["trainer"] - began)
            home.running(group)
    frozen, lost = Spread(tuple(suspect)), Spread(tuple(replaced))
    yield Row("frozen virtual host to suspect", frozen, "s", BUDGET_SUSPECT, {}, load())
    yield Row("lost virtual host to replaced", lost, "s", BUDGET_REPLACED, {}, load())


def _is_suspect(home: Home, group: str) -> bool:
    return any(one.code == "agent-suspect" for one in home.client.group(group).reasons)


LINES = (first_line, killed, hosts)

if __name__ == "__main__":
    alone(LINES, __doc__)

"""A wall clock that jumps while a server runs, or before it starts: no group takes notice.

Nobody sets the machine's clock: the server under test reads one that a file moves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from argosy.clock import Clock
from tests.faults.scene import (
    detach,
    ended,
    events,
    follow,
    group,
    nap,
    node,
    running,
    sleeper,
    task,
    until,
)
from tests.whole.home import Home

DAY = 86_400.0
SERVE = """
import pathlib, sys, time
real, file = time.time, pathlib.Path(sys.argv[1])
time.time = lambda: real() + float(file.read_text())
from argosy.server.main import main
sys.exit(main(["--home", sys.argv[2]]))
"""


def test_the_clock_of_a_life_grows_whatever_the_wall_does(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    seen = [clock.now()]
    for wall in (seen[0] - DAY, seen[0] + DAY):
        monkeypatch.setattr(time, "time", lambda wall=wall: wall)
        seen.append(clock.now())
    assert seen == sorted(seen)
    assert seen[-1] - seen[0] < DAY / 2


def test_the_clock_starts_no_lower_than_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = time.time() + DAY
    assert newest <= Clock(newest).now() < newest + DAY / 2
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert newest <= Clock(newest).now() < newest + DAY / 2


@contextmanager
def served(home: Home, ahead: float) -> Iterator[None]:
    """A server whose wall clock is `ahead` seconds before the machine's."""
    jump(home, ahead)
    home.path.mkdir(mode=0o700, exist_ok=True)
    log = (home.path.parent / "clock.log").open("a")
    file = str(home.path.parent / "ahead")
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE, file, str(home.path)], stdout=log, stderr=log
    )
    try:
        until("it answers", lambda: (home.path / "server.sock").exists())
        yield
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
        log.close()


def jump(home: Home, ahead: float) -> None:
    """Set the server's wall clock."""
    new = home.path.parent / "ahead.new"
    new.write_text(str(ahead))
    os.replace(new, home.path.parent / "ahead")


@pytest.mark.whole
def test_jumps_of_a_day_both_ways_change_nothing(home: Home) -> None:
    go = home.path.parent / "go"
    wait = f"sleep {nap(home)} &\nuntil test -e {go}; do sleep 0.05; done\nkill $!\nexit 4"
    retry = "restart: {on: [failure], max: 1, backoff: 0s..1s}"
    with served(home, 0.0):
        running(home, "jumps", group("jumps", task("t", wait, retry), header="max_duration: 1h\n"))
        program = sleeper(home)
        for ahead in (DAY, -DAY):
            jump(home, ahead)
            follow(home, "short", "name: short\nrun: 'true'\n").ended().good()
            assert sleeper(home) == program
    with served(home, -3 * DAY):
        assert sleeper(home) == program
        assert node(home, "jumps", "t-0")["stage"] == "RUNNING"
        detach(home, "later", "name: later\nrun: 'true'\n")
        assert ended(home, "later")["phase"] == "SUCCEEDED"
    with served(home, 3 * DAY):
        found = ended(home, "jumps")  # three days are more than its max_duration
        assert (found["phase"], found["cause"]) == ("FAILED", "deadline"), found
        at = [one["at"] for one in events(home, "jumps")]
        assert at == sorted(at)

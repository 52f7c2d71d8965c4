"""Regular expressions of users: whatever they are, the agent goes on answering."""

from __future__ import annotations

import base64
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from argosy.agent.attempt import health
from argosy.agent.logs import search as searching
from argosy.agent.logs.log import Log
from argosy.agent.logs.search import PATTERN_MAX, SPARE_S, Search
from argosy.agent.loop import Loop
from tests.agent.rig import Agent, Wire, eventually

Answer = tuple[list[int] | None, str]
CATASTROPHIC = "(a+)+$"
LINE = "a" * 40 + "b"


def searched(pattern: str, lines: list[bytes]) -> list[int] | None:
    """What a search comes to, by whichever of its two ways."""
    loop = Loop()
    search = Search(loop, pattern)
    found = search.now(lines)
    if found is not None:
        return found
    found, problem = found_later(loop, search, lines)
    assert not problem
    search.close()
    loop.close()
    return found


def found_later(loop: Loop, search: Search, lines: list[bytes]) -> Answer:
    """What a child of the search comes to."""
    answers: list[Answer] = []
    search.later(lines, lambda found, problem: answers.append((found, problem)))
    turn_until(loop, lambda: bool(answers))
    return answers[0]


def turn_until(loop: Loop, look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not look():
        loop.once(1.0)
        assert time.monotonic() < deadline


def test_a_search_finds_the_lines_that_match() -> None:
    lines = [b"one\n", b"two\n", b"three\n"]
    assert searched("^t", lines) == [1, 2]
    assert searched("x", lines) == []
    long = [b"a" * 50_000 + b"\n", b"b" * 50_000 + b"\n"]
    assert searched("b+", long) == [1]  # by a child: it has repeats, and the lines are long
    assert searched("bbb", long) == [1]


@pytest.mark.parametrize("pattern", ["(", "a" * (PATTERN_MAX + 1), "(" * 9999 + ")" * 9999])
def test_what_is_no_regular_expression_is_refused(pattern: str) -> None:
    loop = Loop()
    with pytest.raises(ValueError, match="regular expression"):
        Search(loop, pattern)
    loop.close()


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (CATASTROPHIC, LINE.encode()),
        ("(a|a)*$", LINE.encode()),
        ("a*a*b", b"a" * 4096),  # no catastrophe, yet long
        ("a*b", b"a" * 65536),  # nothing in it looks at signals
    ],
)
def test_the_loop_is_held_up_for_a_moment_only(pattern: str, line: bytes) -> None:
    loop = Loop()
    search = Search(loop, pattern)
    began = time.thread_time()
    assert search.now([line] * 100) is None
    assert time.thread_time() - began < SPARE_S + 1.0  # of this process alone, whatever else runs
    loop.close()


def test_a_search_without_an_end_is_given_up() -> None:
    assert searched(CATASTROPHIC, [LINE.encode()]) is None


class Stalled(Search):
    """A search on a host where it gets no turn for longer than its limits."""

    def _search(self, lines: list[bytes]) -> list[int]:
        select.select([], [], [], 0.3)
        return super()._search(lines)


def test_a_stall_makes_no_pattern_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "LIMIT_S", 0.1)
    loop = Loop()
    assert Stalled(loop, "b+").now([b"a\n", b"b\n"]) == [1]
    assert found_later(loop, Stalled(loop, "b+"), [b"a\n", b"b\n"]) == ([1], "")
    loop.close()


def test_a_search_that_is_killed_is_not_called_slow() -> None:
    loop = Loop()
    search = Search(loop, CATASTROPHIC)
    answers: list[Answer] = []
    search.later([LINE.encode()], lambda found, problem: answers.append((found, problem)))
    assert search._child is not None
    os.kill(search._child.pid, signal.SIGKILL)
    turn_until(loop, lambda: bool(answers))
    assert answers == [(None, "it was killed")]
    loop.close()


def test_an_error_in_a_search_disarms_the_alarm() -> None:
    class Failing(Search):
        def _search(self, lines: list[bytes]) -> list[int]:
            raise MemoryError

    loop = Loop()
    with pytest.raises(MemoryError):
        Failing(loop, "a").now([b"a"])
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    assert not searching._Alarm.armed
    loop.close()


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Probe:
    monkeypatch.setattr(searching, "FORK_AGAIN", 0.01)
    monkeypatch.setattr(health, "SEARCH_AGAIN", 0.01)
    return Probe(tmp_path / "output")


class Probe:
    """`ready: {log: ...}` of a log that the test writes."""

    def __init__(self, path: Path) -> None:
        self.path, self.loop, self.events = path, Loop(), []
        self.log = Log(str(path))
        place = SimpleNamespace(loop=self.loop)
        self.health = health.Health(place, None, "a-0", lambda: self.log)
        self.health.on_event = lambda code, text: self.events.append(code)

    def grow(self, data: bytes) -> None:
        with open(self.path, "ab") as file:
            file.write(data)
        self.log.poll()
        self.health.log_grew()

    def close(self) -> None:
        self.health.end()
        self.log.close()
        self.loop.close()


def test_a_probe_that_cannot_fork_takes_nothing_twice(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken twice, the beginning `ab` of a line would stand behind another."""
    fork, refused = os.fork, []

    def refuse() -> int:
        if len(refused) > 1:
            return fork()
        refused.append(1)
        raise OSError(11, "no more processes")

    monkeypatch.setattr(os, "fork", refuse)
    probe.health.start({"log": "^ab+$"}, lambda *_: None, lambda *_: None)  # type: ignore[arg-type]
    probe.grow(b"x" * 5000 + b"\nab")
    probe.grow(b"b\n")
    turn_until(probe.loop, lambda: probe.health.healthy)
    assert len(refused) == 2
    assert not probe.events
    probe.close()


def test_a_probe_whose_search_was_killed_searches_again(probe: Probe) -> None:
    probe.health.start({"log": "^ab+$"}, lambda *_: None, lambda *_: None)  # type: ignore[arg-type]
    probe.grow(b"x" * 5000 + b"\nabb\n")
    assert probe.health._match is not None
    child = probe.health._match._search._child
    assert child is not None
    os.kill(child.pid, signal.SIGSTOP)
    os.kill(child.pid, signal.SIGKILL)
    turn_until(probe.loop, lambda: probe.health.healthy)
    assert set(probe.events) <= {"probe-failed"}  # none when it was quicker than the kill
    probe.close()


def test_a_catastrophic_grep_is_an_error_and_freezes_nothing(agent: Agent) -> None:
    agent.run("A", f"echo {LINE}; echo other; sleep 1000")
    eventually(lambda: b"other" in agent.log("A"))
    wire = Wire(
        agent.home, {"op": "logs", "attempt": agent.id("A"), "grep": CATASTROPHIC, "follow": True}
    )
    assert agent.status()["pid"] == agent.pid  # answered while it is searched
    (answer,) = wire.rest()
    wire.close()
    assert (answer["error"], answer["code"]) == ("InputError", "agent/grep-too-slow")
    assert agent.log("A", grep="^o") == b"other\n"


def test_a_slow_pattern_that_ends_finds_the_same_lines(agent: Agent) -> None:
    agent.run("A", "for i in 1 2 3; do head -c 20000 /dev/zero | tr '\\0' a; echo $i; done")
    agent.end("A")
    lines = agent.ask(op="logs", attempt=agent.id("A"), grep="a+2")
    found = [base64.b64decode(line["data"]) for line in lines if "data" in line]
    assert b"".join(found) == b"a" * 20000 + b"2\n"
    assert lines[0]["offset"] == 20002
    assert lines[-1] == {"end": 60006}


def test_a_catastrophic_probe_is_told_and_freezes_nothing(agent: Agent, folder: Path) -> None:
    ready = {"log": CATASTROPHIC}
    agent.run("A", f"echo {LINE}; sleep 1000", ready=ready)
    agent.until(lambda: any(event["code"] == "probe-too-slow" for event in agent.events))
    assert not agent.attempts[agent.id("A")]["healthy"]
    assert agent.stop("A")[0] == "stopped"


def test_a_probe_with_long_lines_is_found_by_a_child(agent: Agent, folder: Path) -> None:
    run = "head -c 20000 /dev/zero | tr '\\0' a; echo; echo serving on 80; sleep 1000"
    agent.run("A", run, ready={"log": "serving on [0-9]+"})
    agent.until(lambda: agent.attempts[agent.id("A")]["healthy"])
    agent.kill()
    agent.start()
    agent.until(lambda: agent.attempts[agent.id("A")]["healthy"])
    assert os.path.exists(f"/proc/{agent.pid}")

"""Regular expressions of users: whatever they are, the agent goes on answering."""

from __future__ import annotations

import base64
import os
import time
from pathlib import Path

import pytest

from argosy.agent.logs.search import PATTERN_MAX, SPARE_S, Search
from argosy.agent.loop import Loop
from tests.agent.rig import Agent, Wire, eventually

CATASTROPHIC = "(a+)+$"
LINE = "a" * 40 + "b"


def searched(pattern: str, lines: list[bytes]) -> list[int] | None:
    """What a search comes to, by whichever of its two ways."""
    loop = Loop()
    search = Search(loop, pattern)
    found = search.now(lines)
    if found is not None:
        return found
    answers: list[list[int] | None] = []
    search.later(lines, answers.append)
    deadline = time.monotonic() + 60
    while not answers:
        loop.once(1.0)
        assert time.monotonic() < deadline
    search.close()
    loop.close()
    return answers[0]


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

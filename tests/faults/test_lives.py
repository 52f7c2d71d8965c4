"""Server, agent and wrapper are killed or stopped: what runs goes on, and nothing is forgotten."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from scripts import leftovers
from tests.faults.scene import (
    agent_pids,
    ended,
    events,
    follow,
    group,
    lives,
    nap,
    node,
    parent,
    running,
    server_pid,
    sleeper,
    task,
    until,
    with_word,
)
from tests.whole.home import Home

pytestmark = pytest.mark.whole
SUSPENDED = [float(one) for one in os.environ.get("ARGOSY_SUSPENDED", "7").split()]  # seconds


def gate(home: Home) -> Path:
    """The file that `waiting` waits for."""
    return home.path.parent / "go"


def waiting(home: Home, code: int) -> str:
    """A program that lives until its file is there, and exits with a code of its own."""
    return f"""
sleep {nap(home)} &
until test -e {gate(home)}; do sleep 0.05; done
kill $!
exit {code}
"""


def kill(pid: int) -> None:
    """SIGKILL, and wait until the process is gone."""
    os.kill(pid, signal.SIGKILL)
    until(f"{pid} is gone", lambda: not lives(pid))


def attempts(home: Home, name: str) -> set[int]:
    """The numbers of the newest attempts of a group's nodes."""
    return {one["attempt"] for one in home.nodes(name).values()}


def test_a_follower_lives_through_the_death_of_its_server(home: Home) -> None:
    counting = f"""
for i in $(seq 1 100000); do
  echo "line $i end"
  test ! -e {gate(home)} || exit 0
  sleep 0.02
done
exit 1
"""
    following = follow(home, "counts", group("counts", task("t", counting)))
    following.until("it counts", lambda: "line 5 end" in following.so_far().out)
    kill(server_pid(home))
    following.until("it notices", lambda: "no answer from the server" in following.so_far().err)
    home.argosy("status").good()  # starts another one
    following.until("it is back", lambda: "the server is back" in following.so_far().err)
    gate(home).touch()
    said = following.ended().good()
    seen = [int(one) for one in re.findall(r"line (\d+) end", said.out)]
    assert seen == list(range(1, len(seen) + 1)), f"lost or doubled: {seen}"
    assert attempts(home, "counts") == {1}


@pytest.mark.parametrize("who", ["server", "agent", "both"])
def test_what_is_killed_beside_a_program_loses_no_exit_code(home: Home, who: str) -> None:
    running(home, "kept", group("kept", task("t", waiting(home, 5))))
    program, agents = sleeper(home), agent_pids(home)
    if who != "agent":
        kill(server_pid(home))
    if who != "server":
        for pid in agents:
            kill(pid)
    if who != "agent":  # it ends while nobody looks
        gate(home).touch()
        until("the program has ended", lambda: not lives(program))
    else:
        until("another agent", lambda: agent_pids(home) != agents and lives(agent_pids(home)[0]))
        assert sleeper(home) == program
        gate(home).touch()
    found = ended(home, "kept")
    assert found["phase"] == "FAILED", found
    assert node(home, "kept", "t-0")["exit_code"] == 5
    assert attempts(home, "kept") == {1}


def test_a_server_killed_again_and_again_leaves_programs_alone(home: Home) -> None:
    running(home, "calm", group("calm", task("t", waiting(home, 0), "num_nodes: 2")))
    before = until("both run", lambda: len(found := with_word(nap(home))) == 2 and found)
    for _ in range(3):
        kill(server_pid(home))
        assert attempts(home, "calm") == {1}
    assert with_word(nap(home)) == before
    gate(home).touch()
    assert ended(home, "calm")["phase"] == "SUCCEEDED"


def test_a_program_whose_wrapper_was_killed_is_lost_and_started_anew(home: Home) -> None:
    running(home, "wrapped", group("wrapped", task("t", f"exec sleep {nap(home)}")))
    program = sleeper(home)
    kill(parent(program))
    until("it is started anew", lambda: node(home, "wrapped", "t-0")["attempt"] == 2)
    until("it runs", lambda: node(home, "wrapped", "t-0")["stage"] == "RUNNING")
    assert sleeper(home) != program
    told = [one["text"] for one in events(home, "wrapped") if one["code"] == "attempt-ended"]
    assert len(told) == 1, told
    assert "lost" in told[0], told
    home.argosy("cancel", "wrapped", "--now").good()
    assert not with_word(nap(home))


def test_a_home_whose_every_process_but_the_server_was_killed_goes_on(home: Home) -> None:
    probed = "ready: {tcp: 8000}"
    serve = 'exec python3 -m http.server 8000 --bind "$ARGOSY_HOSTNAME"'
    running(home, "struck", group("struck", task("web", serve, probed)))
    until("it is healthy", lambda: node(home, "struck", "web-0")["healthy"])
    for pid in ours(home) - {server_pid(home)}:  # the agent, the network and all in it
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until("it is started anew", lambda: node(home, "struck", "web-0")["attempt"] == 2)
    until("it is healthy again", lambda: node(home, "struck", "web-0")["healthy"])
    home.argosy("cancel", "struck", "--now").good()
    ended(home, "struck")


def ours(home: Home) -> set[int]:
    """Every process of a home."""
    found = [re.match(r"process (\d+) ", line) for line in leftovers.of_home(home.path)]
    return {int(one[1]) for one in found if one} | set(with_word(nap(home)))


def frozen(home: Home, who: str) -> set[int]:
    """Stop them all; programs that start others are looked for until there is no new one."""
    pids: set[int] = set()
    while new := _chosen(home, who) - pids:
        for pid in new:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        pids |= new
    return pids


def _chosen(home: Home, who: str) -> set[int]:
    match who:
        case "agents":
            return set(agent_pids(home))
        case "server":
            return {server_pid(home)}
        case _:
            return ours(home)


@pytest.mark.parametrize("seconds", SUSPENDED)
@pytest.mark.parametrize("who", ["everything", "agents", "server"])
def test_a_suspended_machine_loses_nothing(home: Home, who: str, seconds: float) -> None:
    running(home, "asleep", group("asleep", task("t", waiting(home, 0), "num_nodes: 2")))
    before = until("both run", lambda: len(found := with_word(nap(home))) == 2 and found)
    pids = frozen(home, who)
    try:
        time.sleep(seconds)  # this long the machine sleeps
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    assert with_word(nap(home)) == before
    gate(home).touch()
    found = ended(home, "asleep")
    assert found["phase"] == "SUCCEEDED", found
    assert attempts(home, "asleep") == {1}, events(home, "asleep")
    assert not {"attempt-lost", "host-lost"} & {one["code"] for one in events(home, "asleep")}

"""The fence: what runs ends when no heartbeat was acknowledged for so long, whoever is left to see
it; nothing ends while heartbeats are acknowledged, or without a fence.

Heartbeats are acknowledged while a test reads (`until`), and not while it waits (`eventually`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.rig import Agent, eventually, exists, marked

FENCE = 3.0
PSS_MAX_KIB = 8 << 10
ESCAPES = (
    "(setsid sleep 1000 &); (env -i setsid sleep 1001 &); trap '' TERM; sleep 1002; sleep 1003"
)
NETWORKS = ("host", "isolated")


@pytest.fixture
def fenced(new_agent: Callable[[], Agent]) -> Agent:
    """An agent with a fence."""
    agent = new_agent()
    agent.fence = FENCE
    agent.start()
    return agent


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def watchdog(agent: Agent) -> int:
    """The pid of the agent's watchdog, 0 when there is none."""
    found = marked(f"agent@{agent.home}").items()
    pids = [pid for pid, command in found if "agent.fence.watchdog" in command and exists(pid)]
    assert len(pids) < 2
    return pids[0] if pids else 0


def running(agent: Agent, network: str = "host") -> list[int]:
    """Start a program that spreads; the wrapper, the program and the three that it spread to."""
    agent.run("A", ESCAPES, network=network)

    def sleeping() -> list[int]:
        found = agent.processes("A")
        sleeps = [pid for pid in found if command(pid).startswith(b"sleep")]
        return [*found[:1], *sleeps] if len(sleeps) >= 3 else []

    return agent.until(sleeping, "all of it runs")


def command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def gone(pids: list[int]) -> bool:
    return not any(exists(pid) for pid in pids)


def keep_on(agent: Agent, seconds: float) -> None:
    """Acknowledge heartbeats for so long."""
    until = boottime() + seconds
    agent.until(lambda: boottime() > until)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_living_agent_ends_all_and_reports_it(fenced: Agent, network: str) -> None:
    pids = running(fenced, network)
    eventually(lambda: gone(pids), "everything ends")
    fenced.connect()
    assert fenced.end("A") == ("lost", None, None, "fenced")
    fenced.run("B", "echo again; sleep 1000", lease="L2", network=network)
    fenced.until(lambda: fenced.log("B") == b"again\n")


@pytest.mark.parametrize("network", NETWORKS)
def test_the_watchdog_ends_all_when_the_agent_was_killed(fenced: Agent, network: str) -> None:
    pids = running(fenced, network)
    fenced.kill()
    assert not gone(pids)
    eventually(lambda: gone(pids), "everything ends")
    eventually(lambda: not watchdog(fenced), "a watchdog with nothing to watch ends")
    fenced.start()
    assert fenced.end("A") == ("lost", None, None, "fenced")


def test_it_does_so_when_the_wrapper_was_killed_too(fenced: Agent) -> None:
    """Then it finds sessions and marks (but for what took off both)."""
    fenced.run("A", "(setsid sleep 1000 &); sleep 1001; sleep 1002")
    wrapper = fenced.processes("A")[0]

    def sleeps() -> list[int]:
        found = [one for one in fenced.processes("A") if command(one).startswith(b"sleep")]
        return found if len(found) == 2 else []

    rest = fenced.until(sleeps)
    fenced.kill()
    os.kill(wrapper, signal.SIGKILL)
    assert not gone(rest)
    eventually(lambda: gone(rest), "everything ends")
    fenced.start()
    assert fenced.end("A") == ("lost", None, None, "fenced")


def test_while_heartbeats_are_acknowledged_all_goes_on(fenced: Agent) -> None:
    pids = running(fenced)
    keep_on(fenced, 2 * FENCE)
    assert all(exists(pid) for pid in pids)
    assert fenced.attempts[fenced.id("A")]["stage"] == 30


def test_what_lay_in_the_socket_of_a_frozen_host_undoes_nothing(fenced: Agent) -> None:
    """Neither an acknowledgement nor an assignment: the stream is cut, and what runs ends."""
    pids = running(fenced)
    fenced.acks = False
    seen = len(fenced.messages)
    fenced.until(lambda: any(m["type"] == "heartbeat" for m in fenced.messages[seen:]))
    number = next(m["n"] for m in reversed(fenced.messages) if m["type"] == "heartbeat")
    dog = watchdog(fenced)
    os.kill(dog, signal.SIGSTOP)
    os.kill(fenced.pid, signal.SIGSTOP)
    frozen = boottime()
    eventually(lambda: boottime() > frozen + FENCE + 0.1)
    assert all(exists(pid) for pid in pids)  # who would have ended them is frozen
    fenced.control.send({"type": "ack", "n": number})
    fenced.assign(("Z", 30), run="sleep 1000", lease="L9")
    os.kill(fenced.pid, signal.SIGCONT)
    with pytest.raises((EOFError, OSError)):
        fenced.until(lambda: False, "the stream is cut")
    eventually(lambda: gone(pids), "everything ends")
    os.kill(dog, signal.SIGCONT)
    fenced.acks = True
    fenced.connect()
    assert fenced.end("A") == ("lost", None, None, "fenced")
    assert "L9" not in fenced.leases


def test_what_ended_before_the_fence_ran_out_keeps_its_end(fenced: Agent, folder: Path) -> None:
    fenced.run("A", f"while [ ! -e {folder}/go ]; do sleep 0.02; done; exit 7")
    pids = fenced.processes("A")
    fenced.kill()
    killed = boottime()
    (folder / "go").touch()
    eventually(lambda: gone(pids))
    eventually(lambda: boottime() > killed + FENCE)
    fenced.start()
    assert fenced.end("A") == ("failed", 7, None, "exit")


def test_a_killed_watchdog_is_started_again(fenced: Agent) -> None:
    """By the agent that started it, and by one that found it there."""
    running(fenced)

    def once_more() -> None:
        first = eventually(lambda: watchdog(fenced))
        os.kill(first, signal.SIGKILL)
        fenced.until(lambda: watchdog(fenced) not in (0, first))

    once_more()
    once_more()
    found = watchdog(fenced)
    fenced.kill()
    fenced.start()
    assert watchdog(fenced) == found
    once_more()


def test_the_watchdog_costs_next_to_nothing(fenced: Agent) -> None:
    fenced.until(lambda: sum(m["type"] == "heartbeat" for m in fenced.messages) > 2)
    pid = watchdog(fenced)

    def used() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = used()
    keep_on(fenced, 5.0)
    assert (used() - before) / os.sysconf("SC_CLK_TCK") < 0.05  # 1 % of a core
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    (pss,) = [int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")]
    print("watchdog:", pss, "KiB", used() - before, "ticks")
    assert pss < PSS_MAX_KIB


def test_without_a_fence_there_is_neither_watchdog_nor_acknowledgement(agent: Agent) -> None:
    agent.run("A", "sleep 1000")
    agent.until(lambda: any(m["type"] == "heartbeat" for m in agent.messages))
    assert not any("n" in m for m in agent.messages)
    assert not watchdog(agent)
    assert not (agent.home / "fence").exists()


def test_a_fence_is_taken_away_with_its_watchdog(fenced: Agent) -> None:
    pids = running(fenced)
    fenced.fence = 0.0
    fenced.connect()
    eventually(lambda: not watchdog(fenced))
    keep_on(fenced, FENCE + 1.0)
    assert all(exists(pid) for pid in pids)


def test_a_shorter_fence_holds_from_the_next_acknowledgement(fenced: Agent) -> None:
    """Until then the server must think of the longer one, and is told so."""
    fenced.fence = FENCE / 2
    fenced.connect()
    hello = [m for m in fenced.messages if m["type"] == "hello"][-1]
    assert hello["fence"] == FENCE
    fenced.until(lambda: fenced.messages[-1].get("fence") == FENCE / 2)


def test_a_longer_fence_holds_at_once(fenced: Agent) -> None:
    pids = running(fenced)
    fenced.fence = 3 * FENCE
    fenced.connect()
    hello = [m for m in fenced.messages if m["type"] == "hello"][-1]
    assert hello["fence"] == 3 * FENCE
    connected = boottime()
    eventually(lambda: boottime() > connected + 1.5 * FENCE)
    assert all(exists(pid) for pid in pids)


def test_a_shorter_fence_is_kept_by_the_agent_itself(fenced: Agent) -> None:
    """Its watchdog is frozen."""
    fenced.fence = 100 * FENCE
    fenced.connect()
    fenced.fence = FENCE
    fenced.connect()
    fenced.until(lambda: fenced.messages[-1].get("fence") == FENCE)
    pids = running(fenced)
    dog = eventually(lambda: watchdog(fenced))
    os.kill(dog, signal.SIGSTOP)
    try:
        eventually(lambda: gone(pids), "everything ends")
    finally:
        os.kill(dog, signal.SIGCONT)

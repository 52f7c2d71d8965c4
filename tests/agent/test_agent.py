"""The whole agent on a real machine: assigned, killed, restarted, refused."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.agent.gpus import MACHINE_FILE
from argosy.agent.logs.own import MAX_BYTES
from tests.agent.rig import Agent, Wire, eventually, exists, marked


def test_exit_code_and_log_of_a_whole_attempt(agent: Agent, folder: Path) -> None:
    run = f"echo two; while [ ! -e {folder}/go ]; do sleep 0.02; done; exit 3"
    agent.assign(("A", 20), setup="echo one", run=run)
    agent.stage("A", 20)
    agent.assign(("A", 30), setup="echo one", run=run)
    agent.stage("A", 30)
    (folder / "go").touch()
    assert agent.end("A") == ("failed", 3, None, "exit")
    assert agent.log("A") == b"one\ntwo\n"
    stages = [stage for stage, _ in agent.history[agent.id("A")]]
    assert stages == sorted(stages)
    assert {10, 20, 30, 50} <= set(stages)


def test_nothing_runs_before_the_goal_is_running(agent: Agent, folder: Path) -> None:
    agent.assign(("A", 20), run=f"touch {folder}/ran")
    assert agent.stage("A", 20)["address"]
    agent.assign(("A", 20), run=f"touch {folder}/ran")
    agent.until(lambda: agent.leases["L1"]["serial"] == [1, 2])
    assert not (folder / "ran").exists()
    agent.assign(("A", 50))
    assert agent.end("A") == ("stopped", None, None, "never-started")
    assert not (folder / "ran").exists()


def test_setup_that_fails_ends_the_attempt(agent: Agent) -> None:
    agent.assign(("A", 20), setup="echo broken; exit 4", run="true")
    assert agent.end("A") == ("failed", 4, None, "setup-failed")
    assert agent.log("A") == b"broken\n"


def test_setup_runs_once_for_the_attempts_of_a_node(agent: Agent, folder: Path) -> None:
    setup = f"echo x >> {folder}/setups; touch made-by-setup"
    agent.assign(("A", 30), setup=setup, run="ls")
    assert agent.end("A")[0] == "succeeded"
    agent.assign(("B", 30), setup=setup, run="ls")
    assert agent.end("B")[0] == "succeeded"
    assert agent.log("B") == b"made-by-setup\n"
    assert (folder / "setups").read_text() == "x\n"


def test_stop_is_a_signal_and_the_outcome_stopped(agent: Agent) -> None:
    agent.run("A", "trap 'echo bye; exit 7' TERM; echo hi; while :; do sleep 0.05; done")
    eventually(lambda: agent.log("A") == b"hi\n")
    assert agent.stop("A") == ("stopped", 7, None, "exit")
    assert agent.log("A").endswith(b"bye\n")


def test_exit_status_survives_kill_9_of_the_agent(agent: Agent, folder: Path) -> None:
    agent.run("A", f"while [ ! -e {folder}/go ]; do sleep 0.02; done; exit 41")
    agent.run("B", "kill -15 $$", lease="L2")
    assert agent.end("B")[:3] == ("failed", None, 15)
    agent.kill()
    (folder / "go").touch()
    eventually(lambda: agent.exited("A"))
    agent.start()
    assert agent.end("A") == ("failed", 41, None, "exit")


def test_running_program_is_adopted_and_stopped_by_the_next_agent(agent: Agent) -> None:
    agent.run("A", "sleep 1000")
    agent.kill()
    agent.start()
    assert agent.stage("A", 30)["stage"] == 30
    assert agent.stop("A")[:3] == ("stopped", None, 15)


def test_launcher_killed_9_loses_nothing(agent: Agent) -> None:
    agent.run("A", "sleep 1000")
    launcher = agent.status()["launcher"]
    os.kill(launcher, signal.SIGKILL)
    agent.run("B", "exit 9", lease="L2")
    assert agent.end("B")[:2] == ("failed", 9)
    assert agent.status()["launcher"] != launcher
    assert agent.stop("A")[:3] == ("stopped", None, 15)


def test_wrapper_killed_9_is_lost_and_the_rest_is_killed(agent: Agent) -> None:
    agent.run("A", "(setsid sleep 1000 &); (env -i setsid sleep 1001 &); sleep 1002")
    wrapper, programs = wrapper_and_programs(agent, "A", 4)
    os.kill(wrapper, signal.SIGKILL)
    assert agent.end("A") == ("lost", None, None, "wrapper-vanished")
    eventually(lambda: not any(exists(pid) for pid in programs))


def wrapper_and_programs(agent: Agent, name: str, count: int) -> tuple[int, list[int]]:
    """The wrapper's pid and those of its descendants, once there are so many."""
    wrapper = agent.wrapper(name)

    def look() -> list[int]:
        found = agent.processes(name)[1:]
        return found if len(found) >= count else []

    return wrapper, eventually(look)


def test_kill_9_at_any_moment_starts_nothing_twice(agent: Agent, folder: Path) -> None:
    """The programs keep the ledger; the agent is killed at growing delays after the order."""
    ledger = folder / "ledger"
    names = [f"A{number}" for number in range(12)]
    for number, name in enumerate(names):
        run = f"echo {name} >> {ledger}; exit 5"
        agent.assign((name, 30), lease=name, run=run, setup=f"echo s{name} >> {ledger}")
        deadline = time.monotonic() + 0.006 * number
        while time.monotonic() < deadline:
            pass
        agent.kill()
        agent.start()
    for name in names:  # a server says it again: the agent may have been killed before it read it
        run = f"echo {name} >> {ledger}; exit 5"
        agent.assign((name, 30), lease=name, run=run, setup=f"echo s{name} >> {ledger}")
    for name in names:
        assert agent.end(name) == ("failed", 5, None, "exit")
    lines = ledger.read_text().split()
    assert sorted(lines) == sorted(names + ["s" + name for name in names])


def test_same_assignment_20_times_starts_once(agent: Agent, folder: Path) -> None:
    for _ in range(20):
        agent.assign(("A", 30), run=f"echo x >> {folder}/ledger")
    assert agent.end("A")[0] == "succeeded"
    agent.assign(("A", 30), run=f"echo x >> {folder}/ledger")
    agent.until(lambda: agent.leases["L1"]["serial"] == [1, 21])
    assert (folder / "ledger").read_text() == "x\n"


def test_older_serial_and_incarnation_are_refused(agent: Agent) -> None:
    agent.run("A", "sleep 1000", incarnation=2)
    agent.assign(("A", 50), serial=[1, 0], incarnation=2)
    agent.assign(("A", 50), serial=[0, 99], incarnation=2)
    agent.assign(("A", 50), serial=[1, 50], incarnation=1)
    agent.assign(("A", 30), serial=[1, 51], incarnation=2)
    agent.until(lambda: agent.leases["L1"]["serial"] == [1, 51])
    assert agent.stage("A", 30)["stage"] == 30


def test_what_is_not_listed_any_more_ends_and_is_forgotten(agent: Agent) -> None:
    agent.run("A", "sleep 1000")
    agent.assign(("B", 30), run="sleep 1000")
    assert agent.end("A")[:3] == ("stopped", None, 15)
    agent.stage("B", 30)
    agent.connect()
    assert [seen["attempt"] for seen in agent.leases["L1"]["attempts"]] == [agent.id("B")]
    assert agent.log("A") == b""  # the log is still there


def test_release_ends_all_and_is_final(agent: Agent, folder: Path) -> None:
    agent.run("A", "sleep 1000")
    assert agent.control is not None
    agent.control.send({"op": "release", "lease": "L1"})
    agent.control.send({"op": "release", "lease": "L2"})  # before it was ever assigned
    agent.until(lambda: not agent.leases)
    assert not marked(agent.id("A"))
    agent.assign(("A", 30), run=f"touch {folder}/ran")
    agent.assign(("B", 30), lease="L2", run=f"touch {folder}/ran")
    agent.run("C", "sleep 1000", lease="L3")
    assert set(agent.leases) == {"L3"}
    assert not (folder / "ran").exists()


def test_newest_control_stream_of_a_server_wins(agent: Agent) -> None:
    assert agent.control is not None
    old = agent.control
    agent.control = None
    agent.life = 2
    agent.connect()
    assert old.rest()[-1:] in (
        [],
        [{"type": "heartbeat", "at": pytest.approx(time.time(), abs=60)}],
    )
    old.close()
    late = Wire(agent.home, {"op": "control", "protocol": 1, "server": "s", "life": 1})
    assert late.rest()[0]["code"] == "agent/older-life"
    late.close()


def test_heartbeats_come_while_nothing_else_does(agent: Agent) -> None:
    beats: list[float] = []

    def beat() -> bool:
        beats[:] = [m["at"] for m in agent.messages if m["type"] == "heartbeat"]
        return len(beats) >= 3

    agent.until(beat)
    pauses = [after - before for before, after in itertools.pairwise(beats)]
    assert all(pause > 1.5 for pause in pauses)


def test_frozen_agent_is_harmless(agent: Agent, folder: Path) -> None:
    agent.run("A", f"while [ ! -e {folder}/go ]; do sleep 0.02; done; exit 6")
    os.kill(agent.pid, signal.SIGSTOP)
    (folder / "go").touch()
    eventually(lambda: agent.exited("A"))
    os.kill(agent.pid, signal.SIGCONT)
    assert agent.end("A") == ("failed", 6, None, "exit")


def test_idle_agent_ends_by_itself(new_agent) -> None:
    agent: Agent = new_agent()
    agent.start("--idle-exit", "0.3")
    agent.run("A", "exit 0")
    agent.end("A")
    assert agent.control is not None
    agent.control.send({"op": "release", "lease": "L1"})
    agent.until(lambda: not agent.leases)
    agent.control.close()
    assert agent.process is not None
    assert agent.process.wait(60) == 0


def test_second_agent_of_a_home_is_refused(agent: Agent) -> None:
    command = [agent.python, "-I", "-S", agent.pyz, "run", "--home", agent.home]
    other = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (other.returncode, "another agent lives" in other.stderr) == (7, True)
    assert agent.status()["pid"] == agent.pid


def test_restarted_machine_is_lost_unless_a_status_is_there(agent: Agent) -> None:
    agent.run("A", "sleep 1000")
    agent.run("B", "sleep 1000", lease="L2")
    programs = wrapper_and_programs(agent, "A", 2)[1] + wrapper_and_programs(agent, "B", 2)[1]
    agent.kill()
    journal = agent.home / "journal"
    boot = json.loads((agent.home / "agent.json").read_text())["boot_id"]
    for path in [journal, *(agent.home / "attempts").glob("*/claim")]:
        path.write_text(path.read_text().replace(boot, "00000000-0000-0000-0000-000000000000"))
    agent.start()
    assert agent.end("A") == ("lost", None, None, "host-restarted")
    assert agent.end("B") == ("lost", None, None, "host-restarted")
    for pid in programs:  # they are of "another boot": nobody else will
        os.kill(pid, signal.SIGKILL)


def test_gpu_indices_are_seen_and_held(new_agent) -> None:
    one: Agent = new_agent()
    one.start("--capacity", '{"gpus": [{"index": 0, "name": "H100", "memory_gib": 80}]}')
    show = "echo devices=$CUDA_VISIBLE_DEVICES; sleep 1000"
    one.run("A", show, order={"gpu_indices": [0]})
    eventually(lambda: one.log("A") == b"devices=0\n")
    one.assign(("B", 20), lease="L2", run="true", order={"gpu_indices": [0]})
    one.until(lambda: "GPU 0 is held by" in one.attempts.get(one.id("B"), {}).get("text", ""))
    one.kill()
    one.start()  # the reservation outlives the agent
    one.until(lambda: "GPU 0 is held by" in one.attempts[one.id("B")]["text"])
    one.stop("A", order={"gpu_indices": [0]})
    assert one.stage("B", 20)["stage"] == 20


SMI = """#!/bin/sh
echo "$*" >> {log}
case "$*" in
  *utilization*) printf '0, 87, 2048\\n1, [N/A], [N/A]\\n2, 3, 4\\n' ;;
  *) printf '0, NVIDIA H100, 81920\\n1, NVIDIA H100, 81920\\n2, NVIDIA H100, 81920\\n' ;;
esac
"""


@pytest.fixture
def smi(folder: Path) -> Iterator[Path]:
    """A folder with an `nvidia-smi`, and what it was asked beside it; no reservation stays."""
    place = folder / "bin"
    place.mkdir()
    command = place / "nvidia-smi"
    command.write_text(SMI.format(log=folder / "asked"))
    command.chmod(0o755)
    reservations = Path(MACHINE_FILE)
    before = reservations.exists()
    yield place
    if not before:
        reservations.unlink(missing_ok=True)


def test_usage_tells_what_the_cards_of_an_attempt_do(smi: Path, folder: Path, new_agent) -> None:
    agent = new_agent()
    agent.prefix = ["/usr/bin/env", f"PATH={smi}:{os.defpath}"]
    agent.start()
    agent.assign(
        ("A", 30), ("B", 30), run="sleep 1000",
        each=[{"gpu_indices": [0, 1]}, {"gpu_indices": []}],
    )  # fmt: skip
    agent.stage("A", 30)
    agent.stage("B", 30)
    first = {"index": 0, "percent": 87.0, "memory_gib": 2.0}
    silent = {"index": 1, "percent": None, "memory_gib": None}

    def told() -> object:
        return agent.status()["usage"][agent.id("A")]["gpu"]

    eventually(lambda: told() == [first, silent])
    assert agent.status()["usage"][agent.id("B")]["gpu"] is None
    asked = [line for line in (folder / "asked").read_text().splitlines() if "util" in line]
    assert len(asked) == 1, "it is asked at a low rate, however often usage is"
    agent.stop("A")


def test_usage_counts_cpu_and_memory(agent: Agent) -> None:
    agent.run("A", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 1000")
    used = eventually(lambda: cpu_of(agent, "A") > 0.05 and agent.status()["usage"])
    assert used[agent.id("A")]["rss_bytes"] > 1 << 20


def cpu_of(agent: Agent, name: str) -> float:
    """CPU seconds that the agent counts for an attempt."""
    return float(agent.status()["usage"].get(agent.id(name), {}).get("cpu_s", 0.0))


def test_agent_is_small(agent: Agent) -> None:
    agent.run("A", "sleep 1000")
    assert agent.status()["rss_bytes"] < 32 << 20


def test_the_agents_own_log_is_capped_and_keeps_what_was_said_last(new_agent) -> None:
    agent = new_agent()
    log, older = agent.home / "agent.log", agent.home / "agent.log.1"
    log.write_bytes(b"x" * (MAX_BYTES - 1) + b"\n")
    agent.start()
    assert log.stat().st_size == MAX_BYTES  # full, not above
    assert agent.ask(op="forget")[0]["code"] == "agent/bad-message"  # which it says in its log
    eventually(lambda: log.stat().st_size < 1000)
    assert b"a message lacks" in log.read_bytes()
    assert older.stat().st_size == MAX_BYTES
    log.write_bytes(log.read_bytes() + b"x" * MAX_BYTES)
    agent.kill()
    agent.start()  # above the cap when it starts
    eventually(lambda: log.stat().st_size < 1000)
    assert older.read_bytes().startswith(b"link: a message lacks")
    assert older.stat().st_size > MAX_BYTES


def test_a_socket_that_was_removed_is_made_again(agent: Agent) -> None:
    agent.run("A", "sleep 1000")
    (agent.home / "agent.sock").unlink()
    eventually((agent.home / "agent.sock").exists, "its socket is there", 20)
    agent.connect()
    assert agent.stop("A")[:3] == ("stopped", None, 15)

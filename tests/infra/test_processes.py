"""All processes of a host: found, frozen, thawed, killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.infra.local import processes
from tests.infra.local_bench import wait_until

SESSIONS = """
import os, subprocess, sys, time
subprocess.Popen(["sleep", "1000"], start_new_session=True)
print("ready", flush=True)
time.sleep(1000)
"""


def state(pid: int) -> str:
    """The state letter; "" when it is over."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            letter = file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""
    return "" if letter in "ZX" else letter


@pytest.fixture
def family():
    """A process with a child in a session of its own; all bear the mark of an attempt."""
    env = {**os.environ, "ARGOSY_MARK": "g1-1.1-7"}
    child = subprocess.Popen([sys.executable, "-c", SESSIONS], env=env, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    pids = [child.pid, *processes.children(child.pid)]
    yield pids
    for pid in pids:
        if state(pid):
            os.kill(pid, signal.SIGKILL)
    child.stdout.close()
    child.wait()


def claim(home, pid: int, *, started: int | None = None) -> None:
    """What a wrapper writes that was claimed by `pid`."""
    folder = home / "attempts" / "other"
    folder.mkdir(parents=True)
    with open(f"/proc/{pid}/stat") as file:
        line = file.read().strip()
    if started is not None:
        line = line.replace(str(processes.started(pid)), str(started))
    (folder / "claim").write_text(f"\nboot\n{line}\n{line}\n")


def test_descendants_of_an_agent_are_of_the_host(tmp_path, family):
    assert list(processes.of_host(tmp_path, family[0])) == family
    assert list(processes.of_host(tmp_path, 0)) == []


def test_claims_name_wrappers_unless_the_pid_was_used_again(tmp_path, family):
    claim(tmp_path / "a", family[0])
    assert list(processes.of_host(tmp_path / "a", 0)) == family
    claim(tmp_path / "b", family[0], started=7)
    assert list(processes.of_host(tmp_path / "b", 0)) == []


def test_marks_find_what_nothing_else_does(tmp_path, family):
    (tmp_path / "attempts" / "g1-1.1-7").mkdir(parents=True)
    assert set(processes.of_host(tmp_path, 0)) == set(family)
    (tmp_path / "other" / "attempts" / "g1-1.1-8").mkdir(parents=True)
    assert not set(processes.of_host(tmp_path / "other", 0))


def test_frozen_stands_still_until_it_is_thawed(tmp_path, family):
    assert set(processes.freeze(tmp_path, family[0])) == set(family)
    wait_until(lambda: {state(pid) for pid in family} == {"T"}, "not all are stopped")
    processes.thaw(tmp_path, family[0])
    wait_until(lambda: "T" not in {state(pid) for pid in family}, "not all go on")


def test_killed_is_gone_frozen_or_not(tmp_path, family):
    processes.freeze(tmp_path, family[0])
    assert processes.kill(tmp_path, family[0]) == []
    assert [pid for pid in family if state(pid)] == []


def test_a_trial_that_was_interrupted_leaves_no_network(tmp_path, family):
    code = "import time; time.sleep(1000)"
    mark = f"trial-{family[0]}-{processes.started(family[0])}"
    words = [sys.executable, "-c", code, "argosy-net", mark]
    with subprocess.Popen(words, start_new_session=True) as holder:
        cmdline = Path(f"/proc/{holder.pid}/cmdline")  # the kernel fills it a moment after exec
        wait_until(lambda: b"argosy-net" in cmdline.read_bytes(), "it is not executed")
        processes.kill(tmp_path, family[0])
        assert holder.wait(30) == -signal.SIGKILL


def test_kill_one_waits_for_the_end(family):
    processes.kill_one(0)
    processes.kill_one(family[1])
    assert not state(family[1])
    processes.kill_one(family[1])

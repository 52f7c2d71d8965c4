"""The API server is killed and comes back a minute later: programs go on, nothing is lost."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.infra.kubernetes.person import Person
from tests.infra.kubernetes.rig import until

pytestmark = pytest.mark.kubernetes

AWAY_SECONDS = 60.0
LINES = 100
WORK = """name: work
num_nodes: 2
resources: {cpus: 0.1}
restart: {on: [lost], scope: node, backoff: 0s}
grace: 1s
run: for i in $(seq 100000); do echo "line $i"; sleep 0.2; done
"""
QUICK = f"""name: quick
resources: {{cpus: 0.1}}
run: |
  for i in $(seq {LINES}); do echo "line $i"; sleep 0.1; done
  exit 6
"""


def test_an_api_server_that_is_away_for_a_minute_harms_nothing(beyond, proxy):
    """What ends meanwhile has its code and its log; a pod that ends is replaced afterwards.

    The real one is killed and started within that minute: what else the cluster is made of waits
    long before it looks again, and is no part of this.
    """
    for name, text in (("work", WORK), ("quick", QUICK)):
        beyond.launched(text)
        beyond.phase(name, "RUNNING")
    rig, doomed = beyond.space.rig, first_process(beyond, "work-1")
    with proxy.cut():
        back = time.monotonic() + AWAY_SECONDS
        rig.verb("api", "stop")
        os.kill(doomed, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{doomed}").exists(), "the pod's first process goes on")
        rig.verb("api", "start")
        until(lambda: "silent" in beyond.explained("work"), lambda: beyond.explained("work"))
        until(lambda: time.monotonic() > back or attempts(beyond) != [1, 1], "")
        assert attempts(beyond) == [1, 1], beyond.explained("work")
        assert beyond.group("quick")["phase"] == "RUNNING"
    until(lambda: attempts(beyond) == [1, 2], lambda: beyond.explained("work"))
    beyond.phase("work", "RUNNING")
    beyond.phase("quick", "FAILED")
    assert [beyond.nodes("quick")["quick-0"][key] for key in ("attempt", "exit_code")] == [1, 6]
    assert beyond.logs("quick", "--no-prefix") == numbered(LINES)
    lines = beyond.logs("work/work/0", "--no-prefix")
    assert len(lines) > AWAY_SECONDS  # it wrote all the while
    assert lines == numbered(len(lines))
    assert attempts(beyond) == [1, 2]


def attempts(person: Person) -> list[int]:
    """Of the nodes of `work`, in their order: each number is one that was started."""
    return [node["attempt"] for _, node in sorted(person.nodes("work").items())]


def numbered(count: int) -> list[str]:
    """What a program has written that wrote so many lines."""
    return [f"line {number + 1}" for number in range(count)]


def first_process(person: Person, node: str) -> int:
    """What is process 1 in the pod of that node of the group; its pid here."""
    uid = person.space.pods()[node]["metadata"]["uid"].replace("-", "_")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "status").read_text()
            mine = uid in (folder / "cgroup").read_text().replace("-", "_")
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        inside = next(line for line in status.splitlines() if line.startswith("NSpid:"))
        if mine and inside.split()[-1] == "1" and b"\0container\0" in command:
            return int(folder.name)
    raise AssertionError(f"no process here is the first of the pod of {node}")

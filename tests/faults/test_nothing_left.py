"""However a group ends, nothing of it stays: processes, namespaces, mounts, control groups."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from scripts import leftovers
from tests.faults.scene import (
    agent_pids,
    detach,
    ended,
    group,
    nap,
    parent,
    server_pid,
    stages,
    task,
    until,
    with_word,
)
from tests.whole.home import Home

pytestmark = pytest.mark.whole

ENDS = {
    "success": "0",
    "failure": "3",
    "cancel": "",
    "cancel --now": "",
}


def programs(home: Home, code: str) -> str:
    """A group whose programs leave others behind in every way there is; four of them sleep."""
    away = "(setsid sh -c '(setsid sleep %s) & exit 0' &)"
    unmarked = f"env -i PATH=$PATH sh -c '(setsid setsid -f sleep {nap(home, 1)}) &'"
    end = f"until test -e {home.path.parent / 'go'}; do sleep 0.05; done; exit {code}"
    forever = f"exec sleep {nap(home, 3)}"
    return group(
        "leaves",
        task("forks", f"{away % nap(home, 0)}\n{end if code else forever}", "grace: 2s"),
        task("hides", f"{unmarked}\ntrap '' TERM\ncd /\n{forever}", "grace: 1s"),
        header="primary_tasks: [forks]\n",
    )


def of_groups(home: Home) -> list[str]:
    """What is there of a home's groups: all but the server, and the agents with their launchers."""
    own = {server_pid(home), *agent_pids(home)}
    found = []
    for line in leftovers.of_home(home.path):
        pid = int(one[1]) if (one := re.match(r"process (\d+) ", line)) else 0
        if pid not in own and parent(pid) not in own:
            found.append(line)
    return found


def held_namespaces(pid: int) -> set[str]:
    """The namespaces that a process is in or holds open."""
    links = [*Path(f"/proc/{pid}/ns").iterdir(), *Path(f"/proc/{pid}/fd").iterdir()]
    found = set()
    for link in links:
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if re.fullmatch(r"(net|mnt|pid|uts|user|ipc|cgroup):\[\d+\]", target):
            found.add(target)
    return found


@pytest.mark.parametrize("how", ENDS)
def test_nothing_stays_after(one_home: Home, how: str) -> None:
    go = one_home.path.parent / "go"
    go.unlink(missing_ok=True)
    detach(one_home, "leaves", programs(one_home, ENDS[how]))
    until("all run", lambda: stages(one_home, "leaves") == {"RUNNING"})
    for number in (0, 1, 3):
        until(f"{number} sleeps", lambda n=number: with_word(nap(one_home, n)))
    assert of_groups(one_home), "the look finds nothing even while all runs"
    go.touch()
    if how.startswith("cancel"):
        one_home.argosy("cancel", "leaves", *how.split()[1:]).good()
    found = ended(one_home, "leaves")
    assert found["phase"] == {"success": "SUCCEEDED", "failure": "FAILED"}.get(how, "CANCELLED")
    left = {number: with_word(nap(one_home, number)) for number in (0, 1, 3)}
    assert left == {0: [], 1: [], 3: []}
    until("its network is gone", lambda: not of_groups(one_home), 10)
    for pid in (server_pid(one_home), *agent_pids(one_home)):
        assert held_namespaces(pid) == held_namespaces(os.getpid())

"""A person's whole way on real SSH hosts: the command, its server, exit codes, logs, lost links."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.infra.ssh.person import until

pytestmark = pytest.mark.ssh

LINES = 2000
PAIR = f"""name: pair
---
name: left
num_nodes: 2
resources: {{accelerators: 'H100:8'}}
run: echo "left $ARGOSY_NODE_RANK on $(cat /etc/hostname) as $(id -un) with $CUDA_VISIBLE_DEVICES"
---
name: right
resources: {{cpus: 1}}
run: |
  for i in $(seq {LINES}); do echo "line $i"; done
  exit 3
"""
SLOW = """name: slow
resources: {accelerators: 'H100:8'}
run: |
  for i in $(seq 200); do echo "line $i"; sleep 0.1; done
  exit 4
"""


def test_a_group_runs_on_hosts_of_root_and_of_others(person):
    """Exit codes and every line of the logs come through."""
    code, out, err = person.launch(PAIR)
    assert code == 100, out + err
    left = sorted(line.split("left ", 1)[1] for line in out.splitlines() if "left " in line)
    assert [line.split(" on ")[0] for line in left] == ["0", "1"]
    assert all(line.endswith("with 0,1,2,3,4,5,6,7") for line in left)
    right = [line.split("] ", 1)[1] for line in out.splitlines() if line.startswith("[right")]
    assert right == [f"line {number + 1}" for number in range(LINES)]
    shown = person.group("pair")
    nodes = {node["node"]: node for task in shown["tasks"] for node in task["nodes"]}
    assert {name: node["exit_code"] for name, node in nodes.items()} == {
        "left-0": 0, "left-1": 0, "right-0": 3,
    }  # fmt: skip
    assert len({nodes["left-0"]["host"], nodes["left-1"]["host"]}) == 2
    for host in ("host-1", "host-2", "host-3"):
        assert person.rig.on_host(host, BOOK) in ("{}\n", "")


BOOK = "tail -n 1 /var/tmp/argosy-leases.json 2>/dev/null | cut -d' ' -f2-"


def test_a_cut_link_is_a_doubt_and_every_line_arrives_later(person):
    """The program ends while the link is down; its code and its log are there when it is up."""
    code, out, err = person.launch(SLOW, "-d")
    assert code == 0, out + err
    until(lambda: person.group("slow")["phase"] == "RUNNING", "it does not run")
    host = person.group("slow")["tasks"][0]["nodes"][0]["host"]
    person.rig.verb("cut", host)
    try:
        until(
            lambda: person.rig.on_host(host, STATUS).strip(),
            "the program goes on for ever",
        )
        assert person.group("slow")["phase"] in ("RUNNING", "RECOVERING")
    finally:
        person.rig.verb("heal", host)
    until(lambda: person.group("slow")["phase"] == "FAILED", "its end is not heard of")
    node = person.group("slow")["tasks"][0]["nodes"][0]
    assert (node["exit_code"], node["attempt"]) == (4, 1)
    out = person.argosy("logs", "slow")[1]
    lines = [line for line in out.splitlines() if "line " in line]
    assert [int(line.rpartition(" ")[2]) for line in lines] == list(range(1, 201))


STATUS = (
    "grep -lE '^(exit|signal)' /root/.argosy-agent/*/lab/*/attempts/*/claim 2>/dev/null || true"
)


def test_a_host_is_lost_when_it_answers_with_another_boot_id(person):
    """Not before: while it is away nothing is replaced."""
    code, out, err = person.launch(SLOW, "-d")
    assert code == 0, out + err
    until(lambda: person.group("slow")["phase"] == "RUNNING", "it does not run")
    node = person.group("slow")["tasks"][0]["nodes"][0]
    person.rig.verb("kill", node["host"])
    try:
        until(lambda: UNREACHABLE in person.argosy("infra", "check")[1], "nobody misses it")
        now = person.group("slow")["tasks"][0]["nodes"][0]
        assert (now["attempt"], now["host"]) == (node["attempt"], node["host"])
    finally:
        person.rig.verb("start", node["host"])
    until(
        lambda: person.group("slow")["tasks"][0]["nodes"][0]["attempt"] > node["attempt"],
        "it is not replaced",
    )


UNREACHABLE = "unreachable"


def test_nobody_else_needs_to_look_after_the_connection(person):
    """After the server has ended no `ssh` of it is left."""
    assert person.launch("name: short\nrun: 'true'\n")[0] == 0
    person.argosy("server", "stop")
    run = os.fsencode(person.rig.environment["XDG_RUNTIME_DIR"])

    def ours() -> list[str]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if run in (folder / "cmdline").read_bytes():
                    found.append(folder.name)
            except OSError:
                continue
        return found

    until(lambda: not ours(), "an ssh of the server goes on")

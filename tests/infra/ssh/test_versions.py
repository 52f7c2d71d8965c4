"""Agents of other versions on real SSH hosts: a server that is upgraded goes on with an older one,
and says so when it cannot speak with a newer one.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path

import pytest

from argosy.infra.pack import packed_agent, travelling_agent
from tests.infra.ssh.person import Person, until

pytestmark = pytest.mark.ssh

OLDER = Path(__file__).resolve().parents[2] / "fixtures" / "agent-bc1af36c51f6b3f0.pyz"
HOMES = {"host-1": "/root", "host-2": "/home/worker", "host-3": "/root"}
# What this version's server finds under the name of its own agent is the older one, which lies
# and stays under its own name: a running agent reads itself from there.
STEP_ASIDE = """import os, sys
def main():
    os.execv(sys.executable, [sys.executable, "-I", "-S", {older!r}, *sys.argv[1:]])
"""
GROUP = """name: old
---
name: on
num_nodes: 3
restart: {on: failure, max: 3, backoff: 0s, scope: node}
grace: 1s
resources: {accelerators: 'H100:8'}
run: i=0; while :; do i=$((i+1)); echo "line $i"; sleep 0.1; done
"""


def put(person: Person, host: str, name: str, body: bytes) -> str:
    """Put a file beside the agents of a host's user; its path."""
    folder = f"{HOMES[host]}/.argosy-agent/bin"
    owner = HOMES[host].rpartition("/")[2]
    here = person.rig.home / host / "root" / folder.lstrip("/")
    person.rig.on_host(host, f"mkdir -p -m 700 {folder}")
    (here / name).write_bytes(body)
    person.rig.on_host(host, f"chown -R {owner}:{owner} {HOMES[host]}/.argosy-agent")
    return f"{folder}/{name}"


def stepping_aside(older: str) -> bytes:
    """An agent that becomes the one at that path."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        archive.writestr("agent/__init__.py", "")
        archive.writestr("agent/main.py", STEP_ASIDE.format(older=older))
    return body.getvalue()


def agents(person: Person, host: str) -> list[str]:
    """The command lines of the agents that live on a host."""
    look = (
        "for f in /proc/[0-9]*/cmdline; do grep -qs argosy-agent $f && "
        "{ tr '\\0' ' ' <$f; echo; }; done; true"
    )
    lines = person.rig.on_host(host, look).splitlines()
    return [line for line in lines if " run --home " in line]


def last_line(person: Person, node: str) -> int:
    """The number in the newest line of a node's log; 0 before there is one."""
    found = re.findall(r"line (\d+)", person.argosy("logs", f"old/on/{node}", "--tail", "1")[1])
    return int(found[-1]) if found else 0


def test_a_server_that_is_upgraded_goes_on_with_the_agents_that_are_there(person, tmp_path):
    """With their logs, their shells, restarts, and an end that leaves nothing."""
    now, compiled = packed_agent(tmp_path).name, travelling_agent(tmp_path).name
    for host in HOMES:
        older = put(person, host, OLDER.name, OLDER.read_bytes())
        put(person, host, now, stepping_aside(older))
    code, out, err = person.launch(GROUP, "-d")
    assert code == 0, out + err
    until(lambda: person.group("old")["phase"] == "RUNNING", "it does not run")
    before = {host: agents(person, host) for host in HOMES}
    assert all(OLDER.name in one for lines in before.values() for one in lines), before
    person.argosy("server", "stop")
    for host in HOMES:
        person.rig.on_host(host, f"rm {HOMES[host]}/.argosy-agent/bin/{now}")

    assert person.group("old")["phase"] == "RUNNING"
    assert person.argosy("infra", "check", "ssh/lab")[0] == 0
    for host in HOMES:
        found = person.rig.on_host(host, f"ls {HOMES[host]}/.argosy-agent/bin").split()
        assert {now, compiled} & set(found), found  # as its Python takes it
        assert agents(person, host) == before[host]
    for node in range(3):
        code, out, err = person.argosy("exec", f"old/on/{node}", "--", "sh", "-c", "echo $$ here")
        assert (code, out.split()[-1:]) == (0, ["here"]), out + err
        seen = last_line(person, str(node))
        until(lambda node=node, seen=seen: last_line(person, str(node)) > seen > 0, "no new lines")
    assert person.argosy("chaos", "kill", "old/on/1")[0] == 0
    until(lambda: person.nodes("old")["on-1"]["attempt"] == 2, "it is not restarted")
    until(lambda: person.group("old")["phase"] == "RUNNING", "it does not run again")
    assert {name: node["attempt"] for name, node in person.nodes("old").items()} == {
        "on-0": 1, "on-1": 2, "on-2": 1,
    }  # fmt: skip
    code, out, err = person.argosy("cancel", "old", "--wait")
    assert code == 0, out + err
    assert person.group("old")["phase"] == "CANCELLED"
    for host in HOMES:
        assert person.rig.on_host(host, BOOK) in ("{}\n", "")


BOOK = "tail -n 1 /var/tmp/argosy-leases.json 2>/dev/null | cut -d' ' -f2-"


def changed_agent(folder: Path, file: str, before: bytes, after: bytes) -> tuple[str, bytes]:
    """(name that this server looks for, its agent with some words of a file replaced)."""
    now, other, changed = packed_agent(folder), folder / "other", 0
    with zipfile.ZipFile(now) as here, zipfile.ZipFile(other, "w") as there:
        for name in here.namelist():
            text = here.read(name)
            if name == file:
                changed = text.count(before)
                text = text.replace(before, after)
            there.writestr(name, text)
    assert changed == 1
    return now.name, other.read_bytes()


def test_an_agent_of_a_newer_protocol_is_told_and_left_alone(person, tmp_path):
    """Who is concerned reads which host it is, and what each of the two speaks."""
    numbers = (b"\nPROTOCOL = 1\n", b"\nPROTOCOL = 2\n")
    name, body = changed_agent(tmp_path, "agent/door/control.py", *numbers)
    for host in HOMES:
        put(person, host, name, body)
    code, out, err = person.launch(GROUP, "-d")
    assert code == 0, out + err

    def told() -> list[str]:
        events = json.loads(person.argosy("events", "old", "-o", "json")[1] or "[]")
        return [one["text"] for one in events if one["code"] == "agent-protocol"]

    until(lambda: len(told()) >= len(HOMES), "nobody is told")
    for host in HOMES:
        (text,) = [one for one in told() if f"the agent on {host} " in one]
        assert "speaks protocol 2" in text
        assert "this server speaks protocol 1" in text
    assert all(agents(person, host) for host in HOMES)


# The desk works, and its agent cannot be started: as on a host whose disk is full.
NO_ROOM = b"""import sys

if sys.argv[1] == "run":
    sys.exit("there is no room for me")
"""


def test_an_agent_that_does_not_start_is_told(person, tmp_path):
    """With the host, and why; the group is not given up."""
    name, body = changed_agent(tmp_path, "__main__.py", b"import sys\n", NO_ROOM)
    for host in HOMES:
        put(person, host, name, body)
    assert person.launch(GROUP, "-d")[0] == 0

    def told() -> set[str]:
        events = json.loads(person.argosy("events", "old", "-o", "json")[1] or "[]")
        texts = [one["text"] for one in events if one["code"] == "agent-does-not-start"]
        return {text.split()[3] for text in texts}

    until(lambda: told() == set(HOMES), "nobody is told")
    assert person.group("old")["phase"] in ("PENDING", "STARTING")

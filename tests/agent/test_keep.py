"""`agent keep`: what a server is told of ended attempts before it removes their host."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argosy.agent.logs.log import Log
from argosy.agent.pod.keep import KEEP_BYTES
from tests.agent.rig import Agent, eventually

SECRET = "hunter2-never-elsewhere"
CAP = 256 << 10


@dataclass
class Told:
    """All that it wrote."""

    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[tuple[str, str], tuple[int, bytes]] = field(default_factory=dict)
    ended: bool = False
    raw: bytes = b""

    @property
    def names(self) -> list[str]:
        """The attempts, without the test's word."""
        return [name.rpartition("-")[2] for name in self.records]


def kept(agent: Agent) -> Told:
    """Run it on the agent's home."""
    done = subprocess.run(
        [agent.python, "-I", "-S", agent.pyz, "keep", "--home", agent.home],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    assert not done.stderr
    told, rest = Told(raw=done.stdout), done.stdout
    while rest:
        line, _, rest = rest.partition(b"\n")
        message = json.loads(line)
        if "record" in message:
            told.records[message["attempt"]] = message["record"]
        elif "size" in message:
            size = message["size"]
            told.files[message["folder"], message["name"]] = (message["at"], rest[:size])
            assert len(rest) >= size
            rest = rest[size:]
        else:
            assert message == {"end": True}
            assert not rest
            told.ended = True
    return told


def read_back(told: Told, name: str, folder: Path) -> Log:
    """The log as whoever puts the files at their places has it."""
    for part in ("output", "output.index"):
        at, data = told.files[name, part]
        with open(folder / part, "wb") as file:
            file.seek(at)
            file.write(data)
    return Log(str(folder / "output"))


def test_nothing_but_the_end_of_a_home_without_attempts(agent: Agent) -> None:
    told = kept(agent)
    assert told.ended
    assert not told.records
    assert not told.files


def test_a_home_that_is_not_there_has_nothing(agent: Agent, tmp_path: Path) -> None:
    other = Agent(agent.python, agent.pyz, tmp_path / "nowhere", agent.word)
    assert kept(other).ended
    assert not (tmp_path / "nowhere").exists()


def test_two_attempts_with_their_logs(agent: Agent, tmp_path: Path) -> None:
    agent.assign(("A", 30), run="echo one; exit 3")
    agent.end("A")
    agent.assign(("A", 50), ("B", 30), run="echo two")
    agent.end("B")
    told = kept(agent)
    assert told.ended
    assert told.names == ["A", "B"]
    record = told.records[agent.id("A")]
    assert (record["outcome"], record["exit_code"], record["group"]) == ("failed", 3, agent.word)
    assert record["gone"]
    log = read_back(told, agent.id("A"), tmp_path)
    assert log.read(0) == (0, b"one\n")
    log.close()


def test_of_an_agent_that_was_killed_too(agent: Agent) -> None:
    agent.assign(("A", 30), run="echo one")
    agent.end("A")
    agent.kill()
    told = kept(agent)
    assert told.files[agent.id("A"), "output"] == (0, b"one\n")
    agent.start()


def test_neither_secrets_nor_paths_leave_the_host(agent: Agent) -> None:
    agent.assign(
        ("A", 30), run="echo ran", env={"PLAIN": SECRET}, secrets={"TOKEN": SECRET},
        order={"env": {"OWN": SECRET}},
    )  # fmt: skip
    agent.end("A")
    told = kept(agent)
    assert told.names == ["A"]
    assert SECRET.encode() not in told.raw
    assert str(agent.home).encode() not in told.raw
    assert b"ran\n" in told.raw


def test_a_capped_log_keeps_its_offsets(agent: Agent, tmp_path: Path) -> None:
    run = "for i in $(seq 1 20000); do echo line $i of what is written down here; done"
    agent.assign(("A", 30), run=run, log_cap_bytes=CAP)
    agent.end("A")
    agent.log("A", tail=1)
    state = agent.status()["logs"][agent.id("A")]
    assert 0 < state["kept"] < state["end"]
    told = kept(agent)
    log = read_back(told, agent.id("A"), tmp_path)
    assert (log.kept, log.end) == (state["kept"], state["end"])
    start, data = log.read(0, 1 << 20)
    assert start == state["kept"]
    assert data.endswith(b"line 20000 of what is written down here\n")
    assert len(told.raw) < 2 * CAP + (64 << 10)
    log.close()


def test_a_log_that_its_program_emptied_keeps_its_offsets(agent: Agent, tmp_path: Path) -> None:
    go = tmp_path / "go"
    run = f"echo before; while [ ! -e {go} ]; do sleep 0.02; done; echo after >/dev/stderr"
    agent.run("A", run)
    eventually(lambda: agent.log("A") == b"before\n")
    go.touch()
    agent.end("A")
    eventually(lambda: agent.log("A") == b"after\n")
    told = kept(agent)
    assert told.files[agent.id("A"), "output"] == (0, b"after\n")
    log = read_back(told, agent.id("A"), tmp_path)
    assert log.read(0) == (len(b"before\n"), b"after\n")
    log.close()


def test_of_a_long_log_the_end(agent: Agent, tmp_path: Path) -> None:
    size = KEEP_BYTES + (1 << 20)
    agent.assign(("A", 30), run=f"head -c {size} /dev/zero; echo; echo done")
    agent.end("A")
    told = kept(agent)
    at, data = told.files[agent.id("A"), "output"]
    assert len(data) == KEEP_BYTES
    assert at == size + len(b"\ndone\n") - KEEP_BYTES
    assert data.endswith(b"\0\ndone\n")
    log = read_back(told, agent.id("A"), tmp_path)
    assert (log.kept, log.end) == (at, at + KEEP_BYTES)
    log.close()


def test_times_come_along(agent: Agent, tmp_path: Path) -> None:
    go = tmp_path / "go"
    agent.run("A", f"echo early; while [ ! -e {go} ]; do sleep 0.02; done; echo late")
    eventually(lambda: agent.log("A") == b"early\n")
    go.touch()
    agent.end("A")
    agent.log("A")
    told = kept(agent)
    log = read_back(told, agent.id("A"), tmp_path)
    early, late = log.time_at(0), log.time_at(log.end - 1)
    assert early < late
    assert log.offset_since(late) <= log.end
    assert log.read(log.offset_since((early + late) / 2))[1] in (b"late\n", b"early\nlate\n")
    log.close()

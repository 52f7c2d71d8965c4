"""A fence on real hosts: a node that is given up has ended before its successor starts, by the one
clock that all hosts of the rig share; without a fence nothing is given up, and nothing is lost.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.infra.ssh.breaking import KILL_AGENTS
from tests.infra.ssh.person import Person, at_the_end, until
from tests.infra.ssh.rig import Rig
from tests.infra.ssh.ssh_bench import HOSTS, configure

pytestmark = pytest.mark.ssh

FENCE = 12
REPLACED = 15.0  # seconds, from the moment that the fence is known to be out
AFTER_THAW = 1.0
STAMPS = "var/tmp/stamps"
TICKING = f"""name: ticking
run: |
  cat > tick.py <<'END'
  import os, time
  with open("/{STAMPS}-" + os.environ["ARGOSY_ATTEMPT"], "a", buffering=1) as out:
      while True:
          out.write("%.6f\\n" % time.clock_gettime(time.CLOCK_BOOTTIME))
          time.sleep(0.01)
  END
  exec python3 tick.py
"""
LINES = 300
COUNTING = f"""name: counting
run: |
  cat > count.py <<'END'
  import time
  for number in range({LINES}):
      print("line", number, flush=True)
      time.sleep(0.05)
  raise SystemExit(5)
  END
  exec python3 count.py
"""


@pytest.fixture
def fenced(rig: Rig, tmp_path: Path) -> Iterator[Person]:
    """Somebody whose pool has a fence."""
    person = Person(rig, tmp_path)
    pool = f"{{fence_after: {FENCE}s, hosts: [{', '.join(HOSTS)}]}}"
    configure(tmp_path / "home", f"ssh: {{pools: {{lab: {pool}}}}}\n")
    yield from at_the_end(person)
    for host in HOSTS:
        rig.on_host(host, f"rm -f /{STAMPS}-*")


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def stamps(person: Person, host: str, attempt: int) -> list[float]:
    """When that attempt ran, as it wrote it down there; a last line may be torn."""
    path = person.rig.home / host / "root" / f"{STAMPS}-{attempt}"
    return [float(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def ticks(person: Person) -> str:
    """Launch the group; the host where it runs."""
    code, out, err = person.launch(TICKING, "-d")
    assert code == 0, out + err
    until(lambda: person.nodes("ticking")["ticking-0"]["host"], "it has no host")
    host = person.nodes("ticking")["ticking-0"]["host"]
    try:
        until(lambda: stamps(person, host, 1), "it does not run")
    except AssertionError as error:
        raise AssertionError(person.argosy("events", "ticking")[1]) from error
    return host


def successor(person: Person, lost: str) -> tuple[str, list[float]]:
    """Where the second attempt runs, and its stamps."""
    others = [host for host in HOSTS if host != lost]
    until(lambda: any(stamps(person, host, 2) for host in others), "it is not replaced")
    (host,) = [host for host in others if stamps(person, host, 2)]
    return host, stamps(person, host, 2)


def replaced_within(person: Person) -> float:
    """Seconds from `host-lost` until the successor runs, as the server's events have it."""
    events = json.loads(person.argosy("events", "ticking", "-o", "json")[1])
    (lost,) = [one["at"] for one in events if one["code"] == "host-lost"]
    runs = [one["at"] for one in events if one["code"] == "attempt-running"]
    return runs[-1] - lost


def settled(person: Person, lost: str, host: str) -> None:
    """What comes back is released, and changes nothing: the second attempt goes on."""
    book = person.rig.home / lost / "root" / "var/tmp/argosy-leases.json"
    until(lambda: '"gpus"' not in leases(book), "its lease is not released")
    node = person.nodes("ticking")["ticking-0"]
    assert (node["host"], node["attempt"]) == (host, 2)
    assert person.group("ticking")["phase"] == "RUNNING"
    ran = stamps(person, host, 2)
    until(lambda: len(stamps(person, host, 2)) > len(ran), "it does not go on")


def leases(book: Path) -> str:
    """What a host's reservation file says of leases that are not group-wide; "" when none."""
    lines = [line for line in book.read_bytes().split(b"\n") if line.strip(b"\0")]
    entries = json.loads(lines[-1].partition(b" ")[2]) if lines else {}
    return json.dumps([{"gpus": one} for one in entries if not one.endswith(".0")])


@pytest.mark.parametrize("agent", ["agent-lives", "agent-killed-first"])
def test_a_cut_longer_than_the_fence_never_makes_two_of_one(fenced: Person, agent: str) -> None:
    lost = ticks(fenced)
    fenced.rig.verb("cut", lost)
    try:
        if agent == "agent-killed-first":
            fenced.rig.on_host(lost, KILL_AGENTS)
        until(
            lambda: f"{lost} is silent: given up at" in fenced.argosy("explain", "ticking")[1],
            "explain does not say when it is given up",
        )
        host, second = successor(fenced, lost)
        first = stamps(fenced, lost, 1)
        assert first[-1] < second[0]
        assert replaced_within(fenced) < REPLACED
    finally:
        fenced.rig.verb("heal", lost)
    settled(fenced, lost, host)
    assert stamps(fenced, lost, 1) == first


def test_what_was_frozen_ends_when_it_thaws(fenced: Person) -> None:
    """The host itself: agent, watchdog and program stand still together, and go on together."""
    lost = ticks(fenced)
    fenced.rig.verb("freeze", lost)
    try:
        host, second = successor(fenced, lost)
        assert stamps(fenced, lost, 1)[-1] < second[0]
        assert replaced_within(fenced) < REPLACED
    finally:
        fenced.rig.verb("thaw", lost)
    thawed = boottime()
    settled(fenced, lost, host)
    assert stamps(fenced, lost, 1)[-1] < thawed + AFTER_THAW


def test_a_fence_is_shown_and_a_short_cut_does_no_harm(fenced: Person) -> None:
    assert f"{FENCE} s after the last acknowledged heartbeat" in fenced.argosy("infra", "check")[1]
    host = ticks(fenced)
    fenced.rig.verb("cut", host)
    cut = boottime()
    until(lambda: boottime() > cut + FENCE / 4, "time stands still")
    fenced.rig.verb("heal", host)
    healed = boottime()
    until(lambda: boottime() > healed + FENCE, "time stands still")
    node = fenced.nodes("ticking")["ticking-0"]
    assert (node["host"], node["attempt"]) == (host, 1)
    assert stamps(fenced, host, 1)[-1] > healed


def test_without_a_fence_a_cut_is_a_doubt_for_ever_and_nothing_is_lost(person: Person) -> None:
    """The program ends while its host is cut off: lines and exit code arrive, each once."""
    code, out, err = person.launch(COUNTING, "-d")
    assert code == 0, out + err
    until(lambda: "line 3" in person.argosy("logs", "counting")[1], "it does not run")
    host = person.nodes("counting")["counting-0"]["host"]
    person.rig.verb("cut", host)
    try:
        ended = "grep -rlE '^(exit|signal)' --include=claim /root/.argosy-agent /home/worker"
        until(lambda: "claim" in person.rig.on_host(host, f"{ended} 2>/dev/null; true"), "it runs")
        ended = boottime()
        until(lambda: boottime() > ended + FENCE, "time stands still")
        assert "is silent: a doubt" in person.argosy("explain", "counting")[1]
        assert person.group("counting")["phase"] == "RUNNING"
        assert person.nodes("counting")["counting-0"]["attempt"] == 1
    finally:
        person.rig.verb("heal", host)
    until(lambda: person.group("counting")["phase"] == "FAILED", "its end does not arrive")
    assert person.argosy("wait", "counting")[0] != 0
    assert '"exit_code": 5' in person.argosy("status", "counting", "-o", "json")[1]
    lines = person.argosy("logs", "counting")[1].splitlines()
    said = [line.rpartition("] ")[2] for line in lines if "line" in line]
    assert said == [f"line {number}" for number in range(LINES)]

"""kill -9 at seeded points over commits and system calls of server, agent, launcher and wrapper.

Groups launch, fail, recover, are cancelled and end meanwhile. Afterwards nothing is lost, doubled
or orphaned: a ledger that the programs write themselves says what really ran.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.kill.bench import Bench, processes_of, until

POINTS_PER_SEED = 5
SEEDS = int(os.environ.get("ARGOSY_KILL_POINTS", "40")) // POINTS_PER_SEED
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")

HEAD = """name: {name}
execution: parallel
primary_tasks: [work]
"""
# A start is one line, written before anything else; a lock shows whether two run at once.
PROGRAM = r"""
  exec 9>>"{ledger}.$ARGOSY_JOBGROUP_NAME.$ARGOSY_NODE.lock"
  flock -n 9 || echo "overlap $ARGOSY_JOBGROUP_NAME $ARGOSY_NODE $ARGOSY_ATTEMPT" >>"{ledger}"
  echo "start $ARGOSY_JOBGROUP_NAME $ARGOSY_NODE $ARGOSY_ATTEMPT $ARGOSY_INCARNATION" >>"{ledger}"
"""
END = r"""
  echo "end $ARGOSY_JOBGROUP_NAME $ARGOSY_NODE $ARGOSY_ATTEMPT {code}" >>"{ledger}"
  exit {code}
"""


def _task(ledger: Path, name: str, body: str, extra: str = "") -> str:
    return f"---\nname: {name}\n{extra}run: |{PROGRAM.format(ledger=ledger)}{body}"


def _files(folder: Path, ledger: Path) -> dict[str, Path]:
    """The groups of a bench: one that succeeds, one that fails once, one that is cancelled."""
    good = END.format(ledger=ledger, code=0)
    once = f'  [ "$ARGOSY_ATTEMPT" -gt 1 ] || {{ {END.format(ledger=ledger, code=3).strip()}; }}\n'
    once = once.replace("\n  exit", "; exit")
    retry = "restart: {on: [failure, lost], max: 50, backoff: 0s..1s}\n"
    server = _task(ledger, "aux", "  sleep 600\n", "grace: 2s\n")
    bodies = {
        "good": _task(ledger, "work", "  sleep 1\n" + good, "num_nodes: 2\n") + server,
        "once": _task(ledger, "work", "  sleep 0.3\n" + once + good, retry) + server,
        "long": _task(ledger, "work", "  sleep 600\n", "grace: 2s\n") + server,
    }
    files = {}
    for name, body in bodies.items():
        files[name] = folder / f"{name}.yaml"
        files[name].write_text(HEAD.format(name=name) + body)
    return files


def _play(bench: Bench, files: dict[str, Path], network: str) -> None:
    """Launch, cancel and look while processes are killed; every command may be cut off."""
    launches = [("good", ""), ("once", ""), ("long", "")]
    for point in range(POINTS_PER_SEED):

        def happen(point: int = point) -> None:
            if launches:
                name, _ = launches.pop(0)
                bench.argosy("launch", str(files[name]), "-d", "-y", "--network", network)
            elif point == POINTS_PER_SEED - 1:
                bench.argosy("cancel", "long")
            bench.argosy("status")

        if point == 0:
            bench.argosy("status")
        bench.strike(happen)
    for name in files:  # whatever a cut-off command did not do is done now
        if not bench.group(name):
            bench.argosy("launch", str(files[name]), "-d", "-y", "--network", network)
    bench.argosy("cancel", "long")


@pytest.mark.kill
@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_doubled(seed: int, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.touch()
    bench = Bench(tmp_path / "home", seed)
    bench.home.mkdir()
    files = _files(tmp_path, ledger)
    try:
        _play(bench, files, "isolated" if seed % 2 else "host")
        ended: dict[str, dict[str, Any]] = {}
        for name in files:
            until(f"{name} is over", 90, lambda n=name: _phase(bench, n) in FINAL)
            ended[name] = bench.group(name)
        _check_ledger(ledger, bench)
        _check_records(ended, ledger, bench)
        _check_nothing_left(bench)
    except BaseException:
        print(f"seed {seed}: killed {bench.struck}")
        for name in files:
            print(bench.argosy("events", name))
        print(ledger.read_text())
        print(sorted((bench.home / "infra/local/machine/leases").glob("*.json")))
        print((bench.home / "server.log").read_text()[-4000:])
        agent = bench.home / "infra/local/machine/hosts/localhost"
        print("agent:", bench.agent(), (agent / "agent.log").read_text()[-4000:])
        print("\n".join(f"{pid} {line}" for pid, line in processes_of(bench.home)))
        raise
    finally:
        bench.close()


def _phase(bench: Bench, name: str) -> str:
    return str(bench.group(name).get("phase", ""))


def _check_ledger(ledger: Path, bench: Bench) -> None:
    lines = [line.split() for line in ledger.read_text().splitlines()]
    assert not [line for line in lines if line[0] == "overlap"], (
        "two attempts of a node ran at once"
    )
    starts = Counter(tuple(line[1:4]) for line in lines if line[0] == "start")
    twice = [key for key, count in starts.items() if count > 1]
    assert not twice, f"started twice: {twice}"


def _check_records(ended: dict[str, dict[str, Any]], ledger: Path, bench: Bench) -> None:
    """What the record says is what the programs wrote."""
    wrote = {}
    for line in ledger.read_text().splitlines():
        kind, group, node, attempt, *rest = line.split()
        if kind == "end":
            wrote[group, node, int(attempt)] = int(rest[0])
    assert ended["good"]["phase"] == "SUCCEEDED", ended["good"]
    assert ended["once"]["phase"] == "SUCCEEDED", ended["once"]
    assert ended["long"]["phase"] == "CANCELLED", ended["long"]
    for name in ("good", "once"):
        for task in ended[name]["tasks"]:
            for node in task["nodes"]:
                if task["name"] == "work":
                    key = (name, node["node"], node["attempt"])
                    assert wrote.get(key) == 0, f"{key} succeeded in the record, not in the ledger"


def _check_nothing_left(bench: Bench) -> None:
    leases = bench.home / "infra/local/machine/leases"
    bench.argosy("status")  # a server that was killed last is started again
    until("no lease is left", 30, lambda: not list(leases.glob("*.json")))
    bench.argosy("server", "stop", check=True)

    def strays() -> list[tuple[int, str]]:
        own = bench.agent()
        found = processes_of(bench.home)
        return [(pid, line) for pid, line in found if pid != own and "launch()" not in line]

    until("no process is left", 15, lambda: not strays())

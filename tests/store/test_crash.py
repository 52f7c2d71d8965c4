"""The store of a process that was killed: what it acknowledged is there, and nothing is doubled."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from argosy.store import Store

ROUNDS = 30
WRITER = Path(__file__).parent / "crash_writer.py"


def a_writer(path: Path) -> subprocess.Popen[str]:
    """A writing child that waits for its start."""
    return subprocess.Popen(
        [sys.executable, str(WRITER), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def killed_at_random(child: subprocess.Popen[str], chance: random.Random) -> list[list[str]]:
    """What the child acknowledged before it was killed, at any instant of its writing."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("go\n")
    child.stdin.flush()
    said = [child.stdout.readline() for _ in range(chance.randrange(1, 80))]
    time.sleep(chance.random() * 0.01)  # the instant of the kill, not a wait for something
    child.kill()
    said += child.stdout.readlines()
    child.wait()
    child.stdin.close()
    child.stdout.close()
    return [line.split() for line in said if line.endswith("\n")]


def check(path: Path, said: list[list[str]], lives: list[int]) -> None:
    """Every acknowledged write is there, whole, once."""
    store = Store.open(path)
    newest: dict[str, int] = {}
    for kind, *words in said:
        if kind == "life":
            lives.append(int(words[0]))
        else:
            newest[words[0]] = max(newest.get(words[0], 0), int(words[1]))
    groups = {str(group.id): group for group in store.groups(ended=True, limit=100_000)}
    for ref, version in newest.items():
        assert groups[ref].version >= version
    for group in groups.values():
        codes = [event.code for _, event in store.events(group.id)]
        assert codes == [f"v{n}" for n in range(1, group.version + 1)]
        assert len(group.leases) == group.version // 2
        assert all(store.issued(lease.id) for lease in group.leases)
    assert lives == sorted(set(lives))
    store.close()


def test_a_killed_writer_loses_and_doubles_nothing(tmp_path: Path) -> None:
    chance = random.Random(20)
    path = tmp_path / "store.db"
    lives: list[int] = []
    next_child = a_writer(path)
    try:
        for number in range(ROUNDS):
            child, next_child = next_child, a_writer(path)
            try:
                said = killed_at_random(child, chance)
            finally:
                child.kill()
                child.wait()
            assert said[0][0] == "life"
            check(path, said, lives)
            if number % 6 == 5:
                path = tmp_path / f"store-{number}.db"  # a small store is quicker to check
                lives = []
                next_child.kill()
                next_child.communicate()
                next_child = a_writer(path)
    finally:
        next_child.kill()
        next_child.communicate()

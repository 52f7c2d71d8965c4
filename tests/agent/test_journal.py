"""The journal: what was put is there after a kill -9 at any byte, and on a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.agent.journal import COMPACT_BYTES, Journal, read
from tests.agent.rig import SOURCE
from tests.pythons import oldest_python

PUTS = st.lists(
    st.tuples(
        st.sampled_from(["lease", "attempt"]),
        st.sampled_from(["a", "b", "ü\n"]),
        st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=8), max_size=2),
    ),
    max_size=12,
)


@given(PUTS, st.data())
@settings(max_examples=60, deadline=None)
def test_any_prefix_of_the_file_is_a_state_that_was(
    tmp_path_factory: pytest.TempPathFactory, puts: list, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal"
    journal = Journal(str(path))
    states = [{}]
    for kind, name, value in puts:
        journal.put(kind, name, value)
        states.append({k: dict(v) for k, v in journal.values.items() if v})
    journal.close()
    body = path.read_bytes()
    cut = data.draw(st.integers(0, len(body)))
    path.write_bytes(body[:cut])
    again = Journal(str(path))
    assert {k: v for k, v in again.values.items() if v} == states[body[:cut].count(b"\n")]
    again.put("lease", "after", {"x": 1})
    again.close()
    last = Journal(str(path))
    assert last.get("lease", "after") == {"x": 1}
    assert last.skipped == 0
    last.close()


def test_broken_line_in_the_middle_is_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(str(path))
    journal.put("lease", "a", {"x": 1})
    journal.put("lease", "b", {"x": 2})
    journal.close()
    lines = path.read_bytes().split(b"\n")
    lines[0] = lines[0][:-3] + b"\xff"
    path.write_bytes(b"\n".join(lines))
    again = Journal(str(path))
    assert (again.skipped, again.of("lease")) == (1, {"b": {"x": 2}})
    again.close()


@given(PUTS, st.data())
@settings(max_examples=60, deadline=None)
def test_somebody_else_reads_what_its_owner_would(
    tmp_path_factory: pytest.TempPathFactory, puts: list, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal"
    journal = Journal(str(path))
    for kind, name, value in puts:
        journal.put(kind, name, value)
    journal.close()
    body = path.read_bytes()
    path.write_bytes(
        body[: data.draw(st.integers(0, len(body)))] + data.draw(st.binary(max_size=3))
    )
    left = path.read_bytes()
    found = read(str(path))
    assert path.read_bytes() == left  # it may be written just now
    again = Journal(str(path))
    assert found == again.values
    again.close()


def test_of_a_journal_that_is_not_there_nothing_is_read(tmp_path: Path) -> None:
    assert read(str(tmp_path / "journal")) == {}
    assert not (tmp_path / "journal").exists()


def test_attempts_of_hosts_that_are_gone_are_learned_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(str(path))
    journal.put("attempt", "mine", {"stage": 30})
    journal.learn()
    with open(path, "a", encoding="ascii") as file:
        file.write('["attempt", "mine", {"gone": true}]\n')
        file.write('["attempt", "theirs", {"gone": true, "x": 1}]\n["attempt", "runs", {}]\n')
        file.write('["lease", "L", {"gone": true}]\n["attempt", "half')
    journal.learn()
    assert journal.of("attempt") == {"mine": {"stage": 30}, "theirs": {"gone": True, "x": 1}}
    assert not journal.of("lease")
    journal.close()


def test_file_is_rewritten_when_most_of_it_is_old(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(str(path))
    for number in range(60):
        journal.put("attempt", "a", {"n": number, "text": "x" * 50_000})
    assert path.stat().st_size < COMPACT_BYTES + 60_000
    journal.close()
    again = Journal(str(path))
    value = again.get("attempt", "a")
    assert value is not None
    assert value["n"] == 59
    again.close()


@pytest.mark.parametrize("python", [sys.executable, "oldest"])
def test_full_disk_keeps_going_and_catches_up(tmp_path: Path, python: str, word: str) -> None:
    if os.geteuid() != 0:
        pytest.fail("this test mounts a tmpfs: run it as root")
    code = f"""
import sys, os; sys.path.insert(0, {str(SOURCE.parent)!r}); sys.dont_write_bytecode = True
from agent.journal import Journal
journal = Journal("journal")
journal.put("lease", "first", {{}})
fill = os.open("fill", os.O_WRONLY | os.O_CREAT)
try:
    while os.write(fill, b"x" * 4096): pass
except OSError: pass
number = 0
while not journal.behind:  # what was reserved is used up
    number += 1
    journal.put("attempt", str(number), {{"text": "y" * 4000}})
assert number > 10, number
for more in range(3):
    journal.put("lease", "late", {{"n": more}})
assert journal.behind == 4 and journal.get("lease", "late") == {{"n": 2}}
again = Journal("journal")  # as after a kill -9 now
assert len(again.of("attempt")) == number - 1 and again.skipped == 0
os.ftruncate(fill, 0)
journal.put("lease", "last", {{}})
assert journal.behind == 0
again = Journal("journal")
assert set(again.of("lease")) == {{"first", "late", "last"}} and len(again.of("attempt")) == number
"""
    interpreter = oldest_python() if python == "oldest" else python
    assert os.system(f"mount -t tmpfs -o size=1m {word} {tmp_path}") == 0
    try:
        done = subprocess.run(
            [interpreter, "-I", "-S", "-c", code], cwd=tmp_path, check=False, capture_output=True
        )
        assert done.stderr.decode() == ""
    finally:
        assert os.system(f"umount {tmp_path}") == 0

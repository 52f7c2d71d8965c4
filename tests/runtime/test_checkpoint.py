"""Checkpoints: whole or not there, newest first, and never from a writer that was replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.runtime import checkpoint
from argosy.runtime.checkpoint import Fenced, Writer

ROOT = Path(checkpoint.__file__).parents[2]


def a_writer(folder: Path, *, attempt: int = 1, incarnation: int = 1, keep: int = 3) -> Writer:
    return Writer(folder, keep=keep, incarnation=incarnation, attempt=attempt)


def steps(folder: Path) -> list[int]:
    return [one.step for one in checkpoint.listed(folder)]


def test_a_folder_without_checkpoints_has_no_newest(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "not-there") is None
    assert a_writer(tmp_path).newest() is None


def test_what_was_saved_is_read_back(tmp_path: Path) -> None:
    saved = a_writer(tmp_path).save(40, b"weights")
    found = checkpoint.newest(tmp_path)
    assert found == saved
    assert (found.step, found.incarnation, found.attempt) == (40, 1, 1)
    assert (found.path / "state").read_bytes() == b"weights"


def test_a_function_may_write_many_files(tmp_path: Path) -> None:
    def content(folder: Path) -> None:
        (folder / "layers").mkdir()
        (folder / "layers" / "0.bin").write_bytes(b"zero")
        (folder / "optimizer.bin").write_bytes(b"moments")

    saved = a_writer(tmp_path).save(1, content)
    assert checkpoint.whole(saved)
    assert (saved.path / "layers" / "0.bin").read_bytes() == b"zero"


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    writer = a_writer(tmp_path, keep=2)
    for step in (10, 20, 30, 40):
        writer.save(step, b"x")
    assert steps(tmp_path) == [30, 40]


def test_the_same_step_again_replaces(tmp_path: Path) -> None:
    writer = a_writer(tmp_path)
    writer.save(10, b"first")
    writer.save(10, b"second")
    newest = writer.newest()
    assert newest is not None
    assert (newest.path / "state").read_bytes() == b"second"
    assert steps(tmp_path) == [10]


@pytest.mark.parametrize("damage", ["cut", "changed", "missing", "no list"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, damage: str) -> None:
    writer = a_writer(tmp_path)
    writer.save(10, b"good")
    state = writer.save(20, b"bad one").path / "state"
    match damage:
        case "cut":
            state.write_bytes(b"bad")
        case "changed":
            state.write_bytes(b"bad 0ne")
        case "missing":
            state.unlink()
        case _:
            (state.parent / "checkpoint.json").unlink()
    newest = writer.newest()
    assert newest is not None
    assert newest.step == 10


def test_newest_is_of_the_newest_attempt_not_of_the_highest_step(tmp_path: Path) -> None:
    a_writer(tmp_path, attempt=1).save(50, b"branch that was given up")
    a_writer(tmp_path, attempt=2).save(40, b"branch that goes on")
    newest = checkpoint.newest(tmp_path)
    assert newest is not None
    assert (newest.attempt, newest.step) == (2, 40)


def test_an_older_attempt_cannot_write_once_a_newer_one_came(tmp_path: Path) -> None:
    old = a_writer(tmp_path, attempt=1)
    old.save(10, b"x")
    new = a_writer(tmp_path, attempt=2)
    with pytest.raises(Fenced, match="belongs to incarnation 1, attempt 2"):
        old.save(20, b"from the past")
    new.save(11, b"y")
    assert steps(tmp_path) == [10, 11]


def test_an_older_attempt_cannot_even_open(tmp_path: Path) -> None:
    a_writer(tmp_path, attempt=3)
    with pytest.raises(Fenced):
        a_writer(tmp_path, attempt=2)


def test_a_newer_incarnation_passes_although_its_attempt_is_lower(tmp_path: Path) -> None:
    old = a_writer(tmp_path, incarnation=1, attempt=7)
    a_writer(tmp_path, incarnation=2, attempt=1).save(5, b"x")
    with pytest.raises(Fenced):
        old.save(6, b"y")


def test_a_content_function_that_fails_leaves_nothing(tmp_path: Path) -> None:
    writer = a_writer(tmp_path)
    before = sorted(os.listdir(tmp_path))

    def content(folder: Path) -> None:
        (folder / "half").write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        writer.save(1, content)
    assert sorted(os.listdir(tmp_path)) == before


def test_the_environment_says_who_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOSY_CHECKPOINT_DIR", str(tmp_path / "c"))
    monkeypatch.setenv("ARGOSY_INCARNATION", "2")
    monkeypatch.setenv("ARGOSY_ATTEMPT", "4")
    saved = Writer().save(9, b"x")
    assert saved.path == tmp_path / "c" / "step-00000009.2.4"


def test_keep_must_leave_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep"):
        a_writer(tmp_path, keep=0)


KILLED_WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from argosy.runtime.checkpoint import Writer

def content(folder):
    for part in range(20):
        (folder / f"part-{part}").write_bytes(bytes([step % 256]) * 20_000)

writer = Writer(Path(sys.argv[2]), incarnation=1, attempt=int(sys.argv[3]))
newest = writer.newest()
step = newest.step if newest else 0
while True:
    step += 1
    writer.save(step, content)
    print(step, flush=True)
"""


def test_a_writer_killed_at_any_moment_leaves_its_last_checkpoint_whole(tmp_path: Path) -> None:
    reached = 0
    for attempt in range(1, 9):
        command = [sys.executable, "-c", KILLED_WRITER, str(ROOT), str(tmp_path), str(attempt)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            # Killed right after a different number of saves: somewhere within the next one.
            for _ in range(1 + attempt % 3):
                reached = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
        newest = checkpoint.newest(tmp_path)
        assert newest is not None
        assert newest.step >= reached
        parts = sorted(newest.path.glob("part-*"))
        assert len(parts) == 20
        assert all(part.read_bytes() == bytes([newest.step % 256]) * 20_000 for part in parts)
    a_writer(tmp_path, attempt=99)
    assert list(tmp_path.glob(".aside-*")) == []

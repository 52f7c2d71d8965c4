"""What is found of a home, and that nothing else is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts import leftovers


@contextmanager
def sleeping(**environment: str) -> Iterator[int]:
    """The pid of a process with this environment; ended and collected at the end."""
    with subprocess.Popen(["/bin/sleep", "600"], env=environment) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def pids(lines: list[str]) -> list[int]:
    return [int(line.split()[1]) for line in lines if line.startswith("process ")]


def test_a_process_of_the_home_is_found_and_one_of_another_is_not(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    with sleeping(ARGOSY_SHARED_DIR=str(home)) as ours, sleeping(HOME=str(other)) as stranger:
        assert pids(leftovers.of_home(home)) == [ours]
        assert pids(leftovers.of_home(other)) == [stranger]
    assert leftovers.of_home(home) == []


def test_a_mark_is_found_anywhere() -> None:
    with sleeping(ARGOSY_MARK="a-test-of-leftovers") as marked:
        assert marked in pids(leftovers.everywhere())
    assert marked not in pids(leftovers.everywhere())


def test_what_stays_is_told_and_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "END_SECONDS", 0.0)
    with sleeping(ARGOSY_SHARED_DIR=str(tmp_path)) as stubborn:
        assert pids(leftovers.end_home(tmp_path)) == [stubborn]
        leftovers.END_SECONDS = 20.0
        assert leftovers.end_home(tmp_path) == []


def test_a_zombie_is_no_process() -> None:
    with subprocess.Popen(["/bin/true"]) as process:
        while leftovers.start_time(process.pid):
            pass
        assert process.poll() == 0

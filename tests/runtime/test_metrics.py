"""Metrics lines: whole, told apart by attempt, and never mixed between writers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.runtime import metrics
from argosy.runtime.metrics import Metrics

ROOT = Path(metrics.__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARGOSY_SHARED_DIR", str(tmp_path / "shared"))
    monkeypatch.setenv("ARGOSY_INCARNATION", "1")
    monkeypatch.setenv("ARGOSY_ATTEMPT", "1")
    monkeypatch.setenv("ARGOSY_NODE", "trainer-0")
    return tmp_path / "shared" / "metrics.jsonl"


def test_a_line_says_who_wrote_it(path: Path) -> None:
    with Metrics() as out:
        out.add(3, reward=0.5, success={"copy": 1})
    (line,) = metrics.lines(path)
    assert line.pop("time") > 0
    assert line == {
        "incarnation": 1,
        "attempt": 1,
        "node": "trainer-0",
        "step": 3,
        "reward": 0.5,
        "success": {"copy": 1},
    }


def test_the_newest_attempt_wins_for_each_step(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Metrics() as out:
        for step in (1, 2, 3):
            out.add(step, reward=0.1)
    monkeypatch.setenv("ARGOSY_ATTEMPT", "2")
    with Metrics() as out:
        for step in (2, 3, 4):
            out.add(step, reward=0.9)
    kept = metrics.latest(path)
    assert [(line["step"], line["attempt"]) for line in kept] == [(1, 1), (2, 2), (3, 2), (4, 2)]


def test_an_older_attempt_that_writes_late_does_not_win(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARGOSY_ATTEMPT", "2")
    with Metrics() as out:
        out.add(1, reward=0.9)
    monkeypatch.setenv("ARGOSY_ATTEMPT", "1")
    with Metrics() as out:
        out.add(1, reward=0.1)
    assert [line["reward"] for line in metrics.latest(path)] == [0.9]


def test_half_a_line_of_a_killed_writer_harms_no_other(path: Path) -> None:
    with Metrics() as out:
        out.add(1, reward=0.1)
    with path.open("a") as file:
        file.write('{"step": 2, "rew')
    with Metrics() as out:
        out.add(3, reward=0.3)
    assert [line["step"] for line in metrics.lines(path)] == [1, 3]


def test_numbers_that_json_lacks_become_null(path: Path) -> None:
    class Scalar:
        """Like a number of numpy."""

        def item(self) -> float:
            return 0.25

    with Metrics() as out:
        out.add(1, loss=float("nan"), norm=float("inf"), reward=Scalar(), parts=[Scalar(), 1])
    (line,) = metrics.lines(path)
    assert (line["loss"], line["norm"], line["reward"], line["parts"]) == (
        None,
        None,
        0.25,
        [0.25, 1],
    )


def test_closed_metrics_take_no_line(path: Path) -> None:
    out = Metrics()
    out.close()
    out.close()
    with pytest.raises(ValueError, match="closed"):
        out.add(1)
    assert path.read_text() == ""


WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from argosy.runtime.metrics import Metrics
with Metrics(sys.argv[2]) as out:
    for step in range(400):
        out.add(step, text=sys.argv[3] * 500)
"""


def test_lines_of_two_writers_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    commands = [[sys.executable, "-c", WRITER, str(ROOT), str(path), mark] for mark in "ab"]
    writers = [subprocess.Popen(command) for command in commands]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    texts = [json.loads(line)["text"] for line in path.read_text().splitlines()]
    assert sorted(texts) == ["a" * 500] * 400 + ["b" * 500] * 400

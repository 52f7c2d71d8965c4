"""What CI counts: skipped tests, parts that failed without a test, and its last line."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import junit

PASSED = ""
FAILED = '<failure message="3 is not 4"/>'
SKIPPED = '<skipped message="only root may mount"/>'


def part(folder: Path, name: str, code: int, **tests: str) -> None:
    """A part of CI that has ended: its junit file and its line."""
    rows = "".join(f'<testcase classname="m" name="{k}">{v}</testcase>' for k, v in tests.items())
    if tests:
        (folder / f"{name}.xml").write_text(
            f"<testsuites><testsuite>{rows}</testsuite></testsuites>"
        )
    with (folder / "parts").open("a") as parts:
        parts.write(f"{name} {code}\n")


def last_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = junit.everything(folder)
    return code, capsys.readouterr().out.splitlines()[-1]


def test_all_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part(tmp_path, "unit", 0, a=PASSED, b=PASSED)
    part(tmp_path, "demo", 0)
    assert last_line(tmp_path, capsys) == (0, "3 passed, 0 failed")


def test_a_failed_test_is_counted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part(tmp_path, "unit", 1, a=PASSED, b=FAILED)
    assert last_line(tmp_path, capsys) == (1, "1 passed, 1 failed")


def test_a_part_that_broke_without_a_test_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part(tmp_path, "unit", 124, a=PASSED)
    part(tmp_path, "demo", 1)
    assert last_line(tmp_path, capsys) == (1, "1 passed, 2 failed")


def test_a_skipped_test_has_to_pass_in_another_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part(tmp_path, "root", 0, a=PASSED, b=SKIPPED)
    assert last_line(tmp_path, capsys) == (1, "1 passed, 1 failed")
    part(tmp_path, "user", 0, b=PASSED)
    assert last_line(tmp_path, capsys) == (0, "2 passed, 0 failed")


def test_nothing_run_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "parts").write_text("")
    assert last_line(tmp_path, capsys) == (1, "0 passed, 0 failed")

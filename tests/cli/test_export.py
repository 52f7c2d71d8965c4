"""`argosy export`: what is asked of the server, and where the text goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.cli.main import run
from tests.sdk.answering import Answering, answering

TEXT = "# made\n---\nkind: Pod\n"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    monkeypatch.setenv("ARGOSY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    with answering(tmp_path / "home") as running:
        running.answers["GET /v1/server"] = {"pid": 1}
        running.answers["POST /v1/export"] = {"text": TEXT, "notes": []}
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "a.yaml"
    found.write_text("run: true\n")
    return found


def test_the_text_is_printed_and_nothing_else(
    server: Answering, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["export", str(file), "--to", "kubernetes", "--context", "prod"]) == 0
    assert capsys.readouterr() == (TEXT, "")
    _, body = server.asked("POST /v1/export")
    assert (body["to"], body["context"], body["whole"]) == ("kubernetes", "prod", True)
    assert (body["text"], body["secrets_later"]) == ("run: true\n", True)


def test_it_goes_to_a_file(
    server: Answering, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "made.yaml"
    assert run(["export", str(file), "--no-agent", "--output", str(target)]) == 0
    assert target.read_text() == TEXT
    assert capsys.readouterr().out == ""
    assert server.asked("POST /v1/export")[1]["whole"] is False


def test_why_no_node_was_chosen_is_said(
    server: Answering, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers["POST /v1/export"] = {"text": TEXT, "notes": ["prod does not answer"]}
    assert run(["export", str(file)]) == 0
    assert capsys.readouterr().err == "no node chosen: prod does not answer\n"

"""With `-o json`, what goes wrong is one JSON line of one shape on standard error, everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from argosy.cli.main import SECTIONS, cli, run
from argosy.errors import ArgosyError, NotFound
from tests.sdk.answering import Refused, answering

SHAPE = set(ArgosyError("").fields())


def commands(group: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every command that prints JSON."""
    if not isinstance(group, click.Group):
        choices = [one.type.choices for one in group.params if one.name == "output"]  # type: ignore[attr-defined]
        if any("json" in each or "jsonl" in each for each in choices):
            yield path
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from commands(command, (*path, name))


ALL = [*commands()]


def format_of(path: tuple[str, ...]) -> str:
    return "jsonl" if path == ("logs",) else "json"


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_there_are_such_commands_in_every_section() -> None:
    assert {("wait",), ("infra", "check"), ("status",), ("validate",)} <= set(ALL)
    assert {path[0] for path in ALL} <= {name for one in SECTIONS.values() for name in one}


@pytest.mark.parametrize("path", ALL, ids=" ".join)
@pytest.mark.parametrize("form", ["-o {}", "-o{}", "--output {}", "--output={}"])
def test_a_wrong_command_line(
    path: tuple[str, ...], form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*path, *form.format(format_of(path)).split(), "--no-such-option"]) == 2
    found = said(capsys)
    assert set(found) == SHAPE
    assert (found["error"], found["code"]) == ("InputError", "cli/usage")
    assert found["hints"] == [f"`argosy {' '.join(path)} --help` shows its usage"]


GROUPS = [["status"], ["wait"], ["logs"], ["events"], ["explain"]]


@pytest.mark.parametrize("words", GROUPS, ids=" ".join)
def test_what_the_server_refuses(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ARGOSY_HOME", str(tmp_path / "home"))
    error = NotFound("no group is called demo", hint="look")
    with answering(tmp_path / "home") as server:
        for path in ("", "/events", "/explain"):
            server.answers[f"GET /v1/groups/demo{path}"] = Refused(404, error.fields())
        assert run([*words, "demo", "-o", format_of((*words,))]) == NotFound.exit_code
    assert said(capsys) == error.fields()


@pytest.mark.parametrize("words", [["plan"], ["launch"]], ids=" ".join)
def test_what_is_wrong_with_a_file(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ARGOSY_HOME", str(tmp_path / "home"))
    file = tmp_path / "none.yaml"
    assert run([*words, str(file), "-o", "json"]) == NotFound.exit_code
    found = said(capsys)
    assert set(found) == SHAPE
    assert "none.yaml" in found["text"]


def test_without_it_errors_are_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--no-such-option", "-o", "table"]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert run(["rm", "--no-such-option", "-o", "json"]) == 2  # it prints no JSON
    assert capsys.readouterr().err.startswith("error: ")

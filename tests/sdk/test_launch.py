"""The body of a launch, and the files that it is read from."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from argosy.errors import InputError, NotFound
from argosy.sdk import launch
from argosy.sdk.launch import launch_body, read_text, secrets_named

FILE = """\
name: demo
---
name: a
secrets: [HF_TOKEN, secrets:personal.WANDB]
---
name: b
secrets:
  GIVEN: value
  EMPTY:
"""


def test_body_names_the_file_and_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "g.yaml").write_text("run: echo")
    monkeypatch.chdir(tmp_path)
    body = launch_body("g.yaml", envs={"A": "1"}, environment={}, name="n", set=["a.b=1"])
    assert (body["file"], body["base"], body["text"]) == ("g.yaml", str(tmp_path), "run: echo")
    assert (body["envs"], body["name"], body["set"]) == ({"A": "1"}, "n", ["a.b=1"])
    assert body["user"]


def test_only_secrets_that_the_file_names_leave_the_environment(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(FILE)
    around = {"HF_TOKEN": "h", "WANDB": "w", "GIVEN": "g", "EMPTY": "n", "PRIVATE": "p"}
    body = launch_body(tmp_path / "g.yaml", secrets={"MINE": "m"}, environment=around)
    assert body["environ"] == {"HF_TOKEN": "h", "WANDB": "w", "EMPTY": "n"}
    assert body["secrets"] == {"MINE": "m"}


@pytest.mark.parametrize("text", ["secrets: [", "secrets: 3", "- secrets: [A]", "", "secrets:\n"])
def test_broken_files_name_no_secret(text: str) -> None:
    assert secrets_named(text) == set()


def test_missing_file_names_those_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").touch()
    with pytest.raises(NotFound) as raised:
        read_text(tmp_path / "g.yaml")
    assert raised.value.hints == ("files there: other.yaml",)


def test_binary_file_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_bytes(b"name: x\n\xff\xfe\n")
    with pytest.raises(InputError, match="UTF-8") as raised:
        read_text(tmp_path / "g.yaml")
    assert raised.value.place is not None
    assert raised.value.place.line == 2


def test_folder_and_large_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="can't read"):
        read_text(tmp_path)
    monkeypatch.setattr(launch, "FILE_BYTES_MOST", 10)
    (tmp_path / "g.yaml").write_text("x" * 11)
    with pytest.raises(InputError, match="larger"):
        read_text(tmp_path / "g.yaml")


def test_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_bytes(b"\xef\xbb\xbfname: x")
    assert read_text(tmp_path / "g.yaml")[2] == "name: x"


def test_standard_input_is_never_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "FILE_BYTES_MOST", 10)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"run: echo a long one\n")))
    with pytest.raises(InputError, match="standard input is larger"):
        launch.launch_body("-")

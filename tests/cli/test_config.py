"""`argosy config`: shown as understood, edited on a copy, never left half right."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from argosy.cli.commands.config import COPY, FIRST
from tests.cli.typed import argosy
from tests.sdk.answering import answering

RIGHT = "local:\n  pools:\n    rack: {hosts: 2}\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def around(home: Path, tmp_path: Path) -> dict[str, str]:
    return {"ARGOSY_HOME": str(home), "HOME": str(tmp_path), "VISUAL": ""}


def editor(tmp_path: Path, new: str) -> str:
    """An editor that writes a text; a space in its path."""
    script = tmp_path / "an editor.py"
    script.write_text(f"import sys; open(sys.argv[-1], 'w').write({new!r})")
    return f"{sys.executable} '{script}' --wait"


def test_path_and_schema_need_nothing(tmp_path: Path) -> None:
    away = {"ARGOSY_HOME": str(tmp_path / "none")}
    assert argosy("config", "path", **away).stdout == f"{tmp_path}/none/config.yaml\n"
    found = json.loads(argosy("config", "schema", **away).stdout)
    assert found["title"] == "Argosy configuration"
    assert "nothing is configured" in argosy("config", "show", **away).stdout
    assert not (tmp_path / "none").exists()


def test_show_fills_in_defaults_and_says_where_a_pool_comes_from(
    home: Path, tmp_path: Path, around: dict[str, str]
) -> None:
    (home / "config.yaml").write_text(RIGHT + "ssh: {pools: {lab: {hosts: [h1]}}}\n")
    sky = tmp_path / ".sky/ssh_node_pools.yaml"
    sky.parent.mkdir()
    sky.write_text("lab: {hosts: [h9]}\nother: {hosts: [h2]}\n")
    done = argosy("config", "show", **around)
    shown = f"    rack:  # {home}/config.yaml:3\n      {{hosts: 2, cpus: 4.0, memory: 16.0,"
    assert shown in done.stdout
    assert f"    lab:  # {home}/config.yaml:4\n" in done.stdout
    assert f"    other:  # {sky}:2\n" in done.stdout
    assert "h9" not in done.stdout  # of two pools of one name ours counts
    found = json.loads(argosy("config", "show", "-o", "json", **around).stdout)
    assert found["local"]["pools"]["rack"]["memory"] == 16.0
    assert found["there"] is True


def test_show_tells_every_error(home: Path, around: dict[str, str]) -> None:
    (home / "config.yaml").write_text("locl: {}\nlocal: {pool: 1}\n")
    done = argosy("config", "show", **around)
    assert done.returncode == 2
    assert "config.yaml:1:1\n" in done.stderr
    assert "config.yaml:2:9\n" in done.stderr
    assert "did you mean `local`?" in done.stderr


def test_a_right_edit_replaces_the_file(home: Path, tmp_path: Path, around: dict[str, str]) -> None:
    file = home / "config.yaml"
    real = tmp_path / "dotfiles.yaml"
    real.write_text("{}\n")
    real.chmod(0o640)
    file.symlink_to(real)
    done = argosy("config", "edit", **around, EDITOR=editor(tmp_path, RIGHT))
    assert (done.returncode, real.read_text()) == (0, RIGHT)
    assert file.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert not list(tmp_path.glob(f"**/{COPY}"))


def test_a_wrong_edit_is_kept_beside_and_changes_nothing(
    home: Path, tmp_path: Path, around: dict[str, str]
) -> None:
    file, copy = home / "config.yaml", home / COPY
    file.write_text(RIGHT)
    done = argosy("config", "edit", **around, EDITOR=editor(tmp_path, "locl: {}\n"))
    assert done.returncode == 2
    assert "did you mean `local`?" in done.stderr
    assert f"your text is kept in {copy}" in done.stderr
    assert (file.read_text(), copy.read_text()) == (RIGHT, "locl: {}\n")
    mend = f"{sys.executable} -c \"import sys; p = sys.argv[1]; t = open(p).read(); " \
        "open(p, 'w').write(t.replace('locl', 'local'))\""  # fmt: skip
    done = argosy("config", "edit", **around, EDITOR=mend)
    assert (done.returncode, file.read_text()) == (0, "local: {}\n")
    assert f"goes on with {copy}" in done.stderr
    assert not copy.exists()


def test_an_edit_that_changes_nothing_makes_no_file(home: Path, around: dict[str, str]) -> None:
    done = argosy("config", "edit", **around, EDITOR="true")
    assert (done.returncode, list(home.iterdir())) == (0, [])
    assert "is unchanged" in done.stderr
    assert FIRST.startswith("#")


def test_an_editor_that_fails_or_is_missing_is_told(home: Path, around: dict[str, str]) -> None:
    (home / "config.yaml").write_text(RIGHT)
    done = argosy("config", "edit", **around, EDITOR="false")
    assert (done.returncode, "`false` ended with 1" in done.stderr) == (2, True)
    (home / COPY).unlink()
    done = argosy("config", "edit", **around, EDITOR="/no/editor")
    assert (done.returncode, "`/no/editor` cannot be run" in done.stderr) == (3, True)
    assert [path.name for path in home.iterdir()] == ["config.yaml"]


def test_what_somebody_else_wrote_meanwhile_is_not_overwritten(
    home: Path, tmp_path: Path, around: dict[str, str]
) -> None:
    file = home / "config.yaml"
    file.write_text(RIGHT)
    script = tmp_path / "both.py"
    script.write_text(
        f"import sys; open(sys.argv[1], 'w').write('local: {{}}\\n')\n"
        f"open({str(file)!r}, 'a').write('# theirs\\n')\n"
    )
    done = argosy("config", "edit", **around, EDITOR=f"{sys.executable} {script}")
    assert done.returncode == 7
    assert "was changed by somebody else" in done.stderr
    assert file.read_text() == RIGHT + "# theirs\n"


def test_a_running_server_that_has_not_read_it_is_named(
    home: Path, tmp_path: Path, around: dict[str, str]
) -> None:
    file = home / "config.yaml"
    with answering(home) as server:
        server.answers["GET /v1/server"] = {"pid": 1, "started_at": 1000.0}
        done = argosy("config", "edit", **around, EDITOR=editor(tmp_path, RIGHT))
        assert "`argosy server stop`" in done.stderr
        os.utime(file, (500.0, 500.0))
        assert "server stop" not in argosy("config", "show", **around).stderr


def test_a_server_that_cannot_start_with_it_says_what_is_wrong(
    home: Path, around: dict[str, str]
) -> None:
    (home / "config.yaml").write_text("locl: 1\nlocal: {pool: 1}\n")
    done = argosy("status", **around)
    assert done.returncode == 2
    assert f"where: {home}/config.yaml:1:1\n" in done.stderr
    assert f"where: {home}/config.yaml:2:9\n" in done.stderr
    said = (home / "server.log").read_text()
    assert f"  {home}/config.yaml:1:1: `locl` is no section of this file (did you mean" in said


def test_without_an_editor_and_a_terminal_nothing_is_opened(
    home: Path, around: dict[str, str]
) -> None:
    done = argosy("config", "edit", **around, EDITOR="")
    assert (done.returncode, "no editor is set" in done.stderr) == (3, True)
    assert list(home.iterdir()) == []

"""What an older store does not know: shown, let alone, and ended only when that is asked for."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.whole.home import LOOK, Home

pytestmark = pytest.mark.whole

POOL = "local:\n  pools:\n    rack: {hosts: 1, cpus: 4, memory: 8}\n"
FILE = "name: stays\nresources: {infra: local/rack}\nrun: exec sleep 1000\n"
PATIENCE = 60.0


def until(holds: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(LOOK)


def runs(mark: str) -> bool:
    """Whether a process has that in its environment."""
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has just ended
            if mark.encode() in file.read_bytes():
                return True
    return False


def kept(home: Home, copy: Path) -> None:
    """A backup of the store, with no server on it."""
    home.argosy("infra", "list").good()
    home.argosy("server", "stop").good()
    copy.mkdir()
    for file in home.path.glob("store.db*"):
        shutil.copy(file, copy)


def put_back(home: Home, copy: Path) -> None:
    home.argosy("server", "stop").good()
    for file in home.path.glob("store.db*"):
        file.unlink()
    for file in copy.iterdir():
        shutil.copy(file, home.path)


def test_what_a_restored_store_never_issued_is_ended_only_when_asked(home: Home) -> None:
    folder = home.path.parent
    home.path.mkdir()
    (home.path / "config.yaml").write_text(POOL)
    kept(home, folder / "backup")
    (folder / "stays.yaml").write_text(FILE)
    mark = f"MARK={folder}"
    home.argosy("launch", str(folder / "stays.yaml"), "-d", "-y", "--env", mark).good()
    until(lambda: home.group("stays")["phase"] == "RUNNING", "it does not run")
    put_back(home, folder / "backup")

    assert json.loads(home.argosy("status", "-o", "json").good().out) == []
    shown = json.loads(home.argosy("infra", "clean", "local/rack", "-o", "json").good().out)
    assert sorted(one["host"] for one in shown["leases"]) == ["", "rack-0"]
    assert all(one["own_home"] for one in shown["leases"])
    said = home.argosy("infra", "clean", "local/rack").good()
    assert "shown only; `-y` ends it" in said.err
    held = home.argosy("infra", "list").good().out
    assert "no group (1 node)" in held
    assert runs(mark)

    ended = home.argosy("infra", "clean", "local/rack", "-y").good()
    assert "ended 2 leases on local/rack" in ended.err
    until(lambda: not runs(mark), "it goes on")
    none = home.argosy("infra", "clean", "local/rack", "-y").good()
    assert none.out == "nothing on local/rack belongs to no group\n"

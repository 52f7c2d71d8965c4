"""A full disk, a damaged file, a folder that is read-only: clear errors that say what helps."""

from __future__ import annotations

import json
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from argosy.errors import AccessError, ArgosyError, Broken, InfraError
from argosy.model.ids import Serial, ServerId, group_id
from argosy.store import Store
from argosy.store.store import Store as StoreClass
from argosy.testing.builders import a_group, a_spec
from tests.store.small_disk import on_a_tmpfs

pytestmark = pytest.mark.anyio
FULL_DISK = Path(__file__).parent / "full_disk.py"
RESERVE = Path(__file__).parent / "reserve_spent.py"
ROOM = Path(__file__).parent / "room_used.py"
OPEN = (
    "import json, sys, pathlib\n"
    "from argosy.errors import ArgosyError\n"
    "from argosy.store import Store\n"
    "try: Store.open(pathlib.Path(sys.argv[1])).close()\n"
    "except ArgosyError as error: print(json.dumps(error.fields()))\n"
)


def told_on_a_tmpfs(folder: Path, options: str, *command: str) -> Any:
    """The JSON that `command` prints where `folder` is a small file system."""
    done = on_a_tmpfs(folder, options, *command)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_full_disk_is_a_clear_error_and_nothing_is_torn(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    told = told_on_a_tmpfs(folder, "size=2m", sys.executable, str(FULL_DISK), str(folder))
    assert told["error"]["error"] == "InfraError"
    assert told["error"]["code"] == "store/disk-full"
    assert str(folder) in told["error"]["text"]
    assert "free some space" in told["error"]["hints"][0]
    assert told["readable_while_full"]
    assert told["writable_again"]
    assert told["whole"]


def test_what_a_full_disk_refuses_is_written_in_the_room_that_was_kept(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    told = told_on_a_tmpfs(folder, "size=12m", sys.executable, str(RESERVE), str(folder))
    assert told["allocated"] >= 2 * 2**20
    assert told["saved"] >= 1
    assert told["reopened"]
    assert told["whole"]


def test_a_store_has_room_of_its_own_that_no_other_program_takes(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    told = told_on_a_tmpfs(folder, "size=64m", sys.executable, str(ROOM), str(folder))
    assert told == {"grew": 0, "whole": True}


def test_a_disk_too_full_to_begin_is_a_clear_error(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    command = (sys.executable, "-c", OPEN, str(folder / "store.db"))
    told = told_on_a_tmpfs(folder, "size=16k", *command)
    assert told["code"] == "store/disk-full"


def test_a_read_only_folder_is_a_clear_error(tmp_path: Path) -> None:
    folder = tmp_path / "fixed"
    command = (sys.executable, "-c", OPEN, str(folder / "store.db"))
    told = told_on_a_tmpfs(folder, "size=1m,ro", *command)
    assert told["error"] == "AccessError"
    assert told["code"] == "store/no-access"
    assert "ARGOSY_HOME" in told["hints"][0]


def test_a_missing_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(AccessError) as caught:
        Store.open(tmp_path / "nowhere" / "store.db")
    assert caught.value.code == "store/no-access"


def test_a_file_that_is_no_database_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"this is not a database " * 100)
    with pytest.raises(Broken) as caught:
        Store.open(path)
    assert caught.value.code == "store/broken"
    assert "move it away" in caught.value.hints[0]
    assert path.read_bytes().startswith(b"this is not")


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE photos (id)")
    other.close()
    with pytest.raises(Broken) as caught:
        Store.open(path)
    assert caught.value.code == "store/foreign"
    other = sqlite3.connect(path)
    assert [name for (name,) in other.execute("SELECT name FROM sqlite_master")] == ["photos"]
    other.close()


def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    Store.open(path).close()
    newer = sqlite3.connect(path)
    newer.execute("UPDATE alembic_version SET version_num = '9999'")
    newer.commit()
    newer.close()
    with pytest.raises(Broken) as caught:
        Store.open(path)
    assert caught.value.code == "store/newer"
    assert "9999" in caught.value.text


async def test_a_file_damaged_in_the_middle_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = Store.open(path)
    for number in range(30):
        group = a_group(spec=a_spec(name=f"g{number}"))
        await store.create(
            replace(group, id=group_id(ServerId("5eed01"), Serial(1, number))), "x" * 5000, ()
        )
    store.close()
    _damage(path)
    with pytest.raises(ArgosyError) as caught:
        await _use(path)
    assert isinstance(caught.value, (Broken, InfraError))
    assert caught.value.code == "store/broken"
    assert caught.value.hints


def _damage(path: Path) -> None:
    """Overwrite all pages but the first, which holds the schema."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))


async def _use(path: Path) -> None:
    store = StoreClass.open(path)
    try:
        store.groups(ended=True, limit=100)
        await store.create(a_group(), "source", ())
    finally:
        store.close()


def test_another_program_that_holds_the_file_is_named_as_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    Store.open(path).close()
    monkeypatch.setattr("argosy.store.database.BUSY_TIMEOUT_S", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(InfraError) as caught:
        Store.open(path)
    assert caught.value.code == "store/locked"
    other.rollback()
    other.close()

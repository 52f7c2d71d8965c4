"""The store: what is kept and what goes; files over files that are there."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.agent.store import lay, trees
from argosy.agent.store.trees import Broken, Store
from argosy.storage import manifest, snapshot
from tests.agent.store.bringing import GROUP
from tests.agent.store.odd import odd_folder, seen

OTHER_USER = 65534


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def keep(store: Store, folder: Path, name: str, body: bytes, age: float = 0.0) -> str:
    """A tree of one file in the store, used so many seconds ago."""
    source = folder / name
    source.mkdir()
    (source / "file").write_bytes(body)
    taken = Path(snapshot.take(folder / "home", GROUP, [str(source)])[str(source)])
    place = Path(store.tree(taken.name))
    with store.held():
        place.mkdir()
    packed = taken.with_name(taken.name + snapshot.MANIFEST).read_bytes()
    (place / "manifest").write_bytes(manifest.unpacked(packed))
    (place / "times").write_bytes(b"")
    blob = Path(store.blob(manifest.hash_of(body)))
    blob.parent.mkdir(exist_ok=True)
    blob.write_bytes(body)
    os.utime(place, (time.time() - age, time.time() - age))
    return taken.name


def blobs(store: Store) -> set[bytes]:
    return {path.read_bytes() for path in Path(store.folder, "blobs").rglob("*") if path.is_file()}


def test_what_is_old_goes_unless_it_is_needed(store: Store, tmp_path: Path) -> None:
    ages = {"old": trees.KEEP_S + 60, "wanted": trees.KEEP_S + 60, "new": trees.YOUNG_S + 60}
    names = {name: keep(store, tmp_path, name, name.encode(), age) for name, age in ages.items()}
    assert store.sweep({names["wanted"]}) == len(b"old")
    assert [store.has(names[name]) for name in ("old", "wanted", "new")] == [False, True, True]
    assert blobs(store) == {b"wanted", b"new"}


def test_above_the_cap_the_longest_unused_go(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "STORE_MAX_BYTES", 250)
    ages = {"c": 3, "b": 2, "a": 1}
    names = {
        name: keep(store, tmp_path, name, name.encode() * 100, trees.YOUNG_S * age + 60)
        for name, age in ages.items()
    }
    store.sweep(set())
    assert [store.has(names[name]) for name in "abc"] == [True, True, False]
    assert blobs(store) == {b"a" * 100, b"b" * 100}


def test_what_was_used_just_now_stays_however_large(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "STORE_MAX_BYTES", 0)
    name = keep(store, tmp_path, "a", b"body")
    assert store.sweep(set()) == 0
    assert store.has(name)


def test_nothing_goes_while_something_is_received(store: Store, tmp_path: Path) -> None:
    name = keep(store, tmp_path, "a", b"body", trees.KEEP_S + 60)
    with store.held():
        assert store.sweep(set()) == 0
        assert store.has(name)
    assert store.sweep(set()) == 4


def test_an_empty_place_has_nothing_to_sweep(store: Store) -> None:
    assert store.sweep(set()) == 0
    assert not os.path.exists(store.folder)


def test_a_missing_content_is_noticed(store: Store, tmp_path: Path) -> None:
    name = keep(store, tmp_path, "a", b"body")
    os.unlink(store.blob(manifest.hash_of(b"body")))
    with pytest.raises(Broken):
        store.build(name, str(tmp_path / "target"))
    assert not store.has(name)


@pytest.fixture
def others_folder() -> Iterator[Path]:
    """A folder that a user without rights may write in."""
    folder = Path(tempfile.mkdtemp(prefix="argosy-store-"))
    if os.geteuid() == 0:
        os.chown(folder, OTHER_USER, OTHER_USER)
    yield folder
    lay.remove(str(folder))
    assert not folder.exists()


def test_a_copy_over_a_copy_is_the_same_for_who_has_no_rights(others_folder: Path) -> None:
    """Read-only files and folders, and links, are no obstacle to a second time."""
    source, target = others_folder / "source", others_folder / "target"
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgid(OTHER_USER)
                os.setuid(OTHER_USER)
            odd_folder(source)
            for _ in range(2):
                lay.copy_all(os.fsencode(source), os.fsencode(target))
            code = 0 if seen(source) == seen(target) else 2
            lay.remove(str(target))
            code = code or (3 if target.exists() else 0)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_folder_keeps_what_is_not_replaced(tmp_path: Path) -> None:
    source, target = odd_folder(tmp_path / "source"), tmp_path / "target"
    (target / "bin").mkdir(parents=True)
    (target / "bin" / "mine").write_text("mine")
    (target / "link").write_text("a file where a link comes")
    lay.copy_all(os.fsencode(source), os.fsencode(target))
    assert seen(target).items() >= seen(source).items()
    assert (target / "bin" / "mine").read_text() == "mine"
    shutil.rmtree(target)

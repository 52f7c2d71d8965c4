"""What a host lacks of a snapshot, as frames; and that a snapshot knows what is in it."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

from argosy.model.ids import GroupId
from argosy.storage import manifest, snapshot
from argosy.storage.outgoing import HEAD, Outgoing, Snapshot

GROUP = GroupId("g1-1")


def a_snapshot(folder: Path, files: dict[str, bytes]) -> Snapshot:
    for name, body in files.items():
        path = folder / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    taken = snapshot.take(folder / "home", GROUP, [str(folder / "code")])
    return Snapshot(Path(taken[str(folder / "code")]))


def frames(out: Outgoing) -> list[bytes]:
    """The contents of each frame, unpacked, without the end."""
    found = []
    while frame := out.frame():
        kind, size = HEAD.unpack(frame[: HEAD.size])
        assert size == len(frame) - HEAD.size
        found.append(zlib.decompress(frame[HEAD.size :]) if kind else frame[HEAD.size :])
    assert found[-1] == b""
    return found[:-1]


def test_many_small_files_share_frames(tmp_path: Path) -> None:
    files = {f"f{n:04}": b"%d" % n * 50 for n in range(3000)}
    snap = a_snapshot(tmp_path, files)
    out = snap.outgoing([[0, 3000]], {})
    found = frames(out)
    assert len(found) == 1
    assert b"".join(found) == b"".join(files.values())
    assert out.sent < snap.size / 2


def test_a_large_file_is_cut_and_gone_on_with(tmp_path: Path) -> None:
    body = os.urandom((3 << 20) + 5)
    snap = a_snapshot(tmp_path, {"a": b"first", "b": body, "c": b"last"})
    found = frames(snap.outgoing([[1, 2]], {"1": 1000}))
    assert b"".join(found) == body[1000:] + b"last"
    assert [len(one) for one in found][:-1] == [1 << 20] * (len(found) - 1)


def test_nothing_lacking_is_an_end(tmp_path: Path) -> None:
    assert frames(a_snapshot(tmp_path, {"a": b"1"}).outgoing([], {})) == []


@pytest.mark.parametrize(
    ("lacks", "begun"),
    [([[0, 3]], {}), ([[-1, 1]], {}), ([[0, 0]], {}), ([[0, 1]], {"0": 9}), ([[0, 1]], {"0": -1})],
)
def test_what_is_not_there_is_not_sent(tmp_path: Path, lacks: list, begun: dict) -> None:
    snap = a_snapshot(tmp_path, {"a": b"1", "b": b"2"})
    with pytest.raises(ValueError, match="agent"):
        snap.outgoing(lacks, begun)


def test_a_file_that_shrank_is_an_error(tmp_path: Path) -> None:
    snap = a_snapshot(tmp_path, {"a": b"12345"})
    (snap.path / "a").write_bytes(b"1")
    out = snap.outgoing([[0, 1]], {})
    with pytest.raises(ValueError, match="not what it was"):
        out.frame()
    out.close()


def test_a_snapshot_is_named_by_its_manifest(tmp_path: Path) -> None:
    snap = a_snapshot(tmp_path, {"a": b"1", "sub/b": b"22", "empty": b""})
    assert manifest.hash_of(manifest.unpacked(snap.packed)) == snap.path.name
    assert [(line.path, line.size) for line in snap.lines] == [
        ("a", 1), ("empty", 0), ("sub", 0), ("sub/b", 2),
    ]  # fmt: skip
    assert snap.size == 3


def test_a_single_file_is_sent_like_a_folder(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"body")
    taken = snapshot.take(tmp_path / "home", GROUP, [str(tmp_path / "one")])
    snap = Snapshot(Path(taken[str(tmp_path / "one")]))
    assert frames(snap.outgoing([[0, 1]], {})) == [b"body"]
    assert len(zlib.decompress(snap.times())) == 8


def test_a_file_that_is_written_meanwhile_is_as_it_was_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "log").write_text("before\n")
    copied = snapshot._copy

    def late(tree: snapshot._Tree, target: Path) -> None:
        (code / "log").write_text("before\nand after\n")
        copied(tree, target)

    monkeypatch.setattr(snapshot, "_copy", late)
    taken = snapshot.take(tmp_path / "home", GROUP, [str(code)])
    snap = Snapshot(Path(taken[str(code)]))
    assert frames(snap.outgoing([[0, 1]], {})) == [b"before\nand after\n"]
    assert manifest.hash_of(b"before\nand after\n") == snap.contents[0].digest


def test_the_manifest_of_a_shared_snapshot_is_there_too(tmp_path: Path) -> None:
    first = a_snapshot(tmp_path, {"a": b"1"})
    again = snapshot.take(tmp_path / "home", GroupId("g1-2"), [str(tmp_path / "code")])
    second = Snapshot(Path(again[str(tmp_path / "code")]))
    assert (second.path.name, second.lines) == (first.path.name, first.lines)

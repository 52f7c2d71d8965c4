"""Manifests: what the server writes the agent reads, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from argosy.agent.store import manifest as there
from argosy.storage import manifest as here
from argosy.storage.manifest import Kind, Line
from tests.agent.store.odd import odd_folder

DIGEST = "0123456789abcdef" * 2
NAMES = some.binary(min_size=1, max_size=9).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)


@given(some.lists(some.tuples(NAMES, some.sampled_from("dfl"), NAMES), unique_by=lambda x: x[0]))
def test_the_agent_reads_what_the_server_writes(found: list[tuple[bytes, str, bytes]]) -> None:
    lines = [
        Line(
            Kind(kind),
            os.fsdecode(name),
            0o4755 if kind != "l" else 0,
            len(target) if kind == "f" else 0,
            DIGEST if kind == "f" else "",
            os.fsdecode(target) if kind == "l" else "",
        )
        for name, kind, target in found
    ]
    body = here.composed(lines)
    entries = there.parsed(body, here.hash_of(body))
    assert here.parsed(body) == tuple(lines)
    assert [
        (one.kind, os.fsdecode(one.path), one.mode, one.size, one.digest, os.fsdecode(one.target))
        for one in entries
    ] == [(str(x.kind), x.path, x.mode, x.size, x.digest, x.target) for x in lines]
    assert [one.digest for one in there.blobs(entries)] == [
        one.digest for one in here.contents(lines)
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"d 755\0../x\0", b"d 755\0/x\0", b"d 755\0x/y\0",
        b"f 644 1 " + DIGEST.encode() + b"\0a/b\0",
        b"l\0x\0/etc\0f 644 1 " + DIGEST.encode() + b"\0x/passwd\0", b"d 755\0x\0d 755\0x\0",
        b"f 644 1 ../../etc\0x\0", b"f 644 -1 " + DIGEST.encode() + b"\0x\0", b"q\0x\0", b"l\0x\0",
        b"d 755\0\0", b"d 755\0x", b"d 755\0.\0", b"f 644\0x\0", b"d 999\0x\0",
    ],
)  # fmt: skip
def test_what_would_lie_elsewhere_is_refused(body: bytes) -> None:
    whole = here.MARK + body
    with pytest.raises(there.ManifestError):
        there.parsed(whole, here.hash_of(whole))


def test_another_manifest_is_refused() -> None:
    with pytest.raises(there.ManifestError, match="another one"):
        there.parsed(here.MARK, "0" * 32)


def test_contents_are_named_once(tmp_path: Path) -> None:
    top = odd_folder(tmp_path / "odd")
    lines = [Line(Kind.FILE, name, 0o644, *here.read(str(top / name))[2:]) for name in
             ("twice", "closed/inner/deep", "empty", "main.py")]  # fmt: skip
    assert [line.path for line in here.contents(lines)] == ["twice", "main.py"]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (f"/home/a/.argosy/snapshots/g1-1/{DIGEST}", ("g1-1", DIGEST)),
        (f"/snapshots/g1-1/{DIGEST}/x", ("", "")),
        (f"/x/g1-1/{DIGEST}", ("", "")),
        ("/data", ("", "")),
        ("", ("", "")),
    ],
)
def test_only_a_snapshot_is_a_tree(path: str, found: tuple[str, str]) -> None:
    assert there.tree_of(path) == found

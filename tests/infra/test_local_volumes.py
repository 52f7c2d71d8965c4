"""Folders of volumes on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.errors import NotFound
from argosy.infra.local import volumes
from argosy.model.volumes import Volume, VolumeKind, VolumeSpec


def a_volume(**more: object) -> Volume:
    return Volume("data-1", VolumeSpec("data", **{"infra": "local", **more}))  # type: ignore[arg-type]


def test_what_is_to_be_there_is_looked_for(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    local, nfs = VolumeKind.LOCAL, VolumeKind.NFS
    for wrong in (
        a_volume(kind=local, host_path=gone, use_existing=True),
        a_volume(kind=nfs, host_path=gone),
    ):
        with pytest.raises(NotFound, match="is no folder on this machine"):
            volumes.check(wrong)
    volumes.check(a_volume(kind=nfs, host_path=str(tmp_path)))
    volumes.check(a_volume(kind=nfs, host_path=gone, infra=""))  # it may be for other hosts
    volumes.check(a_volume(kind=local, host_path=gone))  # its first use makes it
    volumes.check(a_volume(kind=local))


def test_bytes_are_removed_once_and_for_all(tmp_path: Path) -> None:
    volume = a_volume(kind=VolumeKind.LOCAL)
    assert volumes.names(tmp_path) == ()
    volumes.remove(tmp_path, volume)
    for name in ("data-1", "other-1"):
        (tmp_path / "volumes" / name / "inner").mkdir(parents=True)
        (tmp_path / "volumes" / name / "inner" / "file").write_text("x")
    (tmp_path / "volumes" / "data-1.gone").mkdir()  # of one that was interrupted
    assert volumes.names(tmp_path) == ("data-1", "other-1")
    volumes.remove(tmp_path, volume)
    assert volumes.names(tmp_path) == ("other-1",)
    assert [one.name for one in (tmp_path / "volumes").iterdir()] == ["other-1"]

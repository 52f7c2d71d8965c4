"""Volumes of a local infra: folders beside the groups of this machine, made by the agents."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from argosy.errors import InfraError, NotFound
from argosy.model.volumes import Volume, VolumeKind

GONE: Final = ".gone"  # ends the name of one that is just being removed


def check(volume: Volume) -> None:
    """That its folder is there, where it is to be on this machine. Raises NotFound."""
    spec, path = volume.spec, volume.spec.host_path
    there = spec.use_existing or spec.kind is not VolumeKind.LOCAL
    if spec.infra and path and there and not os.path.isdir(path):
        raise NotFound(
            f"{path} is no folder on this machine",
            code="volumes/no-folder",
            hint="make it, or mount it there, and create the volume again",
        )


def remove(shared: Path, volume: Volume) -> None:
    """Remove its bytes; what is not there is removed. Raises InfraError."""
    path = shared / "volumes" / volume.id
    gone = path.with_name(path.name + GONE)
    try:
        if gone.exists():
            shutil.rmtree(gone)
        if path.exists():
            path.rename(gone)
            shutil.rmtree(gone)
    except OSError as error:
        raise InfraError(
            f"{error.filename}: {error.strerror}",
            code="volumes/cannot-remove",
            hint="change the rights of what is in it, then delete the volume again",
        ) from error


def names(shared: Path) -> tuple[str, ...]:
    """The ids of those whose bytes are here."""
    try:
        found = os.listdir(shared / "volumes")
    except FileNotFoundError:
        return ()
    return tuple(sorted(name for name in found if not name.endswith(GONE)))

"""A volume on one line, for people and programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from argosy.model.volumes import Volume, VolumeKind
from argosy.views.text import size

UNDECIDED: Final = "decided by its first use"


@dataclass(frozen=True, slots=True)
class VolumeRow:
    """What `argosy volumes list` shows of one."""

    name: str
    id: str
    type: str
    infra: str  # where it may be mounted; "": wherever its type is known
    size_gib: float
    where: str  # its bytes, in words
    host: str  # of a pool; "" where that is not decided, or means nothing
    state: str  # "ready", "in use", "deleting", "unfinished"
    used_by: tuple[str, ...]  # names of groups
    ours: bool  # its bytes go when it is deleted
    use_existing: bool
    labels: tuple[tuple[str, str], ...]
    config: tuple[tuple[str, str], ...]
    created_at: float


def volume_row(volume: Volume, used_by: tuple[str, ...] = ()) -> VolumeRow:
    """The line of a volume."""
    spec = volume.spec
    known = (
        ("storage_class_name", spec.storage_class),
        ("access_mode", spec.access_mode),
        ("namespace", spec.namespace),
        ("host_path", spec.host_path),
        ("host", spec.host),
    )
    return VolumeRow(
        name=spec.name,
        id=volume.id,
        type=str(spec.kind),
        infra=spec.infra,
        size_gib=spec.size_gib,
        where=_where(volume),
        host=volume.host,
        state=_state(volume, used_by),
        used_by=used_by,
        ours=spec.ours,
        use_existing=spec.use_existing,
        labels=spec.labels,
        config=tuple((key, value) for key, value in known if value),
        created_at=volume.created_at,
    )


def _state(volume: Volume, used_by: tuple[str, ...]) -> str:
    if volume.deleting:
        return "deleting" if volume.whole else "unfinished"
    return "in use" if used_by else "ready"


def _where(volume: Volume) -> str:
    spec = volume.spec
    match spec.kind:
        case VolumeKind.LOCAL:
            folder = spec.host_path or "a folder of Argosy's"
            place = f"{volume.host} of {volume.infra}" if volume.host else volume.infra
            return f"{folder} on {place}" if place else UNDECIDED
        case VolumeKind.NFS | VolumeKind.HOSTPATH:
            return (
                f"{spec.host_path} on {'every host' if spec.kind is VolumeKind.NFS else 'its host'}"
            )
        case VolumeKind.PVC:
            mode = spec.access_mode
            return f"a claim{f' ({mode})' if mode else ''} in {spec.namespace or 'the namespace'}"
        case VolumeKind.ANY:
            return ""


def size_text(row: VolumeRow) -> str:
    """Its size; "" when nothing was said."""
    return size(int(row.size_gib * 2**30)) if row.size_gib else ""


def fate(row: VolumeRow) -> str:
    """What becomes of its bytes when it is deleted."""
    if row.ours:
        unused = row.where == UNDECIDED
        return "nothing was written yet" if unused else f"what is in it is removed ({row.where})"
    return f"what is in it stays ({row.where})"

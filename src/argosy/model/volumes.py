"""Volumes: what a user made under a name, and what of it one node mounts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from argosy.model.ids import InfraName

VOLUME_NAME: Final = r"[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?"  # of a volume
KUBERNETES: Final = "kubernetes"
IN_PODS: Final = "/argosy-volumes"  # where a pod mounts what the agent then links
ON_HOSTS: Final = ("local", "ssh")  # infras whose hosts have folders of their own


class VolumeKind(StrEnum):
    """Where the bytes are."""

    ANY = ""  # of one that lives as long as its group: a folder on hosts, a claim on Kubernetes
    LOCAL = "local"  # a folder on one host
    NFS = "nfs"  # a folder that the admin mounted on every host: the same bytes everywhere
    PVC = "k8s-pvc"  # a claim
    HOSTPATH = "k8s-hostpath"  # a folder of whatever host it is


@dataclass(frozen=True, slots=True)
class VolumeSpec:
    """What a volume file says, with every default filled in."""

    name: str = ""  # "": of one that is described where it is mounted
    kind: VolumeKind = VolumeKind.ANY
    infra: str = ""  # where it may be mounted, * wildcards allowed; "": wherever its kind is known
    size_gib: float = 0.0  # 0: nothing was said
    use_existing: bool = False  # it was there before, and stays when it is deleted here
    labels: tuple[tuple[str, str], ...] = ()
    storage_class: str = ""
    access_mode: str = ""
    namespace: str = ""
    host_path: str = ""  # absolute
    host: str = ""  # of a pool: where its folder is to be

    @property
    def ours(self) -> bool:
        """Whether its bytes go when it is deleted: we made the place where they are."""
        if self.use_existing or self.kind in (VolumeKind.NFS, VolumeKind.HOSTPATH):
            return False
        return not self.host_path


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume that was made under a name."""

    id: str  # `NAME-` and when it was made, never given twice; names what is made for it
    spec: VolumeSpec
    created_at: float = 0.0  # 0: it was never whole
    infra: InfraName = ""  # of a `local` one: where its bytes are, once that is decided
    host: str = ""  # and on which host of a pool
    deleting: bool = False  # it goes, or is not whole yet: nothing new may mount it

    @property
    def whole(self) -> bool:
        """Whether all was made that belongs to it."""
        return self.created_at > 0.0


@dataclass(frozen=True, slots=True)
class VolumeUse:
    """One volume at one path of a node, complete."""

    destination: str  # absolute, below `~`, or relative to the working directory
    id: str  # names its bytes: of the volume, or (`ephemeral`) within the group
    spec: VolumeSpec
    ephemeral: bool = False  # it lives as long as the group
    sub_path: str = ""
    read_only: bool = False

    @property
    def everywhere(self) -> bool:
        """Whether it may be written, and has the same bytes wherever it is mounted."""
        many = self.spec.kind is VolumeKind.PVC and self.spec.access_mode == "ReadWriteMany"
        return not self.read_only and (self.spec.kind is VolumeKind.NFS or many)


def on_infra(use: VolumeUse, infra: InfraName) -> bool:
    """Whether that infra can mount it."""
    spec = use.spec
    if spec.infra and not _meant(spec.infra, infra):
        return False
    if use.ephemeral:
        return True
    match spec.kind:
        case VolumeKind.PVC:
            return _below(infra, KUBERNETES)
        case VolumeKind.LOCAL | VolumeKind.NFS:
            return any(_below(infra, one) for one in ON_HOSTS)
        case VolumeKind.HOSTPATH | VolumeKind.ANY:
            return True


def pod_path(use: VolumeUse) -> str:
    """Where a pod mounts it: at its destination, if that means the same to everybody."""
    if use.destination.startswith("/"):
        return use.destination
    return f"{IN_PODS}/{use.destination.replace('~', 'home').replace('/', '_')}"


def _meant(pattern: str, infra: InfraName) -> bool:
    """`local` is this machine alone; `ssh` and `kubernetes` are all of them."""
    if pattern == "local":
        return infra == "local"
    return fnmatchcase(infra.lower(), pattern.lower()) or _below(infra, pattern)


def _below(infra: InfraName, kind: str) -> bool:
    return infra == kind or infra.lower().startswith(kind.lower() + "/")

"""Composes the volumes of a pod, and the claims that are made for them, as plain data.

A claim that was made under a name is the volume's, and stays until that is deleted. One that lives
as long as its group is owned by the group's anchor. A path that is not absolute is known inside of
the pod only: such a volume is mounted at `pod_path`, and the agent links it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from argosy.infra.kubernetes import marks
from argosy.infra.kubernetes.config import LABEL_KEY, LABEL_VALUE
from argosy.infra.kubernetes.facts.quantities import gibibytes
from argosy.infra.kubernetes.manifests.owned import owned
from argosy.infra.kubernetes.marks import Json
from argosy.model.action import LeaseRequest
from argosy.model.volumes import Volume, VolumeKind, VolumeSpec, VolumeUse, pod_path

VOLUME: Final = f"{marks.PREFIX}volume"  # a label of the claim of a volume: its id
NAME_MAX: Final = 63
USUAL_ACCESS: Final = "ReadWriteOnce"
MANY: Final = "ReadWriteMany"


@dataclass(frozen=True, slots=True)
class Mounted:
    """What the volumes of a node become."""

    volumes: tuple[Json, ...] = ()  # of the pod
    mounts: tuple[Json, ...] = ()  # `volumeMounts` of its container
    claims: tuple[Json, ...] = ()  # PersistentVolumeClaims to be there before the pod


def mounted(request: LeaseRequest, owner: marks.Owner, anchor_uid: str = "") -> Mounted:
    """The volumes of a lease's pod. Claims without `anchor_uid` have no owner."""
    sources: dict[str, tuple[str, Json]] = {}  # what is mounted -> its name in the pod
    mounts: list[Json] = []
    claims: dict[str, Json] = {}
    for use in request.volumes:
        key = use.spec.host_path or use.id
        claim = _own_claim(use, request, owner, anchor_uid)
        if claim is not None:
            claims[claim["metadata"]["name"]] = claim
        name, _ = sources.setdefault(
            key, (f"volume-{len(sources)}", _source(use, claim))
        )  # several mounts of one volume share it
        mounts.append(_mount(name, use))
    volumes = tuple({"name": name, **source} for name, source in sources.values())
    return Mounted(volumes, tuple(mounts), tuple(claims.values()))


def claim_name(volume: Volume) -> str:
    """The claim of a volume: that of its own name, where it was there before."""
    return _claim_name(volume.spec, volume.id)


def claim(volume: Volume, owner: marks.Owner) -> Json:
    """The claim that is made for a volume of type `k8s-pvc` that was not there before."""
    labels = {**owner.labels, VOLUME: volume.id}
    return _claim(claim_name(volume), volume.spec, labels)


def _claim_name(spec: VolumeSpec, id_: str) -> str:
    return spec.name if spec.use_existing else _short(f"argosy-{id_}")


def _short(name: str) -> str:
    if len(name) <= NAME_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: NAME_MAX - 9].rstrip('-')}-{digest}"


def _own_claim(
    use: VolumeUse, request: LeaseRequest, owner: marks.Owner, anchor_uid: str
) -> Json | None:
    """The claim of a volume that lives as long as its group; None: it needs none.

    Tasks that name one share it. Without a name each node has its own, which a replaced node finds
    again; or the nodes of the task have one, where many pods may write it.
    """
    if not use.ephemeral or use.spec.kind is VolumeKind.LOCAL:
        return None
    own = not use.spec.name and use.spec.access_mode != MANY
    suffix = f"-{request.node.index}" if own else ""
    name = _short(f"argosy-{request.group}-{use.id}{suffix}".lower())
    made = _claim(name, use.spec, marks.group_labels(owner, request.group))
    made["metadata"] |= owned(request.group, anchor_uid)
    return made


def _claim(name: str, spec: VolumeSpec, marked: dict[str, str]) -> Json:
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    for key, value in spec.labels:
        if LABEL_KEY.fullmatch(key) and not key.startswith(marks.PREFIX):
            (labels if LABEL_VALUE.fullmatch(value) else annotations)[key] = value
    metadata: Json = {"name": name, "labels": {**labels, **marked}}
    if annotations:
        metadata["annotations"] = annotations
    if spec.namespace:
        metadata["namespace"] = spec.namespace
    body: Json = {
        "accessModes": [spec.access_mode or USUAL_ACCESS],
        "resources": {"requests": {"storage": gibibytes(spec.size_gib)}},
    }
    if spec.storage_class:
        body["storageClassName"] = spec.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": body,
    }


def _source(use: VolumeUse, claim: Json | None) -> Json:
    spec = use.spec
    if claim is not None:
        return {"persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
    if use.ephemeral:
        size: Json = {"sizeLimit": gibibytes(spec.size_gib)} if spec.size_gib else {}
        return {"emptyDir": size}
    if spec.host_path:
        made = spec.name and spec.kind is VolumeKind.HOSTPATH and not spec.use_existing
        kind = "DirectoryOrCreate" if made else "Directory"
        return {"hostPath": {"path": spec.host_path, "type": kind}}
    return {"persistentVolumeClaim": {"claimName": _claim_name(spec, use.id)}}


def _mount(name: str, use: VolumeUse) -> Json:
    found: Json = {"name": name, "mountPath": pod_path(use)}
    if use.sub_path:
        found["subPath"] = use.sub_path
    if use.read_only:
        found["readOnly"] = True
    return found

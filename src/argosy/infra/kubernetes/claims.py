"""The claims of volumes that a user made under a name, composed in manifests/volumes.py."""

from __future__ import annotations

from collections.abc import Sequence

from argosy.errors import InputError, NotFound
from argosy.infra.kubernetes import marks
from argosy.infra.kubernetes.cluster.client import Cluster
from argosy.infra.kubernetes.cluster.objects import Objects
from argosy.infra.kubernetes.manifests.volumes import VOLUME, claim, claim_name
from argosy.infra.kubernetes.wide import CLAIMS
from argosy.model.volumes import Volume, VolumeKind


class Claims:
    """The claims of one owner in one namespace."""

    def __init__(self, cluster: Cluster, objects: Objects, owner: marks.Owner) -> None:
        self._cluster, self._objects, self._owner = cluster, objects, owner

    async def ensure(self, volume: Volume) -> None:
        """Make its claim, or see that it is there. Raises InputError, NotFound, Refused."""
        spec = volume.spec
        if spec.kind is not VolumeKind.PVC:
            return
        if spec.namespace and spec.namespace != self._cluster.namespace:
            raise InputError(
                f"volume {spec.name!r} names namespace {spec.namespace!r}, and the pods of "
                f"{self._cluster.infra} are in {self._cluster.namespace!r}",
                code="kubernetes/other-namespace",
                hint="a pod mounts claims of its own namespace only: leave `namespace` out",
            )
        if not spec.use_existing:
            await self._objects.ensure(CLAIMS, claim(volume, self._owner))
        elif await self._objects.find(CLAIMS, claim_name(volume)) is None:
            raise NotFound(
                f"namespace {self._cluster.namespace} has no claim {claim_name(volume)!r}",
                code="kubernetes/no-claim",
                hint="make it there first, or leave `use_existing` out",
            )

    async def delete(self, volume: Volume) -> None:
        """Delete its claim, if it was made for it. Raises Refused."""
        if volume.spec.kind is VolumeKind.PVC and volume.spec.ours:
            there = await self._objects.find(CLAIMS, claim_name(volume))
            if (
                there is not None
                and (there["metadata"].get("labels") or {}).get(VOLUME) == volume.id
            ):
                await self._objects.delete(CLAIMS, claim_name(volume), there["metadata"]["uid"])

    async def every(self) -> Sequence[str]:
        """The ids of all volumes that have one. Raises Refused."""
        mark = f"{VOLUME},{self._owner.selector}"
        found = await self._cluster.get(self._cluster.in_namespace(CLAIMS), labelSelector=mark)
        return tuple(one["metadata"]["labels"][VOLUME] for one in found.get("items") or ())

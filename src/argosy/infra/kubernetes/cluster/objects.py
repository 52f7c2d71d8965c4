"""Makes and removes our objects: each verb is an "ensure", and touches nothing that is not ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from argosy.errors import Conflict
from argosy.infra.kubernetes import marks
from argosy.infra.kubernetes.cluster.client import Cluster, Json
from argosy.infra.kubernetes.cluster.failures import Refused
from argosy.infra.kubernetes.cluster.sight import Sight
from argosy.model.ids import GroupId, ServerId

NOT_FOUND, CONFLICT = 404, 409
TAKEN_RETRY: Final = 5.0  # seconds until a name that is taken may be free


class Objects:
    """The objects of one server in one namespace."""

    def __init__(self, cluster: Cluster, sight: Sight, server: ServerId) -> None:
        self._cluster, self._sight, self._server = cluster, sight, server

    async def ensure(self, kind: str, body: Json) -> Json:
        """Make it; the one that is there when it is ours. Raises Refused, Conflict."""
        try:
            return await self._cluster.post(self._cluster.in_namespace(kind), body)
        except Refused as error:
            if error.status != CONFLICT:
                raise
        name, ours = body["metadata"]["name"], body["metadata"]["labels"]
        there = await self._cluster.get(self._cluster.in_namespace(kind, name))
        labels = there["metadata"].get("labels") or {}
        if all(labels.get(key) == ours.get(key) for key in (marks.SERVER, marks.GROUP)):
            return there
        raise Conflict(
            f"the namespace {self._cluster.namespace} has a {kind[:-1]} {name!r} already, "
            "which is not of this group",
            code="kubernetes/name-taken",
            hint="end what it belongs to, or launch under another name: `--name`",
            retry=TAKEN_RETRY,
        )

    async def find(self, kind: str, name: str) -> Json | None:
        """The object of that name. Raises Refused."""
        try:
            return await self._cluster.get(self._cluster.in_namespace(kind, name))
        except Refused as error:
            if error.status != NOT_FOUND:
                raise
            return None

    async def label(self, pod: str, labels: Mapping[str, str | None]) -> None:
        """Set labels of a pod, None takes one away; silent when it is gone."""
        path = self._cluster.in_namespace("pods", pod)
        try:
            changed = await self._cluster.patch(path, {"metadata": {"labels": dict(labels)}})
        except Refused as error:
            if error.status != NOT_FOUND:
                raise
        else:
            (await self._sight.mine("pods")).put(changed, newer=True)

    async def delete(self, kind: str, name: str, uid: str = "") -> None:
        """Ask for its end; silent when it is gone. `uid`: that one, and none that has its name."""
        body = {"preconditions": {"uid": uid}} if uid else None
        try:
            await self._cluster.delete(self._cluster.in_namespace(kind, name), body)
        except Refused as error:
            if error.status not in (NOT_FOUND, CONFLICT):  # conflict: another of that name by now
                raise

    async def delete_of(self, group: GroupId, kind: str, name: str) -> None:
        """Ask for its end if it is that group's."""
        there = await self.find(kind, name)
        labels = (there or {}).get("metadata", {}).get("labels") or {}
        mine = (labels.get(marks.GROUP), labels.get(marks.SERVER)) == (group, self._server)
        if there is not None and mine:
            await self.delete(kind, name, there["metadata"]["uid"])

    async def names_of(self, group: GroupId, kind: str) -> list[str]:
        """What that group has of a kind. Raises Refused."""
        mark = f"{marks.SERVER}={self._server},{marks.GROUP}={group}"
        found = await self._cluster.get(self._cluster.in_namespace(kind), labelSelector=mark)
        return [str(one["metadata"]["name"]) for one in found.get("items") or ()]

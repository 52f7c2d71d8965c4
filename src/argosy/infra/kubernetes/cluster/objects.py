"""Makes and removes our objects: each verb is an "ensure", and touches nothing that is not ours."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from argosy.errors import Conflict
from argosy.infra.kubernetes import marks
from argosy.infra.kubernetes.cluster.backoff import Backoff
from argosy.infra.kubernetes.cluster.client import Cluster, Json
from argosy.infra.kubernetes.cluster.failures import Refused
from argosy.infra.kubernetes.cluster.sight import Sight
from argosy.infra.kubernetes.marks import Owner
from argosy.model.ids import GroupId

NOT_FOUND, CONFLICT = 404, 409
AGAIN_FIRST, AGAIN_MOST, AGAIN_MAX = 0.1, 2.0, 6  # seconds, seconds, tries to make one thing
TAKEN_RETRY: Final = 5.0  # seconds until a name that is taken may be free
LEAVING_RETRY: Final = 1.0  # the same, of a name that a group of ours has left


class Objects:
    """The objects of one owner in one namespace."""

    def __init__(self, cluster: Cluster, sight: Sight, owner: Owner) -> None:
        self._cluster, self._sight, self._owner = cluster, sight, owner

    async def ensure(self, kind: str, body: Json) -> Json:
        """Make it; the one that is there when it is ours. Raises Refused, Conflict."""
        backoff = Backoff(body["metadata"]["name"], AGAIN_FIRST, AGAIN_MOST)
        while True:
            try:
                return await self._cluster.post(self._cluster.in_namespace(kind), body)
            except Refused as error:
                if error.status != CONFLICT:
                    raise
                there = await self.find(kind, body["metadata"]["name"])
                if there is not None and not self._is_left(body, there):
                    return self._if_ours(kind, body, there)
                if backoff.tries >= AGAIN_MAX:
                    if there is not None:
                        raise self._still_there(kind, body) from error
                    raise
            # It went meanwhile, or is about to; or a quota that others use in the same moment was
            # not counted.
            await asyncio.sleep(backoff.pause())

    def _is_left(self, body: Json, there: Json) -> bool:
        """Whether it is of another group of ours: of those one at a time has a name, so that one
        has ended, and it is being removed.
        """
        labels, ours = there["metadata"].get("labels") or {}, body["metadata"]["labels"]
        mine = all(labels.get(key) == value for key, value in self._owner.labels.items())
        return mine and labels.get(marks.GROUP) not in ("", None, ours.get(marks.GROUP))

    def _still_there(self, kind: str, body: Json) -> Conflict:
        return Conflict(
            f"the {kind[:-1]} {body['metadata']['name']!r} of the group that had this name before "
            f"is still being removed from the namespace {self._cluster.namespace}",
            code="kubernetes/name-leaving",
            hint="it goes on by itself when that is gone; `--name` launches under another name",
            retry=LEAVING_RETRY,
        )

    def _if_ours(self, kind: str, body: Json, there: Json) -> Json:
        """What is there, when it is what we would make. Raises Conflict."""
        name, ours = body["metadata"]["name"], body["metadata"]["labels"]
        labels = there["metadata"].get("labels") or {}
        if all(labels.get(key) == ours.get(key) for key in marks.OF_A_GROUP):
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
        ours = {**self._owner.labels, marks.GROUP: group}
        mine = all(labels.get(key) == value for key, value in ours.items())
        if there is not None and mine:
            await self.delete(kind, name, there["metadata"]["uid"])

    async def names_of(self, group: GroupId, kind: str) -> list[str]:
        """What that group has of a kind. Raises Refused."""
        mark = f"{self._owner.selector},{marks.GROUP}={group}"
        found = await self._cluster.get(self._cluster.in_namespace(kind), labelSelector=mark)
        return [str(one["metadata"]["name"]) for one in found.get("items") or ()]

"""What can be seen of a cluster: a watch for each kind of object, begun when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from argosy.infra.kubernetes import marks
from argosy.infra.kubernetes.cluster.client import Cluster, Json
from argosy.infra.kubernetes.cluster.watch import Watched
from argosy.infra.kubernetes.facts import offers
from argosy.infra.kubernetes.marks import Owner

FIRST_LIST_SECONDS: Final = 10.0  # that whoever asks waits for a watch that begins
STARTED: Final = "Started"  # the reason of an event
OUR_CONTAINER: Final = f"spec.containers{{{marks.CONTAINER}}}"
UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"


class Sight:
    """All watches of one context. `changed` is called when something is another than before."""

    def __init__(self, cluster: Cluster, owner: Owner, changed: Callable[[], None]) -> None:
        self._cluster, self._owner, self._changed = cluster, owner, changed
        self._watches: dict[str, Watched] = {}

    async def mine(self, kind: str) -> Watched:
        """Our own objects of a kind: `pods`, `services`."""
        await self._cluster.open()
        path, mark = self._cluster.in_namespace(kind), self._owner.selector
        return await self._begun(
            kind, lambda: Watched(self._cluster, path, mark, self._changed, who=mark, kept=_trimmed)
        )

    async def nodes(self) -> Watched:
        """The cluster's nodes, as `NodeFacts`."""
        await self._cluster.open()
        return await self._begun(
            "nodes",
            lambda: Watched(
                self._cluster,
                "/api/v1/nodes",
                "",
                self._changed,
                who=self._owner.selector,
                kept=offers.node_facts,
            ),
        )

    async def pods_of_all(self) -> Watched:
        """All pods that use something, as `PodFacts`."""
        await self._cluster.open()
        return await self._begun(
            "all-pods",
            lambda: Watched(
                self._cluster, "/api/v1/pods", "", self._changed, who=self._owner.selector,
                kept=offers.pod_facts, fieldSelector=UNFINISHED,
            ),
        )  # fmt: skip

    def started(self) -> Collection[str]:
        """The pods whose kubelet has told that it started our container: that is told at once, and
        that it runs when the kubelet next looks. Nothing where events may not be seen.
        """
        if STARTED not in self._watches:
            path = self._cluster.in_namespace("events")
            self._watches[STARTED] = Watched(
                self._cluster, path, "", self._changed, who=self._owner.selector,
                kept=_pod_started, fieldSelector=f"involvedObject.kind=Pod,reason={STARTED}",
            )  # fmt: skip
            self._watches[STARTED].begin()
        return set(self._watches[STARTED].items.values())

    async def _begun(self, key: str, make: Callable[[], Watched]) -> Watched:
        if key not in self._watches:
            self._watches[key] = make()
        await self._watches[key].ready(FIRST_LIST_SECONDS)
        return self._watches[key]

    def known(self, kind: str) -> list[Any]:
        """Our own objects of a kind, or `nodes`, as far as they were looked at."""
        watched = self._watches.get(kind)
        return list(watched.items.values()) if watched is not None else []

    def node_ready(self, pod: Json) -> bool | None:
        """Whether the node that it is on is there and ready; None where that cannot be seen."""
        nodes = self._watches.get("nodes")
        if nodes is None or not nodes.current:
            return None
        node = nodes.items.get(marks.node_of(pod))
        return node is not None and bool(node.ready)

    async def close(self) -> None:
        """Watch no more."""
        for watched in self._watches.values():
            await watched.close()


def _pod_started(event: Json) -> str:
    """The pod in which our container was started; "" for another container."""
    about = event["involvedObject"]
    return str(about["name"]) if about.get("fieldPath") == OUR_CONTAINER else ""


def _trimmed(item: Json) -> Any:
    """Without what the server keeps for itself, which is half of it."""
    item["metadata"].pop("managedFields", None)
    return item

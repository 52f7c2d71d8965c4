"""What is group-wide on a cluster: the anchor, and the secret, services and claims that it owns.

It stands for the group's lease 0: made before its first pod, removed after its last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from argosy.infra.kubernetes import marks
from argosy.infra.kubernetes.cluster.client import Json
from argosy.infra.kubernetes.cluster.objects import Objects
from argosy.infra.kubernetes.cluster.sight import Sight
from argosy.infra.kubernetes.manifests import compose
from argosy.infra.kubernetes.manifests.volumes import mounted
from argosy.model.action import LeaseRequest
from argosy.model.ids import GroupId, TaskName

CLAIMS = "persistentvolumeclaims"


@dataclass(slots=True)
class _State:
    """Of one group, in this life."""

    uid: str = ""  # of the anchor, once all is made
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Wide:
    """What is group-wide of all groups. `agent` gives the agent's files, and blocks."""

    def __init__(
        self, objects: Objects, sight: Sight, owner: marks.Owner,
        agent: Callable[[], Mapping[str, bytes]],
    ) -> None:  # fmt: skip
        self._objects, self._sight, self._owner, self._agent = objects, sight, owner, agent
        self._states: dict[GroupId, _State] = {}

    async def ensure(self, request: LeaseRequest) -> str:
        """Make all that the pod of that lease needs; the anchor's uid. Raises Refused, Conflict."""
        state = self._states.setdefault(request.group, _State())
        async with state.lock:
            state.uid = state.uid or await self._made(request)
        claims = mounted(request, self._owner, state.uid).claims
        await asyncio.gather(*(self._objects.ensure(CLAIMS, one) for one in claims))
        return state.uid

    async def _made(self, request: LeaseRequest) -> str:
        """Make the anchor and what every pod needs; the anchor's uid."""
        group = (request.group, request.group_name, self._owner)
        anchor = await self._objects.ensure("configmaps", compose.anchor(*group))
        (await self._sight.mine("configmaps")).put(anchor)
        uid: str = anchor["metadata"]["uid"]
        agent = await asyncio.to_thread(self._agent)
        services = (
            compose.service(*group, uid),
            *(compose.balanced_service(*group, uid, one) for one in request.balanced),
        )
        there = await self._sight.mine("services")
        _, *made = await asyncio.gather(
            self._objects.ensure("secrets", compose.secret(*group, uid, agent)),
            *(self._objects.ensure("services", one) for one in services),
        )
        for one in made:
            there.put(one)
        return uid

    def balanced_addresses(self, group: GroupId) -> Mapping[TaskName, str]:
        """The addresses of the group's balanced tasks: those of their services."""
        return {
            task: service["spec"]["clusterIP"]
            for its_group, task, service in self._balancing()
            if its_group == group
        }

    def balanced_tasks(self) -> set[tuple[str, str]]:
        """The tasks that connections are balanced to: (group, task), as labels have it."""
        return {(group, marks.task_label(task)) for group, task, _ in self._balancing()}

    def _balancing(self) -> Iterator[tuple[GroupId, TaskName, Json]]:
        """The services of balanced tasks, with what they are of."""
        for one in self._sight.known("services"):
            task = (one["metadata"].get("annotations") or {}).get(marks.BALANCED)
            if task is not None:
                yield GroupId(one["metadata"]["labels"][marks.GROUP]), task, one

    async def release(self, group: GroupId) -> None:
        """Ask for the end of all of it, the anchor last: what it owns goes with it in any case."""
        state = self._states.setdefault(group, _State())
        async with state.lock:
            state.uid = ""
            if await self._objects.find("configmaps", marks.anchor_name(group)) is not None:
                names = await self._objects.names_of(group, "services")
                named = [("services", name) for name in names]
                named.append(("secrets", marks.secret_name(group)))
                await asyncio.gather(*(self._objects.delete_of(group, *one) for one in named))
                await self._objects.delete_of(group, "configmaps", marks.anchor_name(group))
        self._states.pop(group, None)

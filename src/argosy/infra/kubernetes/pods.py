"""The life of our pods: who has a node's name, whom connections are balanced to, and their end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from argosy.errors import ArgosyError
from argosy.infra.api import Stream
from argosy.infra.kubernetes import marks
from argosy.infra.kubernetes.cluster.backoff import Backoff, Turns, now
from argosy.infra.kubernetes.cluster.client import Cluster, Json
from argosy.infra.kubernetes.cluster.exec_stream import ExecStream
from argosy.infra.kubernetes.cluster.failures import BUSY, Refused
from argosy.infra.kubernetes.cluster.objects import Objects
from argosy.infra.kubernetes.cluster.sight import Sight
from argosy.infra.kubernetes.door import Door
from argosy.infra.kubernetes.kept import Kept
from argosy.infra.kubernetes.manifests import scripts
from argosy.model.ids import LeaseId

LOG: Final = logging.getLogger("argosy.infra.kubernetes")
KEEP_SECONDS: Final = 60.0  # for the logs of one pod
KEEP_AGAIN: Final = 1  # times that fetching them is tried again
SILENT_SECONDS: Final = 30.0  # that a silent node of the cluster is waited for, to fetch logs
SILENT_LOOK: Final = 0.2
TURN_FIRST, TURN_MOST = 0.25, 10.0  # seconds until exec is tried again; doubles, with jitter
BROKEN, BROKEN_TRIES = 500, 3  # what exec also says of a container that has just ended
DIAL_TRIES: Final = 4  # that are waited for an agent which is to dial in


class Pods:
    """The pods of one context."""

    def __init__(
        self, cluster: Cluster, sight: Sight, objects: Objects, kept: Kept, door: Door | None,
        answers: Callable[[str], bool],
    ) -> None:  # fmt: skip
        """`answers`: whether the agent in a pod does, which the cluster does not say to run yet."""
        self._cluster, self._sight, self._objects, self._kept = cluster, sight, objects, kept
        self._door, self._early_answers = door, answers
        self._turns = Turns(TURN_FIRST, TURN_MOST)  # of pods, for exec
        self._undialed: dict[str, int] = {}  # pod -> how often its agent was waited for in vain

    async def ensure(self, pod: Json) -> None:
        """Make it. Beside another of the same node it has no name: a name never has two addresses.

        Raises Refused, Conflict.
        """
        mine = await self._sight.mine("pods")
        if any(_same_node(one, pod) and _is_live(one) for one in mine.items.values()):
            del pod["metadata"]["labels"][marks.LIVE]
        mine.put(await self._objects.ensure("pods", pod))

    async def balance(self, healthy: Mapping[LeaseId, bool]) -> None:
        """Put the label that services select on the healthy ones, and on no other of these.

        Raises Refused.
        """
        mine = await self._sight.mine("pods")
        if not mine.current and mine.trouble is not None:
            raise mine.trouble
        wrong = [
            (name, good)
            for name, good in ((marks.pod_name(lease), good) for lease, good in healthy.items())
            if name in mine.items
            and (marks.HEALTHY in mine.items[name]["metadata"]["labels"]) != good
        ]
        await asyncio.gather(
            *(
                self._objects.label(name, {marks.HEALTHY: marks.IS_LIVE if good else None})
                for name, good in wrong
            )
        )

    async def release(self, name: str) -> None:
        """Its name goes to whom it belongs now, its logs come here, then it is deleted."""
        mine = await self._sight.mine("pods")
        there = mine.items.get(name)
        if there is None and not mine.current:
            there = await self._objects.find("pods", name)
        if there is not None:
            await self._objects.label(name, {marks.LIVE: None, marks.HEALTHY: None})
            await self._hand_name_on(there)
            await self._keep_logs(name, there)
        if self._door is not None:
            await self._objects.delete("secrets", name)
        await self._objects.delete("pods", name)
        self._undialed.pop(name, None)

    async def _hand_name_on(self, old: Json) -> None:
        """A pod that was made beside another of its node gets the name that both have."""
        for name, pod in list((await self._sight.mine("pods")).items.items()):
            stays = pod["metadata"].get("deletionTimestamp") is None
            if stays and _same_node(pod, old) and not _is_live(pod):
                await self._objects.label(name, {marks.LIVE: marks.IS_LIVE})

    async def _keep_logs(self, pod: str, there: Json) -> None:
        """Fetch the logs of what ran in it; once more, where that broke off. Without them it is
        deleted all the same: nothing may keep a lease.
        """
        if await asyncio.to_thread(self._kept.has, pod):
            return
        backoff = Backoff(pod, TURN_FIRST, TURN_MOST)
        try:
            async with asyncio.timeout(KEEP_SECONDS):
                while await self._answers(pod, there):
                    try:
                        await self._take(pod)
                        return
                    except (ArgosyError, OSError):
                        if backoff.tries >= KEEP_AGAIN:
                            raise
                    await asyncio.sleep(backoff.pause())
        except (Refused, ArgosyError, OSError, ValueError) as error:  # TimeoutError is an OSError
            LOG.warning("the logs of %s are lost: %s", pod, str(error) or "not in time")

    async def _answers(self, pod: str, there: Json) -> bool:
        """Whether it runs on a node that can be asked. One that is silent for a moment, as all are
        after the API server was away, is waited for, unless the cluster has given the pod up.
        """
        until = now() + SILENT_SECONDS
        while True:
            there = (await self._sight.mine("pods")).items.get(pod, there)
            runs = (there.get("status") or {}).get("phase") == "Running"
            if not runs and not self._early_answers(pod):
                return False
            if self._sight.node_ready(there) is not False:
                return True
            if there["metadata"].get("deletionTimestamp") or now() > until:
                return False
            await asyncio.sleep(SILENT_LOOK)

    async def _take(self, pod: str) -> None:
        """Put its logs into their place, all or nothing. Raises Refused, ArgosyError, OSError."""
        stream = await self._to_keep(pod)
        try:
            await self._kept.take(pod, stream)
        finally:
            await stream.close()

    async def _to_keep(self, pod: str) -> Stream:
        """What `agent keep` writes in that pod. Raises Refused, Unreachable."""
        dialed = await self.dialed(pod, 0.0, keep=True)
        return dialed or await self.exec(pod, scripts.KEEP_COMMAND, KEEP_SECONDS)

    async def exec(self, pod: str, command: Sequence[str], seconds: float) -> ExecStream:
        """A command's stream. A busy server is asked again, for so long. Raises Refused,
        Unreachable.
        """
        until, broken = now() + seconds, 0
        while await self._turns.come(pod, until - now()):
            try:
                stream = await self._cluster.exec(pod, list(command))
            except Refused as error:
                if error.status not in BUSY:
                    self._turns.over(pod)
                    raise
                self._turns.refused(pod, error.retry_after)
                broken += error.status == BROKEN
                if broken >= BROKEN_TRIES:
                    raise
            else:
                self._turns.over(pod)
                return stream
        raise Refused(429, "", "the API server is busy, and asks to wait")

    async def exec_once(self, pod: str, command: Sequence[str]) -> ExecStream:
        """A command's stream. When the server is busy, whoever asks next waits for that. Raises
        Refused, Unreachable.
        """
        try:
            return await self._cluster.exec(pod, list(command))
        except Refused as error:
            if error.status in BUSY:
                self._turns.refused(pod, error.retry_after)
            raise

    async def dialed(self, pod: str, seconds: float, *, keep: bool = False) -> Stream | None:
        """A stream that its agent has opened to us; None where agents do not dial, or this one has
        not. Raises Unreachable.
        """
        if self._door is None:
            return None
        there = (await self._sight.mine("pods")).items.get(pod)
        lease = marks.lease_of(there) if there is not None else None
        stream = await self._door.stream(lease, seconds, keep=keep) if lease is not None else None
        if stream is not None:
            self._undialed.pop(pod, None)
        return stream

    def may_dial_yet(self, pod: str) -> bool:
        """Whether an agent that has not dialed in is waited for some more, before exec is tried:
        a server may be wrong about where it can be reached.
        """
        if self._door is None:
            return False
        self._undialed[pod] = self._undialed.get(pod, 0) + 1
        return self._undialed[pod] < DIAL_TRIES


def _same_node(one: Json, other: Json) -> bool:
    """Whether both pods are of one node of a group."""
    labels, others = one["metadata"]["labels"], other["metadata"]["labels"]
    same = all(labels.get(key) == others.get(key) for key in (marks.GROUP, marks.NODE))
    return same and labels.get(marks.LEASE) != others.get(marks.LEASE)


def _is_live(pod: Json) -> bool:
    return marks.LIVE in pod["metadata"]["labels"]

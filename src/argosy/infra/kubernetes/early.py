"""Agents that answer before the cluster says that their pods run.

A kubelet says that a container runs when it next looks, up to a second after it has started it;
that it has started it, it tells at once, by an event. Then the stream is opened that `attach` is
going to be asked for. An agent that answers there is evidence that its pod runs; where none does,
nothing is lost, and the cluster will say what became of the pod. See docs/decisions/0016.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from argosy.errors import ArgosyError
from argosy.infra.kubernetes.cluster.exec_stream import ExecStream
from argosy.infra.kubernetes.cluster.failures import Refused
from argosy.infra.kubernetes.cluster.sight import Sight
from argosy.infra.kubernetes.manifests import scripts

LOG: Final = logging.getLogger("argosy.infra.kubernetes")
ANSWER_SECONDS: Final = 15.0
UNTAKEN_SECONDS: Final = 30.0  # that a stream waits to be asked for

Execute = Callable[[str, Sequence[str]], Awaitable[ExecStream]]  # a command in a pod, once


@dataclass(slots=True)
class _Try:
    """Of one pod."""

    task: asyncio.Task[None] | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)  # it is known whether it answers
    taken: asyncio.Event = field(default_factory=asyncio.Event)
    stream: ExecStream | None = None  # until it is taken


class Early:
    """The streams of one context. `changed` is called when an agent has answered."""

    def __init__(self, execute: Execute, sight: Sight, changed: Callable[[], None]) -> None:
        self._execute, self._sight, self._changed = execute, sight, changed
        self._tries: dict[str, _Try] = {}  # one for each pod
        self._answered: set[str] = set()

    def look(self, made: Collection[str], pods: Collection[str]) -> None:
        """See to the pods that are being made, and to no other. `pods`: all that are there."""
        self._answered.intersection_update(made)
        for pod in [one for one in self._tries if one not in made]:
            task = self._tries[pod].task
            if task is None or task.done():
                del self._tries[pod]
            elif pod not in pods:
                task.cancel()
        new = [pod for pod in made if pod not in self._tries]
        started = self._sight.started() if new else ()
        for pod in new:
            if pod in started:
                this = self._tries[pod] = _Try()
                this.task = asyncio.create_task(self._try(pod, this), name=f"early {pod}")

    def answers(self, pod: str) -> bool:
        """Whether its agent does, while the cluster does not say yet that it runs."""
        return pod in self._answered

    async def take(self, pod: str) -> ExecStream | None:
        """The stream to its agent, once, when it is tried whether there is one; else None."""
        this = self._tries.get(pod)
        if this is None:
            return None
        await this.over.wait()
        stream, this.stream = this.stream, None
        this.taken.set()
        return stream

    async def close(self) -> None:
        """End all that nobody asked for."""
        tasks = [one.task for one in self._tries.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _try(self, pod: str, this: _Try) -> None:
        try:
            this.stream = await self._answer(pod)
        finally:
            this.over.set()
        if this.stream is None:
            return
        self._answered.add(pod)
        self._changed()
        try:
            async with asyncio.timeout(UNTAKEN_SECONDS):
                await this.taken.wait()
        except TimeoutError:
            LOG.info("early: %s: nobody asked for it", pod)
        finally:
            stream, this.stream = this.stream, None
            if stream is not None:
                await stream.close()

    async def _answer(self, pod: str) -> ExecStream | None:
        """The stream to the agent in that pod; None where it does not answer."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                stream = await self._execute(pod, scripts.EARLY_COMMAND)
                if await stream.begins_with(scripts.ATTACHED):
                    return stream
                LOG.info("early: %s: %s", pod, stream.said or "its names need the cluster")
        except (Refused, ArgosyError, TimeoutError, ValueError) as error:
            LOG.info("early: %s: %s", pod, error)
        return None

"""Agents that answer before the cluster says that their pods run.

A kubelet says that a container runs when it next looks, up to a second after it has started it;
that it has started it, it tells at once, by an event. Then the stream is opened that `attach` is
going to be asked for. An agent that answers there is evidence that its pod runs; where none does,
nothing is lost, and the cluster will say what became of the pod. See docs/decisions/0016.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Final

from argosy.errors import ArgosyError
from argosy.infra.kubernetes.cluster.exec_stream import ExecStream
from argosy.infra.kubernetes.cluster.failures import Refused
from argosy.infra.kubernetes.cluster.sight import Sight
from argosy.infra.kubernetes.manifests import scripts

LOG: Final = logging.getLogger("argosy.infra.kubernetes")
ANSWER_SECONDS: Final = 15.0
ON_THE_WAY_SECONDS: Final = 3.0  # that whoever attaches waits for a try
UNTAKEN_SECONDS: Final = 30.0  # that a stream waits to be asked for

Execute = Callable[[str, Sequence[str]], Awaitable[ExecStream]]  # a command in a pod, once


class _Try:
    """Of one pod."""

    def __init__(self, pod: str, trying: Callable[[_Try], Coroutine[None, None, None]]) -> None:
        self.over = asyncio.Event()  # it is known whether it answers
        self.taken = asyncio.Event()
        self.stream: ExecStream | None = None  # until it is taken
        self.task = asyncio.create_task(trying(self), name=f"early {pod}")
        self.task.add_done_callback(lambda _: self.over.set())


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
            if task.done():
                del self._tries[pod]
            elif pod not in pods:
                task.cancel()
        new = [pod for pod in made if pod not in self._tries]
        started = self._sight.started() if new else ()
        for pod in new:
            if pod in started:
                self._tries[pod] = _Try(pod, partial(self._try, pod))

    def answers(self, pod: str) -> bool:
        """Whether its agent does, while the cluster does not say yet that it runs."""
        return pod in self._answered

    async def take(self, pod: str) -> ExecStream | None:
        """The stream to its agent, once; None where there is none. A try that is on the way is
        waited for, a little.
        """
        this = self._tries.get(pod)
        if this is None:
            return None
        try:
            async with asyncio.timeout(ON_THE_WAY_SECONDS):
                await this.over.wait()
        except TimeoutError:
            this.task.cancel()
            return None
        stream, this.stream = this.stream, None
        this.taken.set()
        return stream

    async def close(self) -> None:
        """End all that nobody asked for."""
        tasks = [one.task for one in self._tries.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _try(self, pod: str, this: _Try) -> None:
        this.stream = await self._answer(pod)
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
                LOG.info("early: %s: %s", pod, stream.said or "it ended at once")
        except (Refused, ArgosyError, OSError, ValueError) as error:  # TimeoutError is an OSError
            LOG.info("early: %s: %s", pod, error)
        return None

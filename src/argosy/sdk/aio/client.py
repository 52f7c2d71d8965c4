"""The client for asyncio: every verb of `sdk.client` under its name, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from argosy.sdk import requests
from argosy.sdk.aio import wire
from argosy.sdk.home import home_folder
from argosy.sdk.requests import Accepted, Chunk, Lines, LogQuery, PastEvent, Request, ServerView
from argosy.sdk.wire import CALL_TIMEOUT, NoServer
from argosy.views.shapes import Explanation, GroupRow, Overview, PlanView

if TYPE_CHECKING:
    from argosy.sdk.aio.channels import Channel

T = TypeVar("T")


class Client:
    """Speaks to the server of one home; every call opens a connection of its own.

    `start`: a missing server is started by the first call that needs one.
    """

    def __init__(
        self, home: Path | None = None, *, start: bool = True, timeout: float = CALL_TIMEOUT
    ) -> None:
        self.home = home or home_folder()
        self._start = start
        self._timeout = timeout

    async def ensure_server(self) -> None:
        """Start the server when none runs. Raises NoServer when this client may not."""
        if self._start:
            from argosy.sdk.start import ensure_server

            await asyncio.to_thread(ensure_server, self.home)

    async def server(self) -> ServerView:
        """Who serves."""
        return await self._call(requests.server())

    async def stop_server(self) -> None:
        """End the server; running groups go on."""
        await self._call(requests.stop_server())

    async def plan(self, body: dict[str, Any]) -> PlanView:
        """What a launch of `body` would do; nothing is written."""
        return await self._call(requests.plan(body))

    async def launch(self, body: dict[str, Any]) -> Accepted:
        """Submit a group. Raises InputErrors, or Conflict when its name lives.

        Without a time-out: files are copied first, and with `replace` a group is ended first.
        """
        await self.ensure_server()
        return await self._once(requests.launch(body))

    async def groups(self, *, ended: bool = False, limit: int | None = None) -> list[GroupRow]:
        """The groups, newest first."""
        return await self._call(requests.groups(ended=ended, limit=limit))

    async def group(self, ref: str) -> Overview:
        """One group now. Raises NotFound."""
        return await self._call(requests.group(ref))

    def watch(self, ref: str) -> AsyncIterator[Overview]:
        """The group now and after every change, until its phase is final."""
        return self._lines(requests.watch(ref))

    async def spec(self, ref: str) -> dict[str, Any]:
        """The file as it was submitted and as it was understood, secrets masked."""
        return await self._call(requests.spec(ref))

    def events(self, ref: str, *, since: int = 0, follow: bool = False) -> AsyncIterator[PastEvent]:
        """What happened after `since`; with `follow` until the group has ended."""
        return self._lines(requests.events(ref, since=since, follow=follow))

    async def explain(self, ref: str) -> Explanation:
        """Why it waits, and what would mend it."""
        return await self._call(requests.explain(ref))

    async def wait(self, ref: str, timeout: float | None = None) -> Overview | None:
        """The group once it has ended; None when `timeout` seconds passed before."""
        await self.ensure_server()
        return await self._once(requests.wait(ref, timeout))

    async def cancel(self, ref: str, *, now: bool = False) -> None:
        """End a group; `now`: without grace."""
        await self._call(requests.cancel(ref, now=now))

    async def restart(self, ref: str, task: str = "", index: int | None = None) -> None:
        """Replace the attempts of a group, a task or a node."""
        await self._call(requests.restart(ref, task, index))

    async def remove(self, ref: str) -> None:
        """Forget an ended group and its logs. Raises Conflict while it lives."""
        await self._call(requests.remove(ref))

    def logs(self, ref: str, query: LogQuery) -> AsyncIterator[Chunk]:
        """What the attempts wrote, merged in the order in which it was read."""
        return self._lines(requests.logs(ref, query))

    async def chaos(self, ref: str, what: str, task: str, index: int) -> None:
        """Break something on purpose: `kill`, `freeze`, `thaw`, `lose-host`, ..."""
        await self._call(requests.chaos(ref, what, task, index))

    async def infras(self) -> list[dict[str, Any]]:
        """What each infra can do here, as the API says it."""
        return await self._call(requests.infras())

    async def channel(self, ref: str, what: str, query: dict[str, object]) -> Channel:
        """A two-way stream: `exec`, `forward` or `copy`."""
        from argosy.sdk.aio.channels import Channel

        await self.ensure_server()
        return await Channel.open(self.home, requests.channel(ref, what, query))

    async def _call(self, request: Request[T]) -> T:
        """The answer; a missing server is started and asked again."""
        try:
            return await self._once(request)
        except NoServer:
            if not self._start:
                raise
        await self.ensure_server()
        return await self._once(request)

    async def _once(self, request: Request[T]) -> T:
        timeout = None if request.endless else self._timeout + request.patience
        status, answer = await wire.call(
            self.home, request.method, request.path, request.body, timeout
        )
        return request.read(status, answer)

    async def _lines(self, lines: Lines[T]) -> AsyncIterator[T]:
        await self.ensure_server()
        async for line in wire.stream(self.home, lines.path):
            value = lines.read(line)
            if value is not None:
                yield value

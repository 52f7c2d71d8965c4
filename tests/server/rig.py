"""A whole server in the test's own process: real store, real control plane, real unix socket.

Only the host is scripted (`scripted.py`). Clients are the SDK's, in threads, as they block.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from argosy.control.control import Control
from argosy.sdk import wire
from argosy.sdk.channels import Channel
from argosy.server.app import application
from argosy.server.context import Context
from argosy.server.home import Home
from argosy.server.web import Web
from argosy.store.store import Store
from tests.server.scripted import ScriptedInfra

DEADLINE_S = 30.0
FILE = """\
name: demo
execution: parallel
---
name: trainer
secrets: {TOKEN: hunter22}
run: echo trainer
---
name: worker
num_nodes: 2
run: echo worker
"""


@dataclass(slots=True)
class Rig:
    """A running server and what a test needs of it."""

    folder: Path
    infra: ScriptedInfra
    control: Control
    web: Web
    threads: list[asyncio.Future[Any]] = field(default_factory=list)

    async def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """One request: status and JSON. Raises what the server answers."""
        return await asyncio.to_thread(wire.call, self.folder, method, f"/v1/{path}", body)

    async def get(self, path: str) -> Any:
        return (await self.call("GET", path))[1]

    async def post(self, path: str, body: object = None) -> Any:
        return (await self.call("POST", path, body))[1]

    async def launch(self, text: str = FILE, **options: Any) -> str:
        """Submit a group; its id."""
        body = {"file": "demo.yaml", "text": text, "base": str(self.folder), **options}
        return str((await self.post("groups", body))["id"])

    async def running(self, text: str = FILE, **options: Any) -> str:
        """Submit a group and wait until all of it runs; its id."""
        ref = await self.launch(text, **options)
        await self.until(lambda: self.phase(ref) == "RUNNING")
        return ref

    def phase(self, ref: str) -> str:
        return str(self.control.find(ref).phase)

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for a condition, with a deadline."""
        async with asyncio.timeout(DEADLINE_S):
            while not true():
                await asyncio.sleep(0.01)

    def stream(self, path: str) -> Lines:
        """The lines of a stream, read by a thread."""
        return Lines(self, f"/v1/{path}")

    async def lines(self, path: str) -> list[dict[str, Any]]:
        """All lines of a stream that ends."""
        async with asyncio.timeout(DEADLINE_S):
            return await asyncio.to_thread(lambda: list(wire.stream(self.folder, f"/v1/{path}")))

    async def channel(self, path: str) -> Channel:
        return await asyncio.to_thread(Channel, self.folder, f"/v1/{path}")


class Lines:
    """A stream that a test reads line by line."""

    def __init__(self, rig: Rig, path: str) -> None:
        self._queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        thread = self._loop.run_in_executor(None, self._read, rig.folder, path)
        rig.threads.append(thread)

    async def next(self) -> dict[str, Any] | None:
        """The next line; None at the end."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._queue.get()

    def _read(self, folder: Path, path: str) -> None:
        try:
            with closing(wire.stream(folder, path)) as lines:  # type: ignore[type-var]
                for one in lines:
                    self._loop.call_soon_threadsafe(self._queue.put_nowait, one)
        except Exception as error:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, {"raised": error})
        self._loop.call_soon_threadsafe(self._queue.put_nowait, None)


@asynccontextmanager
async def a_server(folder: Path) -> AsyncIterator[Rig]:
    """A server on `folder` until the block ends."""
    home, infra = Home(folder), ScriptedInfra()
    home.lock()
    store = Store.open(home.store)
    control = Control(store, folder)
    with patch("argosy.control.control.open_infras", lambda _: {infra.name: infra}):
        await control.start()
    context = Context(control, folder, 0.0, stop=lambda: web.stop())
    web = Web(application(context), context.closing)
    serving = asyncio.ensure_future(web.serve(sockets=[home.listen()]))
    rig = Rig(folder, infra, control, web)
    try:
        yield rig
    finally:
        web.stop()
        await serving
        await asyncio.gather(*rig.threads)
        await control.stop()
        await infra.close()
        store.close()
        home.close()

"""An agent that speaks the protocol on a unix socket; its programs run until the test ends them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

HEARTBEAT = 0.1  # seconds
READY, RUNNING, ENDED = 20, 30, 50


class Agent:
    """One host's agent; what it was told, in `told`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.leases: dict[str, dict[str, Any]] = {}
        self.told: list[dict[str, Any]] = []
        self.hellos: list[dict[str, Any]] = []
        self.fence = 0.0  # seconds; it says so, and wants its heartbeats acknowledged
        self.beats = 0
        self.mute: set[str] = set()  # leases whose assignments it does not take
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen, with everything that it knew before."""
        self._server = await asyncio.start_unix_server(self._connected, str(self.path))

    async def stop(self) -> None:
        """Hang up on everybody and be gone."""
        assert self._server is not None
        self._server.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()
        self.path.unlink(missing_ok=True)

    def freeze(self) -> None:
        """Neither hear nor say anything until `thaw`."""
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    @property
    def awake(self) -> bool:
        return self._thawed.is_set()

    def wipe(self) -> None:
        """Forget everything, as a host does whose disk is new."""
        self.leases.clear()

    # Programs

    def exit(self, node: str, code: int) -> None:
        """The program of a node ends by itself."""
        for lease, known in self.leases.items():
            for one in known["attempts"].values():
                if one["node"] == node and one["stage"] < ENDED:
                    outcome = "failed" if code else "succeeded"
                    one |= {"stage": ENDED, "outcome": outcome, "exit_code": code, "cause": "exit"}
                    one["healthy"] = False
                    self._report([lease])

    def fail(self, node: str, text: str) -> None:
        """The program of a node ends before its time; the agent says why in `text`."""
        for known in self.leases.values():
            for one in known["attempts"].values():
                if one["node"] == node:
                    one["text"] = text
        self.exit(node, 1)

    def stages(self) -> dict[str, int]:
        """How far each node's newest attempt is."""
        found = {}
        for known in self.leases.values():
            for one in known["attempts"].values():
                found[one["node"]] = one["stage"]
        return found

    def say(self, message: Any) -> None:
        """Anything, on every control stream."""
        for writer in self._writers:
            writer.write(json.dumps(message).encode() + b"\n")

    # The protocol

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._serve(reader, writer)
        except* (ConnectionError, asyncio.CancelledError):  # a group of tasks raises a group
            pass
        finally:
            self._serving.discard(task)
            self._writers.discard(writer)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        await self._thawed.wait()
        if not line:  # hung up before a word was said
            return
        first = json.loads(line)
        if first["op"] != "control":
            self.told.append(first)
            writer.write(b'{"ok": true}\n')
            await writer.drain()
            return
        self.hellos.append(first)
        self._writers.add(writer)
        hello = {"type": "hello", "protocol": 1, "boot_id": "boot-1", "fence": self.fence}
        writer.write(json.dumps(hello).encode() + b"\n")
        self._report(list(self.leases), full=True, only=writer)
        async with asyncio.TaskGroup() as group:
            beat = group.create_task(self._beat(writer))
            while line := await reader.readline():
                await self._thawed.wait()
                self._take(json.loads(line), writer)
            beat.cancel()

    async def _beat(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            await self._thawed.wait()
            self.beats += 1
            counted = {"n": self.beats, "fence": self.fence} if self.fence else {}
            beat = {"type": "heartbeat", "at": 0, **counted}
            writer.write(json.dumps(beat).encode() + b"\n")

    def _take(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.told.append(message)
        match message["type"]:
            case "ping":
                writer.write(b'{"type": "pong", "n": 0, "at": 0}\n')
            case "assign" if message["lease"] not in self.mute:
                self._assign(message)
            case "release":
                self.leases.pop(message["lease"], None)

    def _assign(self, message: dict[str, Any]) -> None:
        known = self.leases.setdefault(message["lease"], {"serial": [0, 0], "attempts": {}})
        if message["serial"] < known["serial"]:
            return
        known["serial"] = message["serial"]
        listed = {order["attempt"] for order in message["orders"]}
        known["attempts"] = {k: v for k, v in known["attempts"].items() if k in listed}
        for order in message["orders"]:
            self._order(known["attempts"], order)
        self._report([message["lease"]])

    def _order(self, attempts: dict[str, Any], order: dict[str, Any]) -> None:
        fields = {name: order[name] for name in ("attempt", "node", "number", "incarnation")}
        new = {**fields, "stage": READY, "address": "127.0.0.1", "healthy": False, "at": 0.0}
        one = attempts.setdefault(order["attempt"], new)
        if order["goal"] == RUNNING and one["stage"] < RUNNING:
            one |= {"stage": RUNNING, "healthy": True}
        if order["goal"] == ENDED and one["stage"] < ENDED:
            one |= {"stage": ENDED, "outcome": "stopped", "signal": 15, "healthy": False}

    def _report(
        self, leases: list[str], *, full: bool = False, only: asyncio.StreamWriter | None = None
    ) -> None:
        facts = {
            lease: {
                "serial": self.leases[lease]["serial"],
                "attempts": list(self.leases[lease]["attempts"].values()),
            }
            for lease in leases
        }
        message = {"type": "report", "at": 0.0, "boot_id": "boot-1", "leases": facts, "full": full}
        for writer in [only] if only else self._writers:
            writer.write(json.dumps(message).encode() + b"\n")

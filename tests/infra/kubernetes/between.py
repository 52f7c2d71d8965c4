"""A proxy between a server and the real API server: it counts what is asked, and answers faults.

It speaks the API server's own TLS, with its certificate. What no fault is meant for goes on to the
real one, one connection for each request; a watch and a stream of `exec` pass as they come.
A watch whose fault is 410 goes on, too, but from the oldest version that there ever was: then the
real server says 410.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.infra.kubernetes.rig import Namespace, Rig

HEAD_MAX = 1 << 16
CHUNK = 1 << 16
START_SECONDS = 10.0
GONE = 410
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
COLLECTIONS = (
    "pods", "nodes", "events", "services", "secrets", "configmaps", "persistentvolumeclaims",
)  # fmt: skip
BROKEN = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ssl.SSLError)


@dataclass(frozen=True)
class Asked:
    """One request."""

    at: float  # on the monotonic clock
    verb: str  # as a Role has it, or `exec`
    path: str
    version: str = ""  # resourceVersion of a watch
    status: int = 0  # that the proxy answered; 0: it was passed on

    @property
    def resource(self) -> str:
        """As a Role has it; "" for what is no resource."""
        words = self.path.split("/")
        found = next((one for one in COLLECTIONS if one in words), "")
        return f"{found}/exec" if words[-1] == "exec" else found


@dataclass(frozen=True)
class Fault:
    """What is answered to some verbs."""

    status: int
    verbs: frozenset[str]
    within: str = ""  # of the path
    retry_after: int = 0  # seconds; 0: nothing is said of it

    def meets(self, asked: Asked) -> bool:
        return asked.verb in self.verbs and self.within in asked.path


@dataclass
class Between:
    """A proxy that runs. `faults`: the first that meets a request answers it."""

    rig: Rig
    faults: list[Fault] = field(default_factory=list)
    log: list[Asked] = field(default_factory=list)
    port: int = 0
    away: bool = False  # it takes connections, and ends them
    withheld: bytes = b""  # a watch that says this is kept back meanwhile, from there on
    _loop: asyncio.AbstractEventLoop | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    def asked(self, verb: str, within: str = "", status: int | None = None) -> list[Asked]:
        """What was asked so, in its order. `status`: only what was answered so."""
        return [
            one for one in list(self.log)
            if one.verb == verb and within in one.path
            and (status is None or one.status == status)
        ]  # fmt: skip

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Let nobody reach the API server meanwhile."""
        self.away = True
        self.hang_up()
        try:
            yield
        finally:
            self.away = False

    @contextmanager
    def withhold(self, words: str) -> Iterator[None]:
        """No watch tells of that meanwhile."""
        self.withheld = words.encode()
        try:
            yield
        finally:
            self.withheld = b""

    @contextmanager
    def fault(self, status: int, *verbs: str, **more: object) -> Iterator[None]:
        """Answer that to these verbs meanwhile."""
        fault = Fault(status, frozenset(verbs), **more)  # type: ignore[arg-type]
        self.faults.append(fault)
        try:
            yield
        finally:
            self.faults.remove(fault)

    def hang_up(self) -> None:
        """End every connection that stands: each watch, each stream."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(lambda: [one.transport.abort() for one in self._open])

    # --- one connection --------------------------------------------------------------------------

    async def met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request, answer it or pass it on."""
        self._open.add(writer)
        try:
            if self.away:
                return
            head = await reader.readuntil(b"\r\n\r\n")
            asked = _asked(head)
            fault = next((one for one in self.faults if one.meets(asked)), None)
            status = fault.status if fault is not None else 0
            self.log.append(replace(asked, status=status))
            if fault is None or fault.status == GONE:
                await self._pass_on(_as_of_old(head) if fault else head, reader, writer)
            else:
                await reader.readexactly(_length(head))
                writer.write(_answer(fault))
                await writer.drain()
        except BROKEN:
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort() if writer.is_closing() else writer.close()

    async def _pass_on(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Both ways, until one side ends."""
        known = json.loads(self.rig.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        there = urlsplit(known)
        context = ssl.create_default_context(cafile=str(self.rig.home / "pki/ca.crt"))
        theirs, back = await asyncio.open_connection(there.hostname, there.port, ssl=context)
        try:
            back.write(_once(head))
            passes = self._passes if _asked(head).verb == "watch" else _at_once
            ways = [
                asyncio.ensure_future(_copied(reader, back)),
                asyncio.ensure_future(_copied(theirs, writer, passes)),
            ]
            # Of the two ways the answer's end is the end: whoever asks sends nothing after it.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for one in ways:
                one.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        finally:
            back.close()

    async def _passes(self, data: bytes) -> None:
        while self.withheld and self.withheld in data:
            await asyncio.sleep(0.01)


async def _at_once(_data: bytes) -> None:
    """Nothing is waited for."""


async def _copied(
    source: asyncio.StreamReader,
    target: asyncio.StreamWriter,
    passes: Callable[[bytes], Awaitable[None]] = _at_once,
) -> None:
    with suppress(*BROKEN):
        while data := await source.read(CHUNK):
            await passes(data)
            target.write(data)
            await target.drain()


def _asked(head: bytes) -> Asked:
    method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
    where = urlsplit(target)
    query = parse_qs(where.query)
    version = query.get("resourceVersion", [""])[0]
    words = where.path.split("/")
    if words[-1] == "exec":
        verb = "exec"
    elif method == "GET" and "watch" in query:
        verb = "watch"
    elif method == "GET":
        verb = "list" if words[-1] in COLLECTIONS else "get"
    else:
        verb = VERBS[method]
    return Asked(time.monotonic(), verb, where.path, version)


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0


def _once(head: bytes) -> bytes:
    """The same, and the connection ends after the answer; a websocket stays what it is."""
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if any(line.lower().startswith(b"upgrade:") for line in lines):
        return head
    kept = [line for line in lines if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([*kept, b"Connection: close", b"", b""])


def _as_of_old(head: bytes) -> bytes:
    """The same watch, from a version that no server still knows."""
    return re.sub(rb"resourceVersion=[0-9]+", b"resourceVersion=1", head, count=1)


def _answer(fault: Fault) -> bytes:
    """A Status, as the API server writes it."""
    body = {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault.status,
        "reason": "", "message": f"said {fault.status}",
    }  # fmt: skip
    text = json.dumps(body).encode() + b"\n"
    more = f"Retry-After: {fault.retry_after}\r\n" if fault.retry_after else ""
    head = (
        f"HTTP/1.1 {fault.status} Said\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(text)}\r\n{more}Connection: close\r\n\r\n"
    )
    return head.encode() + text


# --- its life ------------------------------------------------------------------------------------


@contextmanager
def between(rig: Rig) -> Iterator[Between]:
    """A proxy before that cluster's API server, in a thread; afterwards it is gone."""
    proxy = Between(rig)
    ready, stop = threading.Event(), asyncio.Event()

    async def live() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pki = rig.home / "pki"
        context.load_cert_chain(pki / "api.crt", pki / "api.key")
        server = await asyncio.start_server(proxy.met, "127.0.0.1", 0, ssl=context, limit=HEAD_MAX)
        proxy.port = server.sockets[0].getsockname()[1]
        proxy._loop = asyncio.get_running_loop()
        ready.set()
        await stop.wait()
        server.close()
        for one in list(proxy._open):
            one.transport.abort()
        while proxy._open:
            await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(live()), name="between")
    thread.start()
    assert ready.wait(START_SECONDS), "the proxy does not start"
    try:
        yield proxy
    finally:
        assert proxy._loop is not None
        proxy._loop.call_soon_threadsafe(stop.set)
        thread.join(START_SECONDS)
        assert not thread.is_alive()


def by_way_of(proxy: Between, space: Namespace) -> None:
    """Let the account of that namespace ask through the proxy."""
    whole = json.loads(space.kubeconfig.read_text())
    whole["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
    Path(space.kubeconfig).write_text(json.dumps(whole))

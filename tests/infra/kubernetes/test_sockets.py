"""When a cluster is closed no socket to it is open, whatever was on the way."""

from __future__ import annotations

import asyncio
import gc
import queue
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from aiohttp import web

from argosy.infra.kubernetes import door
from argosy.infra.kubernetes.cluster.client import Cluster
from argosy.infra.kubernetes.cluster.sockets import CLOSED
from argosy.infra.kubernetes.config import ContextConfig

MOMENTS = 30
STEP_SECONDS = 0.0005


async def told(request: web.Request) -> web.StreamResponse:
    """A watch, or a stream of `exec`, that says something and goes on."""
    if request.path.endswith("/exec"):
        stream = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await stream.prepare(request)
        await stream.receive()
        return stream
    answer = web.StreamResponse()
    await answer.prepare(request)
    await answer.write(b"{}\n")
    await asyncio.sleep(60)
    return answer


def certified(folder: Path) -> ssl.SSLContext:
    """What a server of TLS needs."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    for path, data in zip((certificate, key), door._certificate(), strict=True):
        path.write_bytes(data)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@contextmanager
def an_api_server(folder: Path) -> Iterator[Path]:
    """One that speaks TLS, in a loop of its own; its kubeconfig."""
    stands: queue.Queue[tuple[int, Callable[[], None]]] = queue.Queue()

    async def live(context: ssl.SSLContext) -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", told)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        stands.put((runner.addresses[0][1], lambda: loop.call_soon_threadsafe(over.set)))
        await over.wait()
        await runner.cleanup()

    context = certified(folder)
    thread = threading.Thread(target=lambda: asyncio.run(live(context)))
    thread.start()
    port, end = stands.get(timeout=30)
    try:
        yield kubeconfig(folder, port)
    finally:
        end()
        thread.join(30)


@contextmanager
def a_rude_server(folder: Path) -> Iterator[Path]:
    """One that answers one request, and no goodbye."""
    over = threading.Event()

    def live(listener: socket.socket, context: ssl.SSLContext) -> None:
        raw, _ = listener.accept()
        with context.wrap_socket(raw, server_side=True) as connection:
            connection.recv(65536)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n"
            )
            over.wait(30)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=live, args=(listener, certified(folder)))
        thread.start()
        try:
            yield kubeconfig(folder, listener.getsockname()[1])
        finally:
            over.set()
            thread.join(30)


def kubeconfig(folder: Path, port: int) -> Path:
    server = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    said = {
        "clusters": [{"name": "c", "cluster": server}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(said))
    return path


async def watched(cluster: Cluster, heard: asyncio.Event | None = None) -> None:
    async for _ in cluster.watch("/api/v1/nodes", "1", lambda: None):
        if heard is not None:
            heard.set()


async def executed(cluster: Cluster) -> None:
    stream = await cluster.exec("pod", ["true"])
    try:
        await stream.read()
    finally:
        await stream.close()


async def cut_short(config: ContextConfig, moment: int) -> None:
    """Begin, be cancelled at that moment, and close."""
    cluster = Cluster("kubernetes/x", config)
    await cluster.open()
    tasks = [asyncio.create_task(one(cluster)) for one in (watched, executed)]
    for _ in range(moment):
        await asyncio.sleep(STEP_SECONDS)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await cluster.close()


def context_of(path: Path) -> ContextConfig:
    return ContextConfig("x", context="x", kubeconfig=str(path), namespace="n")


def test_no_socket_is_open_when_a_cluster_is_closed(tmp_path):
    with an_api_server(tmp_path) as path, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ResourceWarning)
        config = context_of(path)
        for moment in range(MOMENTS):
            asyncio.run(cut_short(config, moment))
            gc.collect()
    assert [str(one.message) for one in said if one.category is ResourceWarning] == []


def test_a_server_that_says_no_goodbye_is_hung_up_on(tmp_path):
    async def story(path: Path) -> None:
        cluster, heard = Cluster("kubernetes/x", context_of(path)), asyncio.Event()
        task = asyncio.create_task(watched(cluster, heard))
        await heard.wait()
        (made,) = cluster._sockets._made
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert made.fileno() != CLOSED
        await cluster.close()
        assert made.fileno() == CLOSED

    with a_rude_server(tmp_path) as path:
        asyncio.run(story(path))

"""When a cluster is closed no socket to it is open, whatever was on the way."""

from __future__ import annotations

import asyncio
import gc
import ssl
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from aiohttp import web

from argosy.infra.kubernetes import door
from argosy.infra.kubernetes.cluster.client import Cluster
from argosy.infra.kubernetes.config import ContextConfig

MOMENTS = 30
STEP_SECONDS = 0.0005


async def told(request: web.Request) -> web.StreamResponse:
    """A watch, or a stream of `exec`, that says something and goes on."""
    if request.path.endswith("/exec"):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        return socket
    answer = web.StreamResponse()
    await answer.prepare(request)
    await answer.write(b"{}\n")
    await asyncio.sleep(60)
    return answer


@contextmanager
def an_api_server(folder: Path) -> Iterator[Path]:
    """One that speaks TLS, in a loop of its own; its kubeconfig."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    for path, data in zip((certificate, key), door._certificate(), strict=True):
        path.write_bytes(data)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    stands, loop, ports = threading.Event(), asyncio.new_event_loop(), []

    async def live(over: asyncio.Event) -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", told)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        ports.append(runner.addresses[0][1])
        stands.set()
        await over.wait()
        await runner.cleanup()

    over = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(live(over)))
    thread.start()
    try:
        assert stands.wait(30)
        yield kubeconfig(folder, ports[0])
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(30)
        loop.close()


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


async def watched(cluster: Cluster) -> None:
    async for _ in cluster.watch("/api/v1/nodes", "1", lambda: None):
        pass


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


def test_no_socket_is_open_when_a_cluster_is_closed(tmp_path):
    with an_api_server(tmp_path) as path, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ResourceWarning)
        config = ContextConfig("x", context="x", kubeconfig=str(path), namespace="n")
        for moment in range(MOMENTS):
            asyncio.run(cut_short(config, moment))
            gc.collect()
    assert [str(one.message) for one in said if one.category is ResourceWarning] == []

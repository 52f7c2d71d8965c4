"""JSON over HTTP between the tasks of a group, by name: one small server, one small client.

Every example folder carries its own copy of this file, so that a folder can be used alone.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socketserver
import sys
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable

Route = Callable[[dict[str, Any]], dict[str, Any]]


class Refused(Exception):
    """A request that this server will not serve now; carries the HTTP status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def host(task: str, index: int | None = None) -> str:
    """The name of a node, `trainer-0.rl`; without an index the balanced address, `rollout.rl`."""
    group = os.environ["ARGOSY_JOBGROUP_NAME"]
    return f"{task}.{group}" if index is None else f"{task}-{index}.{group}"


def call(
    where: str,
    path: str,
    body: dict[str, Any] | None = None,
    *,
    port: int = 8000,
    patience: float = 120.0,
) -> dict[str, Any]:
    """POST `body` (or GET without one) and return the answer.

    `depends_on` has seen to it that the peer is up. A peer may still be replaced while we run, so
    refused and broken connections and 503 are tried again for `patience` seconds; other errors
    raise.
    Each call is a connection of its own: that is what a balanced address shares out.
    """
    give_up_at = time.monotonic() + patience
    while True:
        try:
            return _call_once(where, port, path, body)
        except (OSError, http.client.HTTPException) as broken:
            if time.monotonic() >= give_up_at:
                raise ConnectionError(f"{where}:{port}{path}: {broken!r}") from broken
        except Refused as refused:
            if refused.status != 503 or time.monotonic() >= give_up_at:
                raise
        time.sleep(0.1)


def _call_once(where: str, port: int, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
    connection = http.client.HTTPConnection(where, port, timeout=15)
    try:
        method = "GET" if body is None else "POST"
        payload = None if body is None else json.dumps(body).encode()
        connection.request(method, path, payload, {"Connection": "close"})
        response = connection.getresponse()
        answer = json.loads(response.read() or b"{}")
    finally:
        connection.close()
    if response.status != 200:
        raise Refused(response.status, f"{where}{path}: {answer.get('error', response.reason)}")
    return answer


def server(routes: dict[str, Route], *, port: int = 8000) -> ThreadingHTTPServer:
    """A server on this node's own address; `/health` answers as soon as it listens."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body leave in one segment

        def do_GET(self) -> None:
            self.answer({})

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            self.answer(json.loads(self.rfile.read(length) or b"{}"))

        def answer(self, body: dict[str, Any]) -> None:
            try:
                status, result = 200, self.result(body)
            except Refused as refused:
                status, result = refused.status, {"error": str(refused)}
            except Exception as error:  # the caller is told, the server goes on
                traceback.print_exc()
                status, result = 500, {"error": repr(error)}
            payload = json.dumps(result).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def result(self, body: dict[str, Any]) -> dict[str, Any]:
            if self.path == "/health":
                return {}
            if self.path not in routes:
                raise Refused(404, f"no {self.path}")
            return routes[self.path](body)

        def log_message(self, *_: Any) -> None:
            """Silent: the programs print what matters."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def server_bind(self) -> None:
            # http.server's own would also ask the DNS for a name, which can take long.
            socketserver.TCPServer.server_bind(self)
            self.server_name, self.server_port = self.server_address[:2]

        def handle_error(self, request: Any, client_address: Any) -> None:
            if not isinstance(sys.exc_info()[1], ConnectionError):  # a caller that died is not news
                super().handle_error(request, client_address)

    return Server((os.environ.get("ARGOSY_HOSTNAME", "0.0.0.0"), port), Handler)


def serve(routes: dict[str, Route], *, port: int = 8000) -> None:
    """Serve until SIGTERM, then return."""
    running = server(routes, port=port)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=running.shutdown).start())
    print(f"listening on {running.server_address[0]}:{port}", flush=True)
    with running:
        running.serve_forever(poll_interval=0.2)
    print("ended on request", flush=True)

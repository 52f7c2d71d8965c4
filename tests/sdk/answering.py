"""A real HTTP server on a unix socket that gives recorded answers to a client."""

from __future__ import annotations

import json
import os
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Stream:
    """An NDJSON answer; `cut` ends the connection instead of the answer."""

    lines: list[Any]
    cut: bool = False


@dataclass
class Refused:
    """An answer of 400 or more."""

    status: int
    body: Any


Answer = Any | Stream | Refused | Callable[[dict[str, str]], Any]


@dataclass
class Answering:
    """The recorded answers by `METHOD /path`, and the requests that came."""

    home: Path
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)

    def asked(self, what: str) -> tuple[dict[str, str], Any]:
        """Query and body of the newest request for `METHOD /path`."""
        found = [(query, body) for name, query, body in self.requests if name == what]
        assert found, f"{what} was not asked, but {[name for name, _, _ in self.requests]}"
        return found[-1]


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    recorded: Answering

    def get_request(self) -> tuple[Any, Any]:
        connection, _ = super().get_request()
        return connection, ("", 0)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error here."""


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def _answer(self) -> None:
        recorded = self.server.recorded
        parts = urlsplit(self.path)
        what = f"{self.command} {parts.path}"
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        recorded.requests.append((what, query, json.loads(raw) if raw else None))
        answer = recorded.answers.get(what, Refused(404, {"detail": "Not Found"}))
        if callable(answer):
            answer = answer(query)
        match answer:
            case Stream():
                self._stream(answer)
            case Refused():
                self._whole(answer.status, answer.body)
            case _:
                self._whole(200, answer)

    do_GET = do_POST = do_DELETE = _answer

    def _whole(self, status: int, value: Any) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, answer: Stream) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in answer.lines:
            data = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.close_connection = True
        if not answer.cut:
            self.wfile.write(b"0\r\n\r\n")


@contextmanager
def answering(home: Path, **answers: Answer) -> Iterator[Answering]:
    """A server for `home` that ends with the block."""
    home.mkdir(parents=True, exist_ok=True)
    recorded = Answering(home, dict(answers))
    before = os.open(".", os.O_RDONLY)
    os.chdir(home)  # a long path fits no socket address
    try:
        server = _Server("server.sock", _Requests)
    finally:
        os.fchdir(before)
        os.close(before)
    server.recorded = recorded
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield recorded
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        (home / "server.sock").unlink(missing_ok=True)

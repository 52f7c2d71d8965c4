"""HTTP over the server's unix socket, and the translation of what can go wrong there.

A path of a unix socket holds 107 bytes at most; a longer one is reached through its opened folder.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from argosy.errors import AccessError, ArgosyError, Broken, Unreachable, from_fields
from argosy.sdk.home import socket_file

PATH_BYTES_MOST = 107  # of sockaddr_un, without its final zero
CONNECT_TIMEOUT = 5.0  # seconds
CALL_TIMEOUT = 60.0  # seconds for one answer; streams have none
READ_BYTES = 1 << 18

_NOBODY = (FileNotFoundError, ConnectionRefusedError, NotADirectoryError)


class NoServer(Unreachable):
    """Nobody listens on the socket: there is no server, or it is just starting or ending."""


def open_socket(home: Path, timeout: float | None = CONNECT_TIMEOUT) -> socket.socket:
    """A connected socket.

    Raises NoServer when nobody listens, AccessError when it is somebody else's, Unreachable.
    """
    path = os.fsencode(socket_file(home))
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    try:
        if len(path) <= PATH_BYTES_MOST:
            connection.connect(path)
        else:
            _connect_through_folder(connection, path)
    except _NOBODY as error:
        connection.close()
        raise NoServer(
            f"no server runs for {home}",
            code="server/not-running",
            hint="`argosy server start` starts one",
        ) from error
    except PermissionError as error:
        connection.close()
        raise AccessError(
            f"the server of {home} is somebody else's: {error.strerror or error}",
            code="home/not-yours",
            hint="only its owner may use it; set `ARGOSY_HOME` to a folder of your own",
        ) from error
    except OSError as error:
        connection.close()
        raise Unreachable(
            f"the server's socket {socket_file(home)} does not answer: {error.strerror or error}",
            code="server/no-answer",
        ) from error
    return connection


def _connect_through_folder(connection: socket.socket, path: bytes) -> None:
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        connection.connect(b"/proc/self/fd/%d/%s" % (descriptor, name))
    finally:
        os.close(descriptor)


class Connection(http.client.HTTPConnection):
    """One HTTP connection to the server of a home."""

    def __init__(self, home: Path, timeout: float | None) -> None:
        super().__init__("argosy")
        self._home = home
        self._patience = timeout

    def connect(self) -> None:
        """Open the socket; raises NoServer or Unreachable."""
        self.sock = open_socket(self._home)
        self.sock.settimeout(self._patience)


def path_of(*parts: object, query: dict[str, object] | None = None) -> str:
    """`/v1/groups/demo?all=1`; what is None, False or "" in the query is left out.

    A list gives its name once for each value.
    """
    path = "/v1/" + "/".join(quote(str(part), safe="") for part in parts)
    given = {
        name: [str(one) for one in value]
        if isinstance(value, list | tuple)
        else ("1" if value is True else str(value))
        for name, value in (query or {}).items()
        if value is not None and value is not False and value != ""
    }
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def call(
    home: Path, method: str, path: str, body: object = None, timeout: float | None = CALL_TIMEOUT
) -> tuple[int, Any]:
    """One request: its status and its JSON. Raises the error that the server names."""
    with closing(Connection(home, timeout)) as connection, translated(home):
        _send(connection, method, path, body)
        response = connection.getresponse()
        return answered(response.status, response.read())


def answered(status: int, text: bytes) -> tuple[int, Any]:
    """An answer: its status and its JSON. Raises the error that it names; 408 is none."""
    if status >= 400 and status != 408:
        raise refusal(status, text)
    return status, (json.loads(text) if text else None)


def stream(home: Path, path: str) -> Iterator[dict[str, Any]]:
    """The lines of an NDJSON answer as they come. Raises Unreachable when it is cut off."""
    with closing(Connection(home, None)) as connection, translated(home):
        _send(connection, "GET", path, None)
        response = connection.getresponse()
        if response.status >= 400:
            raise refusal(response.status, response.read())
        lines = Assembly()
        while chunk := response.read1(READ_BYTES):
            yield from lines.of(chunk)


class Assembly:
    """Lines of NDJSON put together from the pieces in which they come."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def of(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        """The lines that `chunk` completes. Raises the error that one of them names."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._parts.append(line)
            whole = b"".join(self._parts)
            self._parts = []
            if whole.strip():
                yield _parsed(whole)
        self._parts.append(rest)


def _parsed(line: bytes) -> dict[str, Any]:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise Broken(f"the server sent a line that is no object: {line[:80]!r}")
    if value.get("error") and "text" in value:
        raise from_fields(value)
    return value


def _send(connection: Connection, method: str, path: str, body: object) -> None:
    data, headers = packed(body)
    connection.request(method, path, body=data, headers=headers)


def packed(body: object) -> tuple[bytes | None, dict[str, str]]:
    """A body as it is sent, and the headers that say so."""
    if body is None:
        return None, {}
    return json.dumps(body).encode(), {"Content-Type": "application/json"}


class translated:
    """Turns what a broken connection raises into Unreachable; generators close silently."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, TimeoutError):
            raise Unreachable(
                "the server took the request and does not answer",
                code="server/no-answer",
                hint="`argosy doctor` says what is wrong with it",
            ) from error
        if isinstance(error, OSError | EOFError | http.client.HTTPException):
            raise Unreachable(
                "the connection to the server was cut off",
                code="server/cut-off",
                hint=f"it may have been stopped; its last words are in {self._home}/server.log",
            ) from error
        if isinstance(error, ValueError) and not isinstance(error, ArgosyError):
            raise Broken(f"the server's answer is not JSON: {error}") from error


def refusal(status: int, text: bytes) -> ArgosyError:
    """The error that an answer of 400 or more names."""
    try:
        fields = json.loads(text)
    except ValueError:
        fields = None
    if isinstance(fields, dict) and "text" in fields:
        return from_fields(fields)
    told = text.decode("utf-8", "replace")[:300]
    return Broken(
        f"the server answered {status}: {told}",
        code="server/unknown-answer",
        hint="`argosy server stop` ends an older server; the next command starts this version",
    )

"""Two-way streams over websockets: `exec`, `forward`, `copy`. Imported only when one is opened."""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import connect

from argosy.errors import Unreachable, from_fields
from argosy.sdk.wire import open_socket, refusal

OPEN_TIMEOUT = 30.0  # seconds


class Channel:
    """One websocket to the server; text messages carry JSON objects, binary ones raw bytes."""

    def __init__(self, home: Path, path: str) -> None:
        connection = open_socket(home)
        connection.settimeout(None)
        try:
            self._opened = ExitStack()
            self._socket = self._opened.enter_context(
                connect(
                    f"ws://argosy{path}",
                    sock=connection,
                    compression=None,
                    proxy=None,
                    max_size=None,
                    open_timeout=OPEN_TIMEOUT,
                    ping_interval=None,
                )
            )
        except InvalidStatus as error:
            connection.close()
            response = error.response
            raise refusal(response.status_code, bytes(response.body or b"")) from error
        except (InvalidHandshake, OSError, TimeoutError, EOFError) as error:
            connection.close()
            raise Unreachable(
                f"the server did not open the stream: {error}", code="server/no-stream"
            ) from error

    def send(self, message: dict[str, Any]) -> None:
        """One JSON object. Raises Unreachable when the stream has ended."""
        self._send(json.dumps(message))

    def send_bytes(self, data: bytes) -> None:
        """Raw bytes."""
        self._send(data)

    def receive(self) -> dict[str, Any] | None:
        """The next object; None at the end. Raises the error that the other side names."""
        raw = self.receive_raw()
        if raw is None:
            return None
        message: dict[str, Any] = json.loads(raw)
        if message.get("error") and "text" in message:
            raise from_fields(message)
        return message

    def receive_raw(self) -> bytes | str | None:
        """The next message as it came; None at the end."""
        try:
            return self._socket.recv()
        except ConnectionClosed as closed:
            if closed.rcvd is not None and closed.rcvd.code >= 4000 and closed.rcvd.reason:
                raise Unreachable(closed.rcvd.reason, code="server/stream-refused") from closed
            return None

    def close(self) -> None:
        """End the stream; may be repeated."""
        self._opened.close()

    def _send(self, data: str | bytes) -> None:
        try:
            self._socket.send(data)
        except (ConnectionClosed, OSError) as error:
            raise Unreachable("the stream has ended", code="server/stream-ended") from error


def packed(data: bytes) -> str:
    """Bytes as the protocol's JSON carries them."""
    return base64.b64encode(data).decode()


def unpacked(text: str) -> bytes:
    """The bytes that `packed` made."""
    return base64.b64decode(text)

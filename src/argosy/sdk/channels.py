"""Two-way streams over websockets: `exec`, `forward`, `copy`. Imported only when one is opened."""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import connect

from argosy.errors import ArgosyError, Unreachable, from_fields
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
        except (InvalidHandshake, OSError, TimeoutError, EOFError) as error:
            connection.close()
            raise unopened(error) from error

    def send(self, message: dict[str, Any]) -> None:
        """One JSON object. Raises Unreachable when the stream has ended."""
        self._send(json.dumps(message))

    def send_bytes(self, data: bytes) -> None:
        """Raw bytes."""
        self._send(data)

    def receive(self) -> dict[str, Any] | None:
        """The next object; None at the end. Raises the error that the other side names."""
        raw = self.receive_raw()
        return None if raw is None else message_of(raw)

    def receive_raw(self) -> bytes | str | None:
        """The next message as it came; None at the end."""
        try:
            return self._socket.recv()
        except ConnectionClosed as closed:
            refused(closed)
            return None

    def close(self) -> None:
        """End the stream; may be repeated."""
        self._opened.close()

    def _send(self, data: str | bytes) -> None:
        try:
            self._socket.send(data)
        except (ConnectionClosed, OSError) as error:
            raise ended() from error


def unopened(error: Exception) -> ArgosyError:
    """Why no stream was opened: the error that the server names, where it answered."""
    if isinstance(error, InvalidStatus):
        return refusal(error.response.status_code, bytes(error.response.body or b""))
    return Unreachable(f"the server did not open the stream: {error}", code="server/no-stream")


def message_of(raw: bytes | str) -> dict[str, Any]:
    """A JSON object that came. Raises the error that it names."""
    message: dict[str, Any] = json.loads(raw)
    if message.get("error") and "text" in message:
        raise from_fields(message)
    return message


def refused(closed: ConnectionClosed) -> None:
    """Raises Unreachable where the server says why it closed the stream."""
    if closed.rcvd is not None and closed.rcvd.code >= 4000 and closed.rcvd.reason:
        raise Unreachable(closed.rcvd.reason, code="server/stream-refused") from closed


def ended() -> Unreachable:
    """What was to be sent came too late."""
    return Unreachable("the stream has ended", code="server/stream-ended")


def packed(data: bytes) -> str:
    """Bytes as the protocol's JSON carries them."""
    return base64.b64encode(data).decode()


def unpacked(text: str) -> bytes:
    """The bytes that `packed` made."""
    return base64.b64decode(text)

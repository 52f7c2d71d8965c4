"""A collective for a few nodes over plain TCP: the head sends back the mean of what all send.

Like every collective it needs all its members: when one goes, the others raise `PeerLost`, and
the task is started again as a whole (`restart: {scope: task}`).
"""

from __future__ import annotations

import socket
import struct
import time

import numpy as np

PATIENCE = 60.0  # seconds for all members to meet
SILENCE = 120.0  # seconds after which a silent member counts as lost


class PeerLost(Exception):
    """A member of the collective is gone."""


class Members:
    """The connections of one member: the head has one to each other, the others one to the head."""

    def __init__(self, peers: list[socket.socket]) -> None:
        self._peers = peers
        for peer in peers:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.settimeout(SILENCE)

    @classmethod
    def gather(cls, own_host: str, port: int, others: int) -> Members:
        """The head's side: listen until the others have come."""
        with socket.create_server((own_host, port)) as door:
            door.settimeout(PATIENCE)
            return cls([door.accept()[0] for _ in range(others)])

    @classmethod
    def join(cls, head_host: str, port: int) -> Members:
        """The side of the others; the head starts at the same moment, so it may not listen yet."""
        give_up_at = time.monotonic() + PATIENCE
        while True:
            try:
                return cls([socket.create_connection((head_host, port), timeout=PATIENCE)])
            except OSError:
                if time.monotonic() >= give_up_at:
                    raise
                time.sleep(0.1)

    def tell(self, message: bytes) -> None:
        """The head tells all others."""
        for peer in self._peers:
            _send(peer, message)

    def hear(self) -> bytes:
        """What the head tells."""
        return _receive(self._peers[0])

    def mean(self, own: np.ndarray, *, head: bool) -> np.ndarray:
        """The mean of all members' vectors; every member must call it equally often."""
        if not head:
            self.tell(own.tobytes())
            return np.frombuffer(self.hear())
        received = [np.frombuffer(_receive(peer)) for peer in self._peers]
        result = np.mean([own, *received], axis=0)
        self.tell(result.tobytes())
        return result


def _send(peer: socket.socket, message: bytes) -> None:
    try:
        peer.sendall(struct.pack("!Q", len(message)) + message)
    except OSError as error:
        raise PeerLost(str(error)) from error


def _receive(peer: socket.socket) -> bytes:
    (length,) = struct.unpack("!Q", _exactly(peer, 8))
    return _exactly(peer, length)


def _exactly(peer: socket.socket, length: int) -> bytes:
    parts, missing = [], length
    while missing:
        try:
            part = peer.recv(min(missing, 1 << 20))
        except OSError as error:
            raise PeerLost(str(error)) from error
        if not part:
            raise PeerLost("connection closed")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)

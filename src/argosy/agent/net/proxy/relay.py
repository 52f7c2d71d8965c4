"""One proxied connection: two sockets, bytes both ways, half-close, and backpressure.

Level-triggered epoll with one read and one write for each piece. What the other side cannot take is
kept (one piece at most), and reading pauses until it is gone.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import Callable, Dict, List, Optional

IN, OUT = select.EPOLLIN, select.EPOLLOUT
ERR, HUP = select.EPOLLERR, select.EPOLLHUP
PIECE_BYTES = 256 * 1024
RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close sends a reset

_piece = bytearray(PIECE_BYTES)
_view = memoryview(_piece)


class Loop:
    """The epoll set, who is called for which descriptor, and what is to be closed."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.calls: Dict[int, Callable[[int], None]] = {}
        self.dead: List[socket.socket] = []
        self.now = time.monotonic()  # when this round began

    def watch(self, fd: int, mask: int, call: Callable[[int], None]) -> None:
        """Call `call(events)` when something of `mask` happens on a descriptor not yet watched."""
        self.calls[fd] = call
        self.epoll.register(fd, mask)

    def forget(self, fd: int) -> None:
        """Stop watching; fine when it is not watched."""
        if self.calls.pop(fd, None) is not None:
            self.epoll.unregister(fd)

    def close(self, sock: socket.socket) -> None:
        """Close at the end of this round, so that its number is not taken again within it."""
        self.forget(sock.fileno())
        self.dead.append(sock)

    def turn(self, timeout: float) -> None:
        """Wait for events, call who asked for them, close what has ended."""
        self._bury()
        ready = self.epoll.poll(timeout)
        self.now = time.monotonic()
        for fd, events in ready:
            call = self.calls.get(fd)
            if call is not None:
                call(events)
        self._bury()

    def _bury(self) -> None:
        for sock in self.dead:
            sock.close()
        self.dead.clear()


class Side:
    """One of the two sockets of a connection."""

    __slots__ = ("bytes_in", "end", "eof", "fd", "finished", "loop", "mask", "peer", "rest", "sock")

    def __init__(self, loop: Loop, sock: socket.socket, end: Callable[[], None]) -> None:
        self.loop = loop
        self.sock = sock
        self.fd = sock.fileno()
        # called once, when both sides are closed; None: they are
        self.end: Optional[Callable[[], None]] = end
        self.peer: Optional[Side] = None
        self.rest = b""  # what this side has still to be sent
        self.mask = 0
        self.eof = False  # it will send no more
        self.finished = False  # it was told that no more will come
        self.bytes_in = 0

    def ready(self, events: int) -> None:
        """What epoll calls."""
        if events & IN:
            self._forward()
            if not events & (OUT | ERR | HUP):
                return
        if events & ERR:
            self.abort()
            return
        if events & OUT and self.rest:
            self._flush()
        if events & HUP and not self.mask & IN:
            # Closed both ways while the peer is slow. HUP would be told for ever: do not watch
            # until there is something to do.
            self.loop.forget(self.fd)

    def _forward(self) -> None:
        peer = self.peer
        assert peer is not None
        try:
            count = self.sock.recv_into(_piece)
        except BlockingIOError:
            return
        except OSError:
            self.abort()
            return
        if count == 0:
            self._ended()
            return
        self.bytes_in += count
        try:
            sent = peer.sock.send(_view[:count])
        except BlockingIOError:
            sent = 0
        except OSError:
            self.abort()
            return
        if sent < count:
            peer.rest = bytes(_view[sent:count])
            self._set(self.mask & ~IN)
            peer._set(peer.mask | OUT)

    def _flush(self) -> None:
        try:
            sent = self.sock.send(self.rest)
        except BlockingIOError:
            return
        except OSError:
            self.abort()
            return
        self.rest = self.rest[sent:]
        if self.rest:
            return
        peer = self.peer
        assert peer is not None
        self._set(self.mask & ~OUT)
        if peer.eof:
            self._finish()
        else:
            peer._set(peer.mask | IN)

    def _ended(self) -> None:
        """No more will come from this side: pass that on once all has been sent."""
        self.eof = True
        self._set(self.mask & ~IN)
        assert self.peer is not None
        if not self.peer.rest:
            self.peer._finish()

    def _finish(self) -> None:
        self.finished = True
        peer = self.peer
        assert peer is not None
        if peer.finished:
            self._close()
            return
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.abort()

    def abort(self) -> None:
        """One side was reset: reset the other, too."""
        for side in (self, self.peer):
            if side is not None:
                side.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._close()

    def _close(self) -> None:
        peer = self.peer
        assert peer is not None
        end = self.end
        if end is None:
            return
        self.end = peer.end = None
        self.loop.close(self.sock)
        self.loop.close(peer.sock)
        end()

    def _set(self, mask: int) -> None:
        """Watch for exactly this; with nothing a reset is still noticed."""
        if self.end is None:
            return
        self.mask = mask
        if self.fd in self.loop.calls:
            self.loop.epoll.modify(self.fd, mask)
        elif mask:
            self.loop.watch(self.fd, mask, self.ready)

    def start(self) -> None:
        """Begin to read."""
        self.mask = IN
        self.loop.watch(self.fd, IN, self.ready)


def join(loop: Loop, first: Side, second: Side) -> None:
    """Let two connected sides talk."""
    first.peer, second.peer = second, first
    first.start()
    second.start()

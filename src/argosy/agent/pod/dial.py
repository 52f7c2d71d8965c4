"""`agent dial`: lets a server in that this host can reach, where the server cannot reach the host.

One connection, the door, stands open: by it the server asks for streams. Each is a connection of
its own from here, joined to the agent's socket, and means what a stream there means. All are TLS;
the server shows the certificate that is known here, and we the token of our lease.

    ours:   {"door": LEASE, "token": T}       then the server's, again and again:
            {"open": ID}                      a stream to the agent
            {"open": ID, "keep": true}        what `agent keep` writes
    ours:   {"stream": ID, "lease": LEASE, "token": T}      then the bytes of the stream
"""

from __future__ import annotations

import json
import os
import select
import socket
import ssl
import sys
import threading
import time
from typing import Dict, Optional

from .keep import keep

CERTIFICATE, TOKEN = "certificate", "token"
CONNECT_S = 10.0
PAUSE_FIRST, PAUSE_MOST = 0.1, 5.0
CLOSE_S = 10.0
AGENT_S = 10.0
"""That a stream waits for an agent which is just being started again."""
CHUNK = 65536
KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))


class Dialer:
    """Keeps the door open."""

    def __init__(self, home: str, to: str, folder: str, lease: str) -> None:
        """`to` is HOST:PORT; `folder` has the server's certificate and the lease's token."""
        host, _, port = to.rpartition(":")
        self._address = (host.strip("[]"), int(port))
        self._home, self._lease = home, lease
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False  # it is that very certificate, whatever it is for
        self._context.load_verify_locations(os.path.join(folder, CERTIFICATE))
        with open(os.path.join(folder, TOKEN), encoding="ascii") as file:
            self._token = file.read().strip()

    def run(self) -> None:
        """For ever."""
        pause = PAUSE_FIRST
        while True:
            try:
                began = time.monotonic()
                self._stand()
            except (OSError, ValueError) as error:
                sys.stderr.write("dial %s:%d: %s\n" % (*self._address, error))
                sys.stderr.flush()
            pause = PAUSE_FIRST if time.monotonic() - began > PAUSE_MOST else pause
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_MOST)

    def _stand(self) -> None:
        """One door, until it breaks. Raises OSError, ValueError."""
        with self._connected({"door": self._lease}) as sock, sock.makefile("rb") as lines:
            for line in lines:
                asked = json.loads(line.decode("ascii"))
                number, keeps = int(asked["open"]), bool(asked.get("keep"))
                threading.Thread(target=self._serve, args=(number, keeps), daemon=True).start()

    def _connected(self, first: Dict[str, object]) -> ssl.SSLSocket:
        plain = socket.create_connection(self._address, CONNECT_S)
        try:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in KEEP_ALIVE:
                plain.setsockopt(socket.IPPROTO_TCP, option, value)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock = self._context.wrap_socket(plain)
        except BaseException:
            plain.close()
            raise
        sock.sendall(json.dumps(dict(first, token=self._token)).encode("ascii") + b"\n")
        sock.settimeout(None)
        return sock

    def _serve(self, number: int, keeps: bool) -> None:
        """One stream, to its end."""
        try:
            with self._connected({"stream": number, "lease": self._lease}) as far:
                if keeps:
                    with far.makefile("wb") as out:
                        keep(self._home, out)
                else:
                    near = self._agent()
                    if near is not None:
                        with near:
                            join(far, near)
                far.settimeout(CLOSE_S)
                far.unwrap()  # else what is unread here (TLS tickets) resets the connection
        except OSError as error:
            sys.stderr.write("dial: stream %d: %s\n" % (number, error))

    def _agent(self) -> Optional[socket.socket]:
        """A connection to the agent; None when there is none for long."""
        deadline = time.monotonic() + AGENT_S
        while True:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.connect(os.path.join(self._home, "agent.sock"))
                return sock
            except OSError:
                sock.close()
            if time.monotonic() > deadline:
                return None
            time.sleep(0.02)


def join(far: ssl.SSLSocket, near: socket.socket) -> None:
    """Pass bytes both ways until either side ends. Raises OSError.

    What cannot be sent now waits, and nothing more is read for it meanwhile.
    """
    far.setblocking(False)
    near.setblocking(False)
    to_near, to_far = b"", b""
    watch = select.poll()
    while True:
        # TLS may have bytes in hand that no socket shows.
        wanted_far = select.POLLOUT if to_far else 0
        wanted_near = select.POLLOUT if to_near else 0
        _follow(watch, far, wanted_far | (0 if to_near else select.POLLIN))
        _follow(watch, near, wanted_near | (0 if to_far else select.POLLIN))
        if to_near or not far.pending():
            if any(what & GONE for _, what in watch.poll()):
                return  # and what waits for it would wait for ever
        if to_near:
            to_near = to_near[_sent(near, to_near) :]
        if to_far:
            to_far = to_far[_sent(far, to_far) :]
        if not to_near:
            data = _received(far)
            if data == b"":
                return
            to_near = data or b""
            if to_near:
                to_near = to_near[_sent(near, to_near) :]
        if not to_far:
            data = _received(near)
            if data == b"":
                return
            to_far = data or b""
            if to_far:
                to_far = to_far[_sent(far, to_far) :]


def _follow(watch: "select.poll", sock: socket.socket, what: int) -> None:
    """Watch for that; for nothing at all, or a side that hung up would be told without end."""
    if what:
        watch.register(sock, what)
    else:
        try:
            watch.unregister(sock)
        except KeyError:
            pass


GONE = select.POLLERR | select.POLLNVAL
WAIT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def _received(sock: socket.socket) -> Optional[bytes]:
    """What has come; b"" at the end, None when nothing has."""
    try:
        return sock.recv(CHUNK)
    except WAIT:
        return None
    except (ssl.SSLError, ConnectionError):
        return b""


def _sent(sock: socket.socket, data: bytes) -> int:
    try:
        return sock.send(data)
    except WAIT:
        return 0

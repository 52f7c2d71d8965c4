"""A connected socket to a port of a node, made from within the node's own network.

So even what listens on the node's 127.0.0.1 is reached. A socket stays in the network in which it
was made, whoever holds it.
"""

from __future__ import annotations

import array
import json
import os
import socket
from typing import Any, List, Optional, Tuple

from .linux import inside, kernel
from .network import Network


class Connecting:
    """A connection on its way to `port` of `node`: at its address, else at its 127.0.0.1.

    (The latter in mode isolated.) A child makes it, which takes `timeout` seconds for each of the
    two at most: select on `fd`, then ask for the `result`. The child is the caller's to reap.
    """

    def __init__(self, network: Network, node: str, port: int, timeout: float = 5.0) -> None:
        """Fork. Raises OSError, and LookupError for a node that is not there."""
        address = network.nodes[node]
        self._what = "%s:%d" % (node, port)
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self.pid = os.fork()
            except OSError:
                self._ours.close()
                raise
            if self.pid == 0:
                _answer(theirs, network, node, (address, port, timeout))
        self.fd = self._ours.fileno()

    def result(self) -> socket.socket:
        """The connected socket. Raises ConnectionError with what the node answered."""
        with self._ours:
            said, fds = receive(self._ours)
        if not fds:
            raise ConnectionError("%s: %s" % (self._what, said or "no answer came"))
        return socket.socket(fileno=fds[0])


def _answer(out: socket.socket, network: Network, node: str, to: Tuple[str, int, float]) -> None:
    """The child. It closes what it inherited up to 4095 (a lock would outlive the parent) but the
    standard three and its end of the pair.
    """
    try:
        inside.plain_signals()
        os.closerange(3, out.fileno())
        os.closerange(out.fileno() + 1, 4096)
        sock: Optional[socket.socket] = None
        try:
            sock = _connect(network, node, to)
            said = ""
        except OSError as error:
            said = str(error)
        send(out, said, [sock.fileno()] if sock is not None else [])
    finally:
        os._exit(0)


def _connect(network: Network, node: str, to: Tuple[str, int, float]) -> socket.socket:
    address, port, timeout = to
    if network.holder is not None:
        target = os.open(namespace(network, node), os.O_RDONLY)
        inside.join(network.holder)
        kernel.setns(target, kernel.CLONE_NEWNET)
    try:
        sock = socket.create_connection((address, port), timeout)
    except ConnectionRefusedError:
        if network.holder is None:
            raise
        sock = socket.create_connection(("127.0.0.1", port), timeout)
    sock.settimeout(None)
    return sock


def namespace(network: Network, node: str) -> str:
    """Path of the node's network namespace, as it is seen from the host."""
    assert network.holder is not None
    place = "/proc/%d/root%s" % (network.holder.pid, network.namespaces)
    return "%s/n%d" % (place, network.number(node))


def send(out: socket.socket, value: object, fds: List[int]) -> None:
    """One JSON value with descriptors, over a sequenced-packet socket."""
    raw = array.array("i", fds).tobytes()
    extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, raw)] if fds else []
    out.sendmsg([json.dumps(value).encode()], extra)


def receive(ours: socket.socket) -> Tuple[Any, List[int]]:
    """What `send` sent; (None, []) when the other side has ended without."""
    size = array.array("i").itemsize
    raw, extra, _, _ = ours.recvmsg(65536, socket.CMSG_SPACE(64 * size))
    fds = array.array("i")
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % size])
    return json.loads(raw) if raw else None, list(fds)

"""A connected socket to a port of a node, made from within the node's own network.

So even what listens on the node's 127.0.0.1 is reached. A socket stays in the network in which it
was made, whoever holds it.
"""

from __future__ import annotations

import array
import json
import os
import socket
from typing import List, Tuple

from .linux import inside, kernel
from .network import Network, NetworkError


def connect(network: Network, node: str, port: int, timeout: float = 5.0) -> socket.socket:
    """Connect to `port` of `node`: at its address, else at its 127.0.0.1 (mode isolated).

    Blocks for `timeout` seconds at most. Raises ConnectionError with what the node answered.
    """
    if network.holder is None:
        try:
            return socket.create_connection((network.nodes[node], port), timeout)
        except OSError as error:
            raise ConnectionError("%s:%d: %s" % (node, port, error)) from error
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        child = inside.start(lambda: _connect(network, (node, port, timeout), theirs))
        try:
            child.result()
        except NetworkError as error:
            raise ConnectionError("%s:%d: %s" % (node, port, error.reason)) from error
        _, fds = receive(ours)
    return socket.socket(fileno=fds[0])


def _connect(network: Network, to: Tuple[str, int, float], out: socket.socket) -> bool:
    node, port, timeout = to
    with inside.step("connect"):
        assert network.holder is not None
        target = os.open(namespace(network, node), os.O_RDONLY)
        inside.join(network.holder)
        kernel.setns(target, kernel.CLONE_NEWNET)
        try:
            sock = socket.create_connection((network.nodes[node], port), timeout)
        except ConnectionRefusedError:
            sock = socket.create_connection(("127.0.0.1", port), timeout)
        sock.settimeout(None)
        send(out, {}, [sock.fileno()])
    return True


def namespace(network: Network, node: str) -> str:
    """Path of the node's network namespace, as it is seen from the host."""
    assert network.holder is not None
    place = "/proc/%d/root%s" % (network.holder.pid, network.namespaces)
    return "%s/n%d" % (place, network.number(node))


def send(out: socket.socket, value: object, fds: List[int]) -> None:
    """One JSON value with descriptors, over a sequenced-packet socket."""
    raw = array.array("i", fds).tobytes()
    out.sendmsg([json.dumps(value).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, raw)])


def receive(ours: socket.socket) -> Tuple[object, List[int]]:
    """What `send` sent."""
    size = array.array("i").itemsize
    raw, extra, _, _ = ours.recvmsg(65536, socket.CMSG_SPACE(64 * size))
    fds = array.array("i")
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % size])
    return json.loads(raw), list(fds)

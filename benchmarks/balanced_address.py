"""Requests of 1 KiB through the proxy of a balanced address, beside a direct connection.

Client, backend and proxy are processes of their own, in both network modes; the proxy is kept on
one core. "us each" is its CPU time for a request, "per core" how many that makes in a second,
whoever else uses the machine. Budget: per core >= 5,000 requests/s on kept connections and
>= 1,000/s with a new connection each.

    python benchmarks/balanced_address.py [--seconds 2] [--rounds 5] [--network host isolated]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from argosy.agent.net import balance, enter, host, isolated, network, supervisor

REQUEST = b"POST / HTTP/1.1\r\nContent-Length: 960\r\n\r\n".ljust(1024, b"x")
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 960\r\n\r\n".ljust(1024, b"y")
KEPT = 32  # connections at a time, in both kinds
BUDGET = {"kept": 5000.0, "new": 1000.0}

Address = tuple[str, int]


def serve(listener: socket.socket) -> None:
    """A backend: one answer for each 1 KiB, many connections in one loop."""
    poll = select.epoll()
    poll.register(listener.fileno(), select.EPOLLIN)
    clients: dict[int, socket.socket] = {}
    while True:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                client = listener.accept()[0]
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                clients[client.fileno()] = client
                poll.register(client.fileno(), select.EPOLLIN)
                continue
            client = clients[fd]
            with contextlib.suppress(ConnectionError):
                if client.recv(4096):
                    client.sendall(ANSWER)
                    continue
            poll.unregister(fd)
            del clients[fd]
            client.close()


def kept(address: Address, seconds: float) -> float:
    """Requests a second, one at a time on each of KEPT connections."""
    poll = select.epoll()
    socks = {}
    for _ in range(KEPT):
        sock = socket.create_connection(address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        socks[sock.fileno()] = sock
        poll.register(sock.fileno(), select.EPOLLIN)
        sock.send(REQUEST)
    missing = dict.fromkeys(socks, len(ANSWER))
    done, began = 0, time.perf_counter()
    end = began + seconds
    while time.perf_counter() < end:
        for fd, _ in poll.poll():
            missing[fd] -= len(socks[fd].recv(4096))
            if not missing[fd]:
                done += 1
                missing[fd] = len(ANSWER)
                socks[fd].send(REQUEST)
    took = time.perf_counter() - began
    for sock in socks.values():
        sock.close()
    return done / took


def new(address: Address, seconds: float) -> float:
    """Requests a second, each on a connection of its own, KEPT at a time."""
    poll = select.epoll()
    socks: dict[int, socket.socket] = {}
    missing: dict[int, int] = {}

    def begin() -> None:
        sock = socket.create_connection(address)
        socks[sock.fileno()] = sock
        missing[sock.fileno()] = len(ANSWER)
        poll.register(sock.fileno(), select.EPOLLIN)
        sock.send(REQUEST)

    for _ in range(KEPT):
        begin()
    done, began = 0, time.perf_counter()
    end = began + seconds
    while time.perf_counter() < end:
        for fd, _ in poll.poll():
            missing[fd] -= len(socks[fd].recv(4096))
            if not missing[fd]:
                done += 1
                socks.pop(fd).close()
                begin()
    took = time.perf_counter() - began
    for sock in socks.values():
        sock.close()
    return done / took


KINDS: dict[str, Callable[[Address, float], float]] = {"kept": kept, "new": new}


def in_node(spec: dict[str, Any], work: Callable[[], float | None]) -> tuple[int, int]:
    """Fork a child that enters its node and works: its pid, and a pipe with the result."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    try:
        enter.enter(spec)
        os.write(writer, repr(work()).encode())
    finally:
        os._exit(0)


def ask_from(spec: dict[str, Any], work: Callable[[], float]) -> float:
    """The result of `work`, done in the node."""
    pid, reader = in_node(spec, work)
    with open(reader) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return float(said)


def backend(address: Address) -> None:
    """Listen and serve for ever."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(1024)
    serve(listener)


def connects(address: Address) -> bool:
    """Does somebody listen there?"""
    try:
        socket.create_connection(address).close()
    except ConnectionRefusedError:
        return False
    return True


def await_listener(spec: dict[str, Any], address: Address) -> None:
    """Wait until somebody listens there, as seen from the node."""
    while not ask_from(spec, lambda: float(connects(address))):
        time.sleep(0.01)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Found:
    """Rates of one kind of connection, a second; `cost` is the proxy's CPU microseconds each."""

    kind: str
    direct: list[float]
    through: list[float]
    cost: list[float]


def found(
    net: network.Network, client: dict[str, Any], args: argparse.Namespace
) -> Iterator[Found]:
    """Measure both kinds of connection, direct and through the proxy by turns."""
    direct_to = (net.nodes["a-0"], args.port)
    proxy_at = (net.balanced["a"], args.port)
    await_listener(client, direct_to)
    await_listener(client, proxy_at)
    proxy = int(Path(net.directory, "proxy.running.lock").read_text().split()[0])
    os.sched_setaffinity(proxy, {max(os.sched_getaffinity(0))})
    for kind, ask in KINDS.items():
        direct, through, cost = [], [], []
        for _ in range(args.rounds):
            direct.append(ask_from(client, partial(ask, direct_to, args.seconds)))
            before = cpu_seconds(proxy)
            through.append(ask_from(client, partial(ask, proxy_at, args.seconds)))
            cost.append((cpu_seconds(proxy) - before) / (through[-1] * args.seconds) * 1e6)
        yield Found(kind, direct, through, cost)


def measured(mode: str, args: argparse.Namespace) -> Iterator[Found]:
    """One backend and one client in a group of that mode."""
    modes: dict[str, Any] = {"host": host, "isolated": isolated}
    with tempfile.TemporaryDirectory() as folder:
        choice = {"names": "none"} if mode == "host" else {"way_out": False}
        mark = f"bench-{os.getpid()}"
        nodes = ["a-0", "c-0"]
        net = modes[mode].build(folder + "/net", mark, nodes, None, ["a"], **choice)
        specs = [modes[mode].enter_attempt(net, node, node + ".bench") for node in nodes]
        server, _ = in_node(specs[0], lambda: backend((net.nodes["a-0"], args.port)))
        try:
            supervisor.ensure(net)
            backends = [balance.Backend(net.nodes["a-0"])]
            balance.write(net, [balance.Service("a", [args.port], backends)])
            yield from found(net, specs[1], args)
        finally:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
            modes[mode].destroy(net.record())


def shown(mode: str, one: Found) -> bool:
    """Print its line; whether the budget holds."""
    direct, middle = statistics.median(one.direct), statistics.median(one.through)
    each = statistics.median(one.cost)
    spread = f"{min(one.through):.0f}-{max(one.through):.0f}"
    print(
        f"{mode:<10}{one.kind:<6}{direct:>10.0f}{middle:>10.0f}"
        f"{middle / direct:>8.2f}{spread:>16}{each:>9.0f}{1e6 / each:>10.0f}"
    )
    return 1e6 / each >= BUDGET[one.kind]


def main() -> int:
    """Run it; 1 when the budget is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--port", type=int, default=18431)
    parser.add_argument("--network", nargs="+", default=["host", "isolated"])
    args = parser.parse_args()
    print(
        f"{'network':<10}{'kind':<6}{'direct/s':>10}{'proxy/s':>10}{'ratio':>8}{'spread':>16}"
        f"{'us each':>9}{'per core':>10}"
    )
    held = [shown(mode, one) for mode in args.network for one in measured(mode, args)]
    good = all(held)
    print("budget per core: kept >= 5000/s, new >= 1000/s:", "held" if good else "MISSED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

"""Requests of 1 KiB through the proxy of a balanced address, beside a direct connection.

Client, backends and proxy are processes of their own; the proxy is kept on one core. Budget:
>= 5,000 requests/s on kept connections and >= 1,000/s with a new connection each.

    python benchmarks/balanced_address.py [--seconds 2] [--rounds 5]
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
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from argosy.agent.net import balance, host, network, supervisor

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


def start_backends(net: network.Network, port: int) -> list[int]:
    """A process for each node of the group."""
    pids = []
    for address in net.nodes.values():
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(1024)
        pid = os.fork()
        if pid == 0:
            try:
                serve(listener)
            finally:
                os._exit(1)
        listener.close()
        pids.append(pid)
    return pids


def await_proxy(net: network.Network, port: int) -> int:
    """Wait until the proxy answers; give its process and keep it on one core."""
    address = net.balanced["a"]
    while True:
        try:
            socket.create_connection((address, port)).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    pid = int(Path(net.directory, "proxy.running.lock").read_text().split()[0])
    os.sched_setaffinity(pid, {max(os.sched_getaffinity(0))})
    return pid


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(seconds: float, rounds: int, port: int) -> bool:
    """Print the table; True when the budget holds."""
    good = True
    with tempfile.TemporaryDirectory() as folder:
        net = host.build(folder + "/net", f"bench-{os.getpid()}", ["a-0"], None, ["a"], "none")
        backends = start_backends(net, port)
        try:
            supervisor.ensure(net)
            found = [balance.Backend(address) for address in net.nodes.values()]
            balance.write(net, [balance.Service("a", [port], found)])
            proxy = await_proxy(net, port)
            print(f"{'connection':<12}{'direct/s':>10}{'proxy/s':>10}{'ratio':>8}{'spread':>18}"
                  f"{'us/request':>12}")  # fmt: skip
            for kind, ask in KINDS.items():
                direct, through, cost = [], [], []
                for _ in range(rounds):
                    direct.append(ask((net.nodes["a-0"], port), seconds))
                    before = cpu_seconds(proxy)
                    through.append(ask((net.balanced["a"], port), seconds))
                    cost.append((cpu_seconds(proxy) - before) / (through[-1] * seconds) * 1e6)
                middle = statistics.median(through)
                good = good and middle >= BUDGET[kind]
                print(
                    f"{kind:<12}{statistics.median(direct):>10.0f}{middle:>10.0f}"
                    f"{middle / statistics.median(direct):>8.2f}"
                    f"{f'{min(through):.0f}-{max(through):.0f}':>18}"
                    f"{statistics.median(cost):>12.0f}"
                )
        finally:
            for pid in backends:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            host.destroy(net.record())
    return good


def main() -> int:
    """Run it; 1 when the budget is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--port", type=int, default=18431)
    args = parser.parse_args()
    good = measure(args.seconds, args.rounds, args.port)
    print("budget: kept >= 5000/s, new >= 1000/s:", "held" if good else "MISSED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

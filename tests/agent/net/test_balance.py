"""The proxy behind balanced addresses, as its own process, in mode host: needs no privileges."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from argosy.agent.net import balance, host, leftovers, network, supervisor

DEADLINE = 20.0
MANY = 200


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "in vain: " + what
        time.sleep(0.005)


class Node:
    """A server in a thread: greets each connection with its name, then does what `serve` says."""

    def __init__(self, name: str, address: str, port: int, serve: Callable[[socket.socket], None]):
        self.name = name
        self.serve = serve
        self.count = 0
        self.clients: list[socket.socket] = []
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((address, port))
        self.listener.listen(MANY)
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            self.count += 1
            self.clients.append(client)
            thread = threading.Thread(target=self._one, args=(client,))
            self.threads.append(thread)
            thread.start()

    def _one(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            client.sendall(self.name.encode())
            self.serve(client)

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for client in self.clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(DEADLINE)
            assert not thread.is_alive()


def echo(client: socket.socket) -> None:
    while piece := client.recv(65536):
        client.sendall(piece)


class Bench:
    """A group in mode host with the balanced task `a`, and its nodes."""

    def __init__(self, directory: Path) -> None:
        names = [f"a-{number}" for number in range(4)]
        mark = f"balance-{os.getpid()}-{directory.name}"
        self.net = host.build(str(directory / "net"), mark, names, None, ["a"], names="none")
        self.port = self._free_port()
        self.nodes: dict[str, Node] = {}
        self.sockets: list[socket.socket] = []
        supervisor.ensure(self.net)

    def _free_port(self) -> int:
        with socket.socket() as probe:
            probe.bind((self.net.balanced["a"], 0))
            port: int = probe.getsockname()[1]
            return port

    def start(self, name: str, serve: Callable[[socket.socket], None] = echo) -> Node:
        node = Node(name, self.net.nodes[name], self.port, serve)
        self.nodes[name] = node
        return node

    def tell(self, **health: bool) -> None:
        """The backends by name (a_0=True is healthy); returns once the proxy has taken it."""
        backends = {name.replace("_", "-"): ok for name, ok in health.items()}
        found = [balance.Backend(self.net.nodes[name], ok) for name, ok in backends.items()]
        self.write(found)

    def write(self, backends: list[balance.Backend]) -> None:
        balance.write(self.net, [balance.Service("a", [self.port], backends)])
        wanted = {(b.address, b.healthy and not b.draining) for b in backends}
        # a connection shows that the proxy listens; statistics follow every change
        until(lambda: self._known() >= wanted, "the proxy to take the change")

    def _known(self) -> set[tuple[str, bool]]:
        found = balance.stats(self.net).get(f"a:{self.port}", {}).get("backends", {})
        return {(key.partition(":")[0], value["usable"]) for key, value in found.items()}

    def connect(self) -> socket.socket:
        sock = socket.create_connection((self.net.balanced["a"], self.port), DEADLINE)
        sock.settimeout(DEADLINE)
        self.sockets.append(sock)
        return sock

    def greeted(self) -> tuple[socket.socket, str]:
        sock = self.connect()
        return sock, receive(sock, 3).decode()

    def end(self) -> None:
        for sock in self.sockets:
            sock.close()
        for node in self.nodes.values():
            node.end()
        host.destroy(self.net.record())
        assert leftovers.leftovers(self.net.mark, self.net.directory) == []


def receive(sock: socket.socket, count: int) -> bytes:
    said = b""
    while len(said) < count:
        more = sock.recv(count - len(said))
        assert more, f"closed after {said!r}"
        said += more
    return said


@pytest.fixture
def bench() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="balance-") as folder:
        bench = Bench(Path(folder))
        try:
            yield bench
        finally:
            bench.end()


def test_connections_go_to_the_least_busy_node(bench: Bench) -> None:
    for name in ("a-0", "a-1", "a-2"):
        bench.start(name)
    bench.tell(a_0=True, a_1=True, a_2=True)
    open_at = [bench.greeted() for _ in range(6)]
    assert sorted(name for _, name in open_at) == ["a-0", "a-0", "a-1", "a-1", "a-2", "a-2"]
    for sock, name in open_at:
        if name == "a-1":
            sock.close()
    until(lambda: _count(bench, "a-1", "connections") == 2, "both to be counted")
    until(lambda: _count(bench, "a-1", "open") == 0, "their ends to be counted")
    assert [bench.greeted()[1] for _ in range(2)] == ["a-1", "a-1"]


def _count(bench: Bench, name: str, what: str) -> int:
    found = balance.stats(bench.net)[f"a:{bench.port}"]["backends"]
    value: int = found[f"{bench.net.nodes[name]}:{bench.port}"][what]
    return value


def test_a_node_that_refuses_is_passed_over_at_once(bench: Bench) -> None:
    bench.start("a-1")
    bench.tell(a_0=True, a_1=True, a_2=True)  # nobody listens on a-0 and a-2
    assert {bench.greeted()[1] for _ in range(20)} == {"a-1"}


def test_an_unready_node_gets_no_new_connection_and_keeps_its_old_ones(bench: Bench) -> None:
    bench.start("a-0")
    bench.start("a-1")
    bench.tell(a_0=True)
    stream, name = bench.greeted()
    assert name == "a-0"
    bench.tell(a_0=False, a_1=True)
    assert {bench.greeted()[1] for _ in range(10)} == {"a-1"}
    bench.tell(a_1=True)  # gone from the list altogether
    stream.sendall(b"still here")
    assert receive(stream, 10) == b"still here"


def test_a_draining_node_gets_no_new_connection(bench: Bench) -> None:
    bench.start("a-0")
    bench.start("a-1")
    nodes = bench.net.nodes
    bench.write([balance.Backend(nodes["a-0"], draining=True), balance.Backend(nodes["a-1"])])
    assert {bench.greeted()[1] for _ in range(10)} == {"a-1"}


def test_a_stream_is_not_cut_by_the_death_of_another_node(bench: Bench) -> None:
    bench.start("a-0")
    other = bench.start("a-1")
    bench.tell(a_0=True, a_1=True)
    pairs = {name: sock for sock, name in (bench.greeted(), bench.greeted())}
    other.end()
    assert pairs["a-1"].recv(1) == b""  # its own connections end with it
    for number in range(50):
        pairs["a-0"].sendall(b"%02d" % number)
        assert receive(pairs["a-0"], 2) == b"%02d" % number
    assert {bench.greeted()[1] for _ in range(10)} == {"a-0"}


def test_a_new_node_joins(bench: Bench) -> None:
    bench.start("a-0")
    bench.tell(a_0=True)
    first = bench.greeted()
    bench.start("a-3")
    bench.tell(a_0=True, a_3=True)
    assert first[1] == "a-0"
    assert bench.greeted()[1] == "a-3"


def test_a_connection_waits_for_a_healthy_node(bench: Bench) -> None:
    bench.start("a-0")
    bench.tell(a_0=False)
    waiting = bench.connect()
    waiting.sendall(b"early")
    bench.tell(a_0=True)
    assert receive(waiting, 8) == b"a-0early"


def test_a_connection_waits_for_a_node_that_starts_again(bench: Bench) -> None:
    bench.tell(a_0=True)
    waiting = bench.connect()
    until(lambda: _count(bench, "a-0", "failures") > 1, "a refusal")
    bench.start("a-0")
    assert receive(waiting, 3) == b"a-0"


def test_waiting_in_vain_ends_in_a_reset(bench: Bench) -> None:
    bench.tell(a_0=False)
    waiting = bench.connect()
    with pytest.raises(ConnectionResetError):
        waiting.recv(1)
    until(lambda: balance.stats(bench.net)[f"a:{bench.port}"]["refused"] == 1, "the count")


def test_half_close_is_passed_on(bench: Bench) -> None:
    def count_then_answer(client: socket.socket) -> None:
        total = 0
        while piece := client.recv(65536):
            total += len(piece)
        client.sendall(b"%d" % total)

    bench.start("a-0", count_then_answer)
    bench.tell(a_0=True)
    sock, _ = bench.greeted()
    sock.sendall(bytes(1_000_000))
    sock.shutdown(socket.SHUT_WR)
    said = b"".join(iter(lambda: sock.recv(100), b""))
    assert said == b"1000000"


def test_a_server_may_close_first_and_still_read(bench: Bench) -> None:
    heard: list[bytes] = []

    def close_then_read(client: socket.socket) -> None:
        client.shutdown(socket.SHUT_WR)
        heard.append(b"".join(iter(lambda: client.recv(65536), b"")))

    bench.start("a-0", close_then_read)
    bench.tell(a_0=True)
    sock, _ = bench.greeted()
    assert sock.recv(1) == b""
    sock.sendall(b"last words")
    sock.shutdown(socket.SHUT_WR)
    until(lambda: heard == [b"last words"], "the last words")


def test_a_reset_is_passed_on(bench: Bench) -> None:
    ended: list[str] = []

    def until_reset(client: socket.socket) -> None:
        try:
            client.recv(1)
        except ConnectionResetError:
            ended.append("reset")

    bench.start("a-0", until_reset)
    bench.tell(a_0=True)
    sock, _ = bench.greeted()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    until(lambda: ended == ["reset"], "the reset")


def test_a_slow_reader_holds_the_sender_back_and_loses_nothing(bench: Bench) -> None:
    size = 48 << 20
    body = os.urandom(1 << 20)
    sent = [0]

    def pour(client: socket.socket) -> None:
        while sent[0] < size:
            client.sendall(body)
            sent[0] += len(body)
        client.shutdown(socket.SHUT_WR)
        client.recv(1)

    bench.start("a-0", pour)
    bench.tell(a_0=True)
    before = _resident_kib(bench)
    sock, _ = bench.greeted()
    steady = _await_standstill(sent)
    assert steady < size, "nothing held the sender back"
    assert _resident_kib(bench) - before < 4096
    wanted, found = hashlib.sha256(), hashlib.sha256()
    for _ in range(size // len(body)):
        wanted.update(body)
    while piece := sock.recv(1 << 20):
        found.update(piece)
    assert found.digest() == wanted.digest()


def _await_standstill(sent: list[int]) -> int:
    """The number once it has not moved for some looks in a row."""
    seen = [-1]

    def still() -> bool:
        seen.append(sent[0])
        return len(seen) > 60 and len(set(seen[-50:])) == 1

    until(still, "the sender to be held back")
    return sent[0]


def _resident_kib(bench: Bench) -> int:
    pid = Path(bench.net.directory, "proxy.running.lock").read_text().split()[0]
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def test_both_directions_at_once(bench: Bench) -> None:
    bench.start("a-0")
    bench.tell(a_0=True)
    sock, _ = bench.greeted()
    body = os.urandom(24 << 20)
    sender = threading.Thread(target=sock.sendall, args=(body,))
    sender.start()
    echoed = hashlib.sha256()
    left = len(body)
    while left:
        piece = sock.recv(min(left, 1 << 20))
        assert piece
        echoed.update(piece)
        left -= len(piece)
    sender.join(DEADLINE)
    assert echoed.digest() == hashlib.sha256(body).digest()


def test_many_connections_at_once(bench: Bench) -> None:
    bench.start("a-0")
    bench.start("a-1")
    bench.tell(a_0=True, a_1=True)
    sockets = [bench.connect() for _ in range(MANY)]
    names = [receive(sock, 3).decode() for sock in sockets]
    assert (names.count("a-0"), names.count("a-1")) == (MANY // 2, MANY // 2)
    for sock in sockets:
        sock.sendall(b"ping")
    assert {receive(sock, 4) for sock in sockets} == {b"ping"}


def test_a_port_that_is_taken_is_told_and_tried_again(bench: Bench) -> None:
    bench.start("a-0")
    with socket.socket() as other:
        other.bind((bench.net.balanced["a"], bench.port))
        other.listen(1)
        bench.tell(a_0=True)
        name = f"a:{bench.port}"
        until(lambda: "in use" in balance.stats(bench.net)[name]["error"], "the error")
    until(lambda: _reaches(bench), "the proxy to listen")


def _reaches(bench: Bench) -> bool:
    try:
        return bench.greeted()[1] == "a-0"
    except ConnectionRefusedError:
        return False


def test_a_broken_control_file_changes_nothing(bench: Bench) -> None:
    bench.start("a-0")
    bench.tell(a_0=True)
    path = os.path.join(bench.net.directory, balance.CONTROL)
    for text in ("{", "[]", '{"listen": [{"name": "x"}]}', '{"listen": 3}'):
        network.write_whole(path, text)
        assert bench.greeted()[1] == "a-0"


def test_the_same_text_is_not_written_again(bench: Bench) -> None:
    bench.tell(a_0=True)
    path = Path(bench.net.directory, balance.CONTROL)
    before = path.stat().st_ino
    bench.tell(a_0=True)
    assert path.stat().st_ino == before

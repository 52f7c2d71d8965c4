"""Readiness probes, made from within each node's own network by one child for the whole network.

The child joins the holder's user namespace once and a node's network for as long as it takes to
make a socket, so a probe costs no process. It ends when its agent does.
"""

from __future__ import annotations

import errno
import json
import os
import selectors
import socket
import time
from typing import Any, Dict, List

from . import forward
from .linux import inside, kernel
from .network import Network

ANSWER_MAX = 4096  # the status line is all that is wanted
PACKET_MAX = 65536


class Prober:
    """Asks a network's nodes; select on `fd` and then call `results`."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._last = 0
        self.pid = os.fork()
        if self.pid == 0:
            try:
                inside.plain_signals()
                _serve(network, theirs)
            finally:
                os._exit(0)
        theirs.close()
        self._ours.setblocking(False)
        self.fd = self._ours.fileno()

    def ask(self, node: str, kind: str, port: int, path: str = "/", timeout: float = 1.0) -> int:
        """Begin one probe: "tcp" (it accepts) or "http" (it answers 200 to 399); gives its id.

        Raises OSError when the child cannot take it now (BlockingIOError) or is gone.
        """
        self._last += 1
        network = self.network
        place = forward.namespace(network, node) if network.holder else ""
        request = {
            "id": self._last,
            "kind": kind,
            "net": place,
            "address": network.nodes[node],
            "host": node,
            "port": port,
            "path": path,
            "timeout": timeout,
        }
        self._ours.send(json.dumps(request).encode())
        return self._last

    def results(self) -> List[Dict[str, Any]]:
        """All answers that are there: {"id", "ok", "detail"}. EOFError: the child is gone."""
        found: List[Dict[str, Any]] = []
        while True:
            try:
                raw = self._ours.recv(PACKET_MAX)
            except BlockingIOError:
                return found
            except OSError:
                raw = b""
            if not raw:
                if found:
                    return found
                raise EOFError("the prober ended")
            found.append(json.loads(raw))

    def close(self) -> None:
        """End the child."""
        self._ours.close()
        inside.reap(self.pid)


class _Probe:
    """One probe under way."""

    def __init__(self, request: Dict[str, Any]) -> None:
        self.request = request
        self.deadline = time.monotonic() + request["timeout"]
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.connected = False
        self.sent = False
        self.said = b""

    def start(self) -> str:
        """Connect; an errno's name when that is refused at once."""
        code = self.sock.connect_ex((self.request["address"], self.request["port"]))
        return "" if code in (0, errno.EINPROGRESS) else os.strerror(code)

    def advance(self) -> Dict[str, Any]:
        """Do what can be done now; {} while there is more to wait for."""
        if not self.connected:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                return self.answer(False, os.strerror(code))
            self.connected = True
            if self.request["kind"] == "tcp":
                return self.answer(True, "accepted")
        try:
            return self._http()
        except BlockingIOError:
            return {}
        except OSError as error:
            return self.answer(False, error.strerror or str(error))

    def _http(self) -> Dict[str, Any]:
        if not self.sent:
            asked = self.request
            text = (
                "GET %s HTTP/1.1\r\nHost: %s:%d\r\nUser-Agent: argosy\r\nConnection: close\r\n\r\n"
            )
            self.sock.send((text % (asked["path"], asked["host"], asked["port"])).encode())
            self.sent = True
            return {}
        more = self.sock.recv(ANSWER_MAX)
        self.said += more
        if b"\n" not in self.said and more and len(self.said) < ANSWER_MAX:
            return {}
        line = self.said.split(b"\r\n")[0].split(b"\n")[0].decode("latin-1")
        words = line.split(None, 2)
        if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdigit():
            return self.answer(False, "no HTTP answer" if more else "closed without an answer")
        return self.answer(200 <= int(words[1]) < 400, line)

    def answer(self, ok: bool, detail: str) -> Dict[str, Any]:
        """The result to report."""
        return {"id": self.request["id"], "ok": ok, "detail": detail}


def _serve(network: Network, sock: socket.socket) -> None:
    """In the child: take requests, run all at once, answer each."""
    mine = sock.fileno()
    os.closerange(3, mine)
    os.closerange(mine + 1, 4096)
    back = -1
    if network.holder is not None:
        inside.join(network.holder, "net")  # a network to which the way back is open
        back = os.open("/proc/self/ns/net", os.O_RDONLY)
    selector = selectors.DefaultSelector()
    selector.register(sock, selectors.EVENT_READ)
    while True:
        probes = [key.data for key in selector.get_map().values() if key.data is not None]
        now = time.monotonic()
        waits = [max(0.0, probe.deadline - now) for probe in probes]
        for key, _ in selector.select(min(waits) if waits else None):
            if key.data is None:
                raw = sock.recv(PACKET_MAX)
                if not raw:
                    return
                _begin(selector, sock, json.loads(raw), back)
                continue
            _report(selector, sock, key.data, key.data.advance())
        now = time.monotonic()
        for probe in [p for p in probes if p.deadline <= now]:
            if probe.sock.fileno() >= 0:
                late = "answer" if probe.connected else "connection"
                _report(selector, sock, probe, probe.answer(False, "no %s in time" % late))


def _begin(
    selector: selectors.BaseSelector, out: socket.socket, request: Dict[str, Any], back: int
) -> None:
    try:
        if request["net"]:
            fd = os.open(request["net"], os.O_RDONLY)
            try:
                kernel.setns(fd, kernel.CLONE_NEWNET)
            finally:
                os.close(fd)
        try:
            probe = _Probe(request)
            problem = probe.start()
        finally:
            if request["net"]:
                kernel.setns(back, kernel.CLONE_NEWNET)
    except OSError as error:
        text = {"id": request["id"], "ok": False, "detail": error.strerror or str(error)}
        out.send(json.dumps(text).encode())
        return
    selector.register(probe.sock, selectors.EVENT_WRITE | selectors.EVENT_READ, probe)
    if problem:
        _report(selector, out, probe, probe.answer(False, problem))


def _report(
    selector: selectors.BaseSelector, out: socket.socket, probe: _Probe, result: Dict[str, Any]
) -> None:
    if not result:
        # what is written at once is written; from now on only an answer is of interest
        if probe.sent:
            selector.modify(probe.sock, selectors.EVENT_READ, probe)
        return
    selector.unregister(probe.sock)
    probe.sock.close()
    out.send(json.dumps(result).encode())

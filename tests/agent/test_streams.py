"""Streams that are misused, or whose other end has gone or comes early."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from argosy.agent.attempt.guests import Entering, Guest, Inside
from argosy.agent.door.sessions import Exec
from argosy.agent.link import Stream
from argosy.agent.loop import Loop
from tests.agent.rig import Agent, Wire, eventually, exists, marked

SERVE = "exec /usr/bin/env python3 -u -m http.server {port} --bind {address}"


def test_bad_messages_get_an_error_line(agent: Agent) -> None:
    assert agent.ask(op="dance")[0]["code"] == "agent/unknown-op"
    assert agent.ask(op="forget")[0]["code"] == "agent/bad-message"
    agent.run("A", "true")
    agent.end("A")
    before = len(os.listdir(f"/proc/{agent.pid}/fd"))
    for wrong in ({"tail": "x"}, {"since": "x"}, {"until": []}, {"tail": float("inf")}):
        answer = agent.ask(op="logs", attempt=agent.id("A"), **wrong)
        assert answer[0]["code"] == "agent/bad-message"
    eventually(lambda: len(os.listdir(f"/proc/{agent.pid}/fd")) <= before, "no descriptor is lost")
    wire = Wire(agent.home, {"op": "status"})
    wire.close()
    raw = Wire(agent.home, {"op": "control", "protocol": 1, "server": "x", "life": 1})
    raw.sock.sendall(b"not json\n")
    assert raw.rest()[-1]["code"] == "agent/bad-line"
    raw.close()
    raw = Wire(agent.home, {"op": "control", "protocol": 1, "server": "x", "life": 1})
    raw.send({"type": "assign", "lease": "L", "tasks": {"A": {"secrets": {"KEY": "s3cr3t"}}}})
    assert raw.rest()[-1]["code"] == "agent/bad-message"
    raw.close()
    said = (agent.home / "agent.log").read_text()
    assert "assign" in said
    assert "s3cr3t" not in said
    assert agent.status()["pid"] == agent.pid


def test_who_misuses_a_stream_has_left_it(agent: Agent) -> None:
    """Its command ends, what it was just sending goes, and it is no server any more."""
    agent.run("A", "touch made; sleep 1000")
    exec_ = {"op": "exec", "attempt": agent.id("A"), "argv": ["sleep", "4321"], "tty": True}
    command = Wire(agent.home, exec_)
    sleeps = eventually(lambda: [pid for pid, line in marked(agent.id("A")).items()
                                 if "4321" in line])  # fmt: skip
    command.send({"resize": "x"})
    put = Wire(agent.home, {"op": "put", "attempt": agent.id("A"), "path": "in"})
    put.send({"data": 7})
    control = Wire(agent.home, {"op": "control", "protocol": 1, "server": "x", "life": 1})
    control.send({"type": "ack"})
    for wire in (command, put, control):
        assert wire.rest()[-1]["code"] == "agent/bad-message"
        wire.close()
    eventually(lambda: not any(exists(pid) for pid in sleeps), "the command ends")
    left = agent.ask(op="get", attempt=agent.id("A"), path="in.argosy-part")
    assert left[0]["error"] == "NotFound"
    assert "x" not in agent.status()["controls"]


# -- a command for a program that is still on its way ---------------------------------------------


class Way:
    """An attempt whose program is entering its namespaces until the test says that it is there."""

    def __init__(self, **wish: Any) -> None:
        self.loop, self.there, self.guests = Loop(), False, list[Guest]()
        ours, self.client = socket.socketpair()
        self.stream = Stream(self.loop, ours)
        host = SimpleNamespace(attempts={"A": self}, place=SimpleNamespace(loop=self.loop))
        self.exec = Exec(host, self.stream, {"attempt": "A", "argv": ["cat"], **wish})  # type: ignore[arg-type]

    def invite(self, argv: list[str], size: tuple[int, int] | None, env: dict[str, str]) -> Guest:
        if not self.there:
            raise Entering
        inside = Inside(os.getpid(), dict(os.environ), "/")
        self.guests.append(Guest(self.loop, inside, argv, size))
        return self.guests[-1]

    def until(self, look: Callable[[], object]) -> None:
        eventually(lambda: self.loop.once(0.01) or look())

    def close(self) -> None:
        for guest in self.guests:
            guest.signal(signal.SIGKILL)
            self.until(lambda guest=guest: guest.status is not None)
            guest.close()
        self.client.close()
        self.loop.close()


def test_a_command_whose_client_has_gone_is_not_started() -> None:
    way = Way()
    way.client.close()
    way.until(lambda: way.stream.ended)
    way.there = True
    way.until(way.loop.idle)
    assert not way.guests
    way.close()


def test_what_comes_early_is_judged_like_what_comes_late() -> None:
    way = Way(tty=True)
    way.client.sendall(b'{"resize": [Infinity, 1]}\n')
    way.until(lambda: way.exec._early)
    way.there = True
    way.until(lambda: way.guests)
    way.client.settimeout(60.0)
    assert b"agent/bad-message" in way.client.recv(1 << 16)
    way.close()

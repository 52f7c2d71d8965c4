"""Real agents on real interpreters, with a control stream each, for the tests of this folder."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

SOURCE = Path(__file__).parents[2] / "src" / "argosy" / "agent"
DEADLINE = 60.0
T = TypeVar("T")


def eventually(look: Callable[[], T], what: str = "", seconds: float = DEADLINE) -> T:
    """What `look` gives as soon as it gives something true."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or look}"
        time.sleep(0.01)


def marked(word: str) -> dict[int, str]:
    """Living processes whose mark has this word: pid -> command."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            env = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            if any(e.startswith(b"ARGOSY_MARK=") and word.encode() in e for e in env):
                command = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ")
                found[int(entry)] = command.decode("utf-8", "replace")
        except OSError:
            continue
    return found


def exists(pid: int) -> bool:
    """Whether a process lives (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Wire:
    """One stream to an agent."""

    def __init__(self, home: Path, first: dict[str, Any]) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE)
        place = os.open(home, os.O_RDONLY)
        try:
            self.sock.connect(f"/proc/self/fd/{place}/agent.sock")
        except OSError:
            self.sock.close()
            raise
        finally:
            os.close(place)
        self.file = self.sock.makefile("rb")
        self.send(first)

    def send(self, message: dict[str, Any]) -> None:
        self.sock.sendall(json.dumps(message).encode() + b"\n")

    def line(self) -> dict[str, Any] | None:
        """The next line, None at the end."""
        text = self.file.readline()
        return json.loads(text) if text else None

    def rest(self) -> list[dict[str, Any]]:
        """All lines to the end."""
        return [json.loads(text) for text in self.file]

    def close(self) -> None:
        self.file.close()
        self.sock.close()


class Agent:
    """An agent under test, with a control stream and the newest word on every attempt."""

    def __init__(self, python: str, pyz: Path, home: Path, word: str) -> None:
        self.python, self.pyz, self.home, self.word = python, pyz, home, word
        self.life, self.count = 1, 0
        self.control: Wire | None = None
        self.attempts: dict[str, dict[str, Any]] = {}
        self.leases: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []
        self.history: dict[str, list[tuple[int, str | None]]] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self.fence, self.acks = 0.0, True
        """What the server wants, and whether it acknowledges heartbeats (those that are read)."""
        self.options: list[str] = []
        self.prefix: list[str] = []
        """Words before its command: whoever executes it as somebody else, somewhere else."""

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, *options: str) -> None:
        """Start the agent process and connect."""
        self.options = list(options) or self.options
        options_of_home = ["--home", str(self.home), *self.options]
        log = open(self.home / "agent.log", "ab")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*self.prefix, self.python, "-I", "-S", self.pyz, "run", *options_of_home],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={"PATH": os.defpath, "ARGOSY_MARK": f"agent@{self.home}", "LEAKS": "1"},
        )  # fmt: skip
        log.close()
        self.connect()

    def connect(self) -> None:
        """A new control stream."""
        if self.control is not None:
            self.control.close()
        self.control = eventually(self._try, "the agent answers")

    def _try(self) -> Wire | None:
        """A control stream that has given its first report.

        The socket of an agent that was killed may live a moment longer, in a child that it had just
        forked; such a stream ends at once.
        """
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError("agent ended: " + (self.home / "agent.log").read_text())
        wire = None
        try:
            first = {"op": "control", "protocol": 1, "server": "s", "life": self.life}
            if self.fence:
                first["fence"] = self.fence
            self.control = wire = Wire(self.home, first)
            while self.next()["type"] != "report":
                pass
            return wire
        except (OSError, EOFError):
            if wire is not None:
                wire.close()
            self.control = None
            return None

    def next(self) -> dict[str, Any]:
        """Take the next message of the control stream in."""
        assert self.control is not None
        message = self.control.line()
        if message is None:
            raise EOFError("the control stream ended")
        if "error" in message:
            raise EOFError(message["text"])
        self.messages.append(message)
        if message["type"] == "report":
            if message.get("full"):
                self.leases.clear()
            for name, lease in message["leases"].items():
                self.leases[name] = lease
                for seen in lease["attempts"]:
                    self.attempts[seen["attempt"]] = seen
                    step = (seen["stage"], seen["outcome"])
                    steps = self.history.setdefault(seen["attempt"], [])
                    if not steps or steps[-1] != step:
                        steps.append(step)
        elif message["type"] == "event":
            self.events.append(message)
        elif message["type"] == "heartbeat" and "n" in message and self.acks:
            self.control.send({"type": "ack", "n": message["n"]})
        return message

    def until(self, holds: Callable[[], Any], what: str = "") -> Any:
        """Read until it holds."""
        deadline = time.monotonic() + DEADLINE
        while True:
            found = holds()
            if found:
                return found
            assert time.monotonic() < deadline, f"{what}; attempts: {self.attempts}"
            self.next()

    def id(self, name: str) -> str:
        """A test's own name for an attempt, made unique."""
        return f"{self.word}-{name}"

    def claim(self, name: str) -> list[str]:
        """The lines of the claim of its program: exit status, boot id, wrapper, program."""
        return (self.home / "attempts" / self.id(name) / "claim").read_text().splitlines()

    def wrapper(self, name: str) -> int:
        """The pid of its wrapper."""
        return int(self.claim(name)[2].split()[0])

    def processes(self, name: str) -> list[int]:
        """Its wrapper and all that descends from it, as far as it lives."""
        todo, found = [self.wrapper(name)], []
        while todo:
            found.append(todo.pop())
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{found[-1]}/task").iterdir():
                    todo += [int(kid) for kid in (task / "children").read_text().split()]
        return found

    def exited(self, name: str) -> bool:
        """Whether the exit status of its program was written."""
        return bool(self.claim(name)[0].strip())

    def assign(
        self, *orders: tuple[str, int], lease: str = "L1", serial: list[int] | None = None,
        incarnation: int = 0, network: str = "host", book: dict[str, Any] | None = None,
        order: dict[str, Any] | None = None, num_nodes: int = 1,
        each: Sequence[dict[str, Any]] = (), spread: bool = False, **task: Any,
    ) -> None:  # fmt: skip
        """Assign attempts (name, goal) of task `a`, whose `run` and so on are the keywords.

        `order` is of all orders, `each` of one after the other.
        """
        assert self.control is not None
        self.count += 1
        whole = {
            "num_nodes": num_nodes, "env": {}, "secrets": {}, "setup": "", "run": "", "grace": 5,
            "strict": False, "ready": None, "balance": [], "workdir": "", "file_mounts": [],
            "gpus": 0, "log_cap_bytes": 0, **task,
        }  # fmt: skip
        entries = [
            {
                "attempt": self.id(name), "node": f"a-{index}", "task": "a", "index": index,
                "number": 1, "incarnation": incarnation, "goal": goal, "restart_reason": "",
                "grace": None, "gpu_indices": [], **(order or {}),
                **(each[index] if each else {}),
            }
            for index, (name, goal) in enumerate(orders)
        ]  # fmt: skip
        nodes = [
            {
                "task": "a", "index": e["index"], "node": e["node"], "name": e["node"] + ".g",
                "address": "", "attempt": e["attempt"], "live": True, "healthy": False,
            }
            for e in entries
        ]  # fmt: skip
        self.control.send(
            {
                "op": "assign", "lease": lease, "serial": serial or [self.life, self.count],
                "group": {
                    "id": self.word, "name": "g", "incarnation": incarnation, "job_id": 1,
                    "network": network, "spread": spread, "names": None, "user": "u",
                },
                "tasks": {"a": whole}, "orders": entries,
                "book": book or {"version": self.count, "nodes": nodes, "balanced": []},
            }
        )  # fmt: skip

    def run(self, name: str, run: str, **more: Any) -> str:
        """Start an attempt and see it run (or ended)."""
        self.assign((name, 30), run=run, **more)
        self.stage(name, 30)
        return self.id(name)

    def stage(self, name: str, stage: int) -> dict[str, Any]:
        """Wait until the attempt has reached a stage."""
        key = self.id(name)
        self.until(lambda: self.attempts.get(key, {}).get("stage", -1) >= stage, f"{name}>={stage}")
        return self.attempts[key]

    def end(self, name: str) -> tuple[str, int | None, int | None, str]:
        """Wait for the end: (outcome, exit code, signal, cause)."""
        seen = self.stage(name, 50)
        return seen["outcome"], seen["exit_code"], seen["signal"], seen["cause"]

    def stop(self, name: str, **more: Any) -> tuple[str, int | None, int | None, str]:
        """Order the end and wait for it."""
        self.assign((name, 50), **more)
        return self.end(name)

    def ask(self, **first: Any) -> list[dict[str, Any]]:
        """All lines that an op answers with."""
        wire = Wire(self.home, first)
        try:
            return wire.rest()
        finally:
            wire.close()

    def log(self, name: str, **more: Any) -> bytes:
        """What `logs` gives, as bytes."""
        lines = self.ask(op="logs", attempt=self.id(name), **more)
        return b"".join(base64.b64decode(line["data"]) for line in lines if "data" in line)

    def status(self) -> dict[str, Any]:
        return self.ask(op="status")[0]

    def kill(self) -> None:
        """kill -9 of the agent process alone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def close(self) -> None:
        """Release everything, see it gone, and end the agent."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.life += 1
            self.connect()
            assert self.control is not None
            for lease in list(self.leases):
                self.control.send({"op": "release", "lease": lease})
            self.until(lambda: not self.leases, "all released")
            self.control.close()
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(DEADLINE) == 0
        elif self.control is not None:
            self.control.close()
        eventually(lambda: not (self.home / "groups" / self.word / "net").exists(), "network gone")

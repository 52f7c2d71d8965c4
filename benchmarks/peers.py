"""The peers: bare Popen, supervisord, honcho, Ray Jobs, each starting the same programs.

The last three live in an environment of their own, `.bench/venv`, which `ensure` fills.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import xmlrpc.client
from pathlib import Path
from typing import Any, Final

from marks import DEADLINE, Marks, now
from measure import ROOT, say

VENV: Final = ROOT / ".bench" / "venv"
BIN: Final = VENV / "bin"
SMALL: Final = ("supervisor>=4.3,<5", "honcho>=2,<3", "setuptools<81")
RAY: Final = ("ray[default]>=2.50,<3",)


def ensure(*, ray: bool) -> None:
    """Make the peers' environment, as far as it lacks something."""
    if not (BIN / "pip").exists():
        say(f"making {VENV} ...")
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    wanted = []
    if not (BIN / "supervisord").exists() or not (BIN / "honcho").exists():
        wanted += SMALL
    if ray and not (BIN / "ray").exists():
        wanted += RAY
    if wanted:
        say(f"installing {', '.join(wanted)} into {VENV} ...")
        pip = [str(BIN / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *wanted], check=True)


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        port: int = door.getsockname()[1]
        return port


def end(process: subprocess.Popen[Any]) -> None:
    """SIGTERM to a process and its group, SIGKILL if it does not heed; reaped."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10.0)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def popen(folder: Path, names: tuple[str, ...], kind: type[Marks] = Marks) -> tuple[float, float]:
    """Bare Popen: seconds until all have listened, seconds until all have ended."""
    marks = kind(folder, names)
    began = now()
    programs = [
        subprocess.Popen(
            marks.argv(name), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        for name in names
    ]  # fmt: skip
    took = marks.last() - began
    began = now()
    for program in programs:
        program.terminate()
    for program in programs:
        program.wait()
    return took, now() - began


def honcho(folder: Path, names: tuple[str, ...]) -> float:
    """`honcho start`, a new one each time (it has no server): seconds until all have listened."""
    marks = Marks(folder, names)
    file = marks.folder / "Procfile"
    file.write_text("".join(f"{name}: exec {' '.join(marks.argv(name))}\n" for name in names))
    began = now()
    process = subprocess.Popen(
        [str(BIN / "honcho"), "-f", str(file), "start"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        return marks.last() - began
    finally:
        end(process)


class Supervisord:
    """A warm supervisord with one group of programs, spoken to as `supervisorctl` does."""

    def __init__(self, folder: Path, names: tuple[str, ...], kind: type[Marks] = Marks) -> None:
        self.folder, self.names = folder / f"supervisord-{kind.__name__}", names
        self.folder.mkdir()
        self.marks = kind(self.folder, names)
        port = free_port()
        (self.folder / "supervisord.conf").write_text(self._conf(port))
        self.process = subprocess.Popen(
            [str(BIN / "supervisord"), "-n", "-c", str(self.folder / "supervisord.conf")],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        self._proxy: Any = xmlrpc.client.ServerProxy(f"http://127.0.0.1:{port}/RPC2")
        self.api = self._proxy.supervisor
        deadline = now() + DEADLINE
        while not self._answers():
            if now() > deadline:
                raise TimeoutError("supervisord does not answer")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            return bool(self.api.getState())
        except OSError:
            return False

    def _conf(self, port: int) -> str:
        lines = [
            "[supervisord]", f"logfile={self.folder}/log", f"pidfile={self.folder}/pid",
            f"childlogdir={self.folder}", "nodaemon=true", "user=root" if os.getuid() == 0 else "",
            "minfds=2048", "[inet_http_server]", f"port=127.0.0.1:{port}",
            "[rpcinterface:supervisor]",
            "supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface",
            "[group:g]", "programs=" + ",".join(self.names),
        ]  # fmt: skip
        for name in self.names:
            lines += [
                f"[program:{name}]", "command=" + shlex.join(self.marks.argv(name)),
                "autostart=false", "autorestart=true", "startsecs=0", "startretries=100",
            ]  # fmt: skip
        return "\n".join(lines) + "\n"

    def start(self) -> float:
        """Start the group: seconds until all have listened."""
        for name in self.names:
            (self.marks.folder / name).unlink(missing_ok=True)
        began = now()
        self.api.startProcessGroup("g", False)
        return self.marks.last() - began

    def stop(self) -> float:
        """Stop the group: seconds until all have ended."""
        began = now()
        self.api.stopProcessGroup("g", True)
        return now() - began

    def once(self) -> float:
        """Start, and stop outside of the time."""
        took = self.start()
        self.stop()
        return took

    def seen_and_back(self) -> tuple[float, float]:
        """kill -9 of one program: seconds until the API says so, and until it listens again."""
        name = self.names[0]
        self.marks.read()
        pid = self.marks.pid(name)
        (self.marks.folder / name).unlink()
        began = now()
        os.kill(pid, signal.SIGKILL)
        while self.api.getProcessInfo(f"g:{name}")["pid"] == pid:
            time.sleep(0.001)
        seen = now() - began
        return seen, self.marks.read()[name] - began

    def close(self) -> None:
        """End it and its programs."""
        with contextlib.suppress(OSError, xmlrpc.client.Fault):
            self.api.stopAllProcesses(True)
        end(self.process)


class Ray:
    """A warm Ray head with its job server, spoken to over its REST interface."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "ray"
        self.folder.mkdir()
        self.port = free_port()
        say("starting Ray ...")
        words = [
            "start", "--head", "--block", f"--dashboard-port={self.port}", f"--port={free_port()}",
            f"--temp-dir={self.folder}", "--num-cpus=16", "--disable-usage-stats",
            "--include-dashboard=true", "--object-store-memory=80000000",
        ]  # fmt: skip
        self.process = subprocess.Popen(
            [str(BIN / "ray"), *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=_keep_orphans,
        )  # fmt: skip
        deadline = now() + 2 * DEADLINE
        while not self._answers():
            if now() > deadline or self.process.poll() is not None:
                self.close()
                raise TimeoutError("Ray's job server does not answer")
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            self._call("GET", "/api/jobs/")
        except OSError:
            return False
        return True

    def _call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"},
            method=method,
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return json.loads(answer.read() or b"null")

    def once(self, names: tuple[str, ...]) -> float:
        """One job for each program: seconds until all have listened."""
        marks = Marks(self.folder, names)
        began = now()
        jobs = []
        for name in names:
            body = {"entrypoint": "exec " + " ".join(marks.argv(name))}
            jobs.append(self._call("POST", "/api/jobs/", body)["submission_id"])
        took = marks.last() - began
        pids = [marks.pid(name) for name in names]
        for job in jobs:
            self._call("POST", f"/api/jobs/{job}/stop", {})
        for pid in pids:
            _await_end(pid)
        return took

    def killed_seen(self) -> float:
        """kill -9 of a job's program: seconds until its job is shown as failed."""
        marks = Marks(self.folder, ("one",))
        body = {"entrypoint": "exec " + " ".join(marks.argv("one"))}
        job = self._call("POST", "/api/jobs/", body)["submission_id"]
        marks.read()
        pid = marks.pid("one")
        while self._call("GET", f"/api/jobs/{job}")["status"] != "RUNNING":
            time.sleep(0.01)
        began = now()
        os.kill(pid, signal.SIGKILL)
        while self._call("GET", f"/api/jobs/{job}")["status"] == "RUNNING":
            time.sleep(0.005)
        return now() - began

    def processes(self) -> list[int]:
        """All of its processes."""
        return [self.process.pid, *_descendants(self.process.pid)]

    def close(self) -> None:
        """End what it started, and nothing else (`ray stop` ends every Ray of the machine)."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = now() + 10.0
            while (pids := _descendants(self.process.pid)) and now() < deadline:
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(0.2)
        end(self.process)


def _keep_orphans() -> None:
    """Let what this process starts stay below it, whatever becomes of those in between."""
    set_child_subreaper = 36
    ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


def _descendants(pid: int) -> list[int]:
    """The living processes below one."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{name}/stat").read_text()
                fields = stat.rpartition(")")[2].split()
                if fields[0] != "Z":
                    below.setdefault(int(fields[1]), []).append(int(name))
    found = list(below.get(pid, []))
    for one in found:
        found += below.get(one, [])
    return found


def _await_end(pid: int) -> None:
    deadline = now() + DEADLINE
    while os.path.exists(f"/proc/{pid}") and now() < deadline:
        time.sleep(0.01)

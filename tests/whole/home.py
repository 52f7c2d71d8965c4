"""A home with a real server, driven through the `argosy` command as a person would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts import leftovers

ROOT = Path(__file__).resolve().parents[2]
ARGOSY = Path(sys.executable).with_name("argosy")
COMMAND_SECONDS = 60.0  # for one that does not follow a group
GROUP_SECONDS = 240.0  # for a group of the examples, on two slow cores
LOOK = 0.1  # seconds between two looks at a condition


@dataclass
class Home:
    """A folder for `$ARGOSY_HOME`; `network` is the mode to ask for, "" for none."""

    path: Path
    network: str = ""
    _open: list[subprocess.Popen[str]] = field(default_factory=list)

    def argosy(self, *words: str, seconds: float = COMMAND_SECONDS) -> Ended:
        """Run a command to its end."""
        return self.start(*words).ended(seconds)

    def launch(self, file: str, *words: str) -> Running:
        """Begin to launch and follow a file of the repository."""
        asked = ["launch", str(ROOT / file), "-y", *words]
        if self.network:
            asked += ["--network", self.network]
        return self.start(*asked)

    def start(self, *words: str) -> Running:
        """Begin a command; what it writes goes to files."""
        number = len(self._open)
        out, err = self.path.parent / f"out-{number}", self.path.parent / f"err-{number}"
        with out.open("w") as to_out, err.open("w") as to_err:
            process = subprocess.Popen(
                [str(ARGOSY), *words],
                env={**os.environ, "ARGOSY_HOME": str(self.path), "NO_COLOR": "1"},
                cwd=self.path.parent,
                stdin=subprocess.DEVNULL,
                stdout=to_out,
                stderr=to_err,
                text=True,
            )
        self._open.append(process)
        return Running(words, process, out, err)

    def group(self, name: str) -> dict[str, Any]:
        """The newest group of that name, as `status -o json` shows it."""
        shown: dict[str, Any] = json.loads(self.argosy("status", name, "-o", "json").good().out)
        return shown

    def nodes(self, name: str) -> dict[str, dict[str, Any]]:
        """Its nodes by name."""
        tasks = self.group(name)["tasks"]
        return {node["node"]: node for task in tasks for node in task["nodes"]}

    def shared(self, name: str) -> Path:
        """The group's shared folder on this machine."""
        return self.path / "infra/local/machine/shared/groups" / self.group(name)["id"] / "shared"

    def close(self) -> list[str]:
        """End groups, server and agents; what is left of them, and why."""
        for process in self._open:
            if process.poll() is None:
                process.kill()
                process.wait()
        troubles = []
        try:
            if (self.path / "server.json").exists():
                for group in json.loads(self.argosy("status", "-o", "json").out or "[]"):
                    self.argosy("cancel", group["name"], "--now", "--wait")
        except (AssertionError, ValueError) as error:
            troubles.append(str(error))
        return troubles + leftovers.end_home(self.path)


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str

    def good(self) -> Ended:
        """Itself, when it exited 0."""
        assert self.code == 0, self.told()
        return self

    def told(self) -> str:
        """Everything, for a failed test."""
        return f"`argosy {' '.join(self.words)}` exited {self.code}\n{self.out}\n{self.err}"


@dataclass(frozen=True)
class Running:
    """A command that may still run."""

    words: tuple[str, ...]
    process: subprocess.Popen[str]
    out: Path
    err: Path

    def ended(self, seconds: float = GROUP_SECONDS) -> Ended:
        """Wait for its end; a failure tells what it had written."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(
                f"after {seconds:g} s still running: {self.so_far().told()}"
            ) from None
        return self.so_far()

    def so_far(self) -> Ended:
        """What it has written; the code is -1 while it runs."""
        code = self.process.poll()
        texts = (file.read_text(errors="replace") for file in (self.out, self.err))
        return Ended(self.words, -1 if code is None else code, *texts)

    def until(self, what: str, holds: Callable[[], object], seconds: float = GROUP_SECONDS) -> None:
        """Wait for a condition while it runs."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert self.process.poll() is None, f"ended before: {what}\n{self.so_far().told()}"
            assert time.monotonic() < deadline, f"not in time: {what}\n{self.so_far().told()}"
            time.sleep(LOOK)

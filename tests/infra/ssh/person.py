"""Somebody on the rig's laptop who types commands."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from tests.infra.ssh.rig import SSHRIG, Rig
from tests.infra.ssh.ssh_bench import configure

ARGOSY = Path(sys.executable).with_name("argosy")
SECONDS = 120.0


class Person:
    """Somebody on the laptop with a home there."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig, self.folder = rig, folder
        configure(folder / "home")

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Begin a command."""
        return subprocess.Popen(
            [str(SSHRIG), "laptop", "--", str(ARGOSY), *words],
            env={**self.rig.environment, "ARGOSY_HOME": str(self.folder / "home"), "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def argosy(self, *words: str) -> tuple[int, str, str]:
        """Run a command to its end: exit code, output, errors."""
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{words} goes on: {process.communicate()}") from None
        return process.returncode, out, err

    def group(self, name: str) -> dict:
        """The group as `status` shows it."""
        return json.loads(self.argosy("status", name, "-o", "json")[1])

    def launch(self, text: str, *words: str) -> tuple[int, str, str]:
        """Launch a file on the pool."""
        file = self.folder / "group.yaml"
        file.write_text(text)
        return self.argosy("launch", str(file), "-y", "--infra", "ssh/lab", *words)


def until(holds, what: str) -> None:
    """Wait for a condition; fails with `what`."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)

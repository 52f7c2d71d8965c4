"""Somebody on the rig's laptop who types commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.infra.ssh.rig import SSHRIG, Rig
from tests.infra.ssh.ssh_bench import HOSTS, configure, end_agents

ARGOSY = Path(sys.executable).with_name("argosy")
SECONDS = 120.0


class Person:
    """Somebody on the laptop with a home there."""

    def __init__(self, rig: Rig, folder: Path, hosts: Sequence[str] = HOSTS) -> None:
        self.rig, self.folder, self.hosts = rig, folder, tuple(hosts)
        configure(folder / "home", f"ssh: {{pools: {{lab: {{hosts: [{', '.join(hosts)}]}}}}}}\n")

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Begin a command."""
        return subprocess.Popen(
            [str(SSHRIG), "laptop", "--", str(ARGOSY), *words],
            env={**self.rig.environment, "ARGOSY_HOME": str(self.folder / "home"), "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def argosy(self, *words: str, seconds: float = SECONDS) -> tuple[int, str, str]:
        """Run a command to its end: exit code, output, errors."""
        return self.finish(self.start(*words), seconds)

    def finish(
        self, process: subprocess.Popen[str], seconds: float = SECONDS
    ) -> tuple[int, str, str]:
        """Wait for the end of a command."""
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{process.args} goes on: {process.communicate()}") from None
        return process.returncode, out, err

    def group(self, name: str) -> dict:
        """The group as `status` shows it."""
        code, out, err = self.argosy("status", name, "-o", "json")
        assert code == 0, out + err
        return json.loads(out)

    def nodes(self, name: str) -> dict[str, dict]:
        """Its nodes by name."""
        return {node["node"]: node for task in self.group(name)["tasks"] for node in task["nodes"]}

    def unreachable(self) -> list[str]:
        """The hosts of the pool that do not answer, as `infra check` has it."""
        said = self.argosy("infra", "check", "ssh/lab")[1]
        return sorted(set(re.findall(r"(\S+) +unreachable", said)))

    def launch(self, text: str, *words: str, seconds: float = SECONDS) -> tuple[int, str, str]:
        """Launch a file on the pool."""
        file = self.folder / "group.yaml"
        file.write_text(text)
        words = ("launch", str(file), "-y", "--infra", "ssh/lab", *words)
        return self.argosy(*words, seconds=seconds)


def until(holds, what: str, alive: subprocess.Popen[str] | None = None) -> None:
    """Wait for a condition; fails with `what`, and when `alive` has ended before."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        if alive is not None and alive.poll() is not None:
            raise AssertionError(f"{what}: {alive.communicate()}")
        time.sleep(0.05)


def at_the_end(person: Person) -> Iterator[Person]:
    """For a fixture: afterwards the server has ended, and nothing is left on the hosts."""
    try:
        yield person
    finally:
        for group in json.loads(person.argosy("status", "-o", "json")[1] or "[]"):
            person.argosy("cancel", group["name"], "--now", "--wait")
        person.argosy("server", "stop")
        server = person.folder / "home" / "server.json"
        until(lambda: not server.exists(), "the server goes on")
        end_agents(person.rig, person.hosts)

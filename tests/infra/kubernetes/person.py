"""Somebody who types commands, and whose cluster is the rig's."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from argosy.sdk.client import Client
from scripts import leftovers
from tests.infra.kubernetes.rig import IMAGE, Namespace, until

ARGOSY = Path(sys.executable).with_name("argosy")
INFRA = "kubernetes/rig"
SECONDS = 180.0
TOLERATE = 10  # seconds that a node may be silent, after the cluster has noticed


def config(space: Namespace, **more: object) -> dict[str, Any]:
    """The part of config.yaml that makes `kubernetes/rig`."""
    context = {
        "context": "kuberig",
        "kubeconfig": str(space.kubeconfig),
        "namespace": space.name,
        "image": IMAGE,
        "tolerate_seconds": TOLERATE,
        **more,
    }
    return {"kubernetes": {"contexts": {"rig": context}}}


class Person:
    """Somebody with a home."""

    def __init__(self, space: Namespace, home: Path, **more: object) -> None:
        self.space, self.home = space, home
        self._files = 0
        self.client = Client(home, start=False)
        home.mkdir(exist_ok=True)
        self.configure(**more)

    def configure(self, **more: object) -> None:
        """Write config.yaml, `more` in the context."""
        (self.home / "config.yaml").write_text(yaml.safe_dump(config(self.space, **more)))

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Begin a command."""
        environment = {**os.environ, "ARGOSY_HOME": str(self.home), "NO_COLOR": "1"}
        environment.pop("KUBECONFIG", None)
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE} | options
        return subprocess.Popen(
            [str(ARGOSY), *words], env=environment, stderr=subprocess.PIPE, text=True, **streams
        )

    def argosy(self, *words: str, seconds: float = SECONDS) -> tuple[int, str, str]:
        """Run a command to its end: exit code, output, errors."""
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{words} goes on: {process.communicate()}") from None
        return process.returncode, out, err

    def did(self, *words: str) -> str:
        """What a command printed that must succeed."""
        code, out, err = self.argosy(*words)
        assert code == 0, f"{words}: {code}\n{out}{err}"
        return out

    def launch(self, text: str, *words: str) -> tuple[int, str, str]:
        """Launch a file on the cluster, and follow it."""
        return self.argosy(*self._launch(text), *words)

    def begin(self, text: str) -> subprocess.Popen[str]:
        """Begin to launch in the background."""
        return self.start(*self._launch(text), "-d")

    def _launch(self, text: str) -> tuple[str, ...]:
        self._files += 1
        file = self.home.parent / f"{self.home.name}-{self._files}.yaml"
        file.write_text(text)
        return ("launch", str(file), "-y", "--infra", INFRA)

    def launched(self, text: str, *words: str) -> None:
        """Launch in the background."""
        code, out, err = self.launch(text, "-d", *words)
        assert code == 0, out + err

    def group(self, name: str) -> dict[str, Any]:
        """The group as `status` shows it: asked without a command, since it is asked often."""
        return dataclasses.asdict(self.client.group(name))

    def phase(self, name: str, *wanted: str) -> dict[str, Any]:
        """The group, once it is in one of these phases."""
        until(
            lambda: self.group(name)["phase"] in wanted,
            lambda: f"{self.group(name)['phase']}, not {wanted}: {self.explained(name)}",
        )
        return self.group(name)

    def nodes(self, name: str) -> dict[str, dict[str, Any]]:
        """The group's nodes by name."""
        return {one["node"]: one for task in self.group(name)["tasks"] for one in task["nodes"]}

    def explained(self, name: str) -> str:
        """What `explain` says, all of it."""
        return json.dumps(dataclasses.asdict(self.client.explain(name)), indent=1)

    def logs(self, name: str, *words: str) -> list[str]:
        """The lines of its log."""
        return self.did("logs", name, *words).splitlines()


@contextmanager
def a_person(space: Namespace, home: Path, **more: object) -> Iterator[Person]:
    """Afterwards their groups have ended, their server too, and nothing of the home runs."""
    person = Person(space, home, **more)
    try:
        yield person
    finally:
        for group in json.loads(person.argosy("status", "-o", "json")[1] or "[]"):
            person.argosy("cancel", group["name"], "--now", "--wait")
        person.argosy("server", "stop")
        left = leftovers.end_home(home)
        assert not left, left

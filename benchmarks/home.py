"""A home of our own for a benchmark: a server, groups in it, and an end that leaves nothing."""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from marks import DEADLINE, Marks, now
from measure import ROOT

sys.path.insert(0, str(ROOT / "src"))

from argosy.errors import ArgosyError
from argosy.sdk.client import Client
from argosy.sdk.launch import launch_body

# Not /tmp, and removed when all is measured: for minutes ext4 passes over inodes that were freed,
# one by one (`recently_deleted` in fs/ext4/ialloc.c), so a new file costs 0.7 ms instead of 0.02
# where thousands were just removed.
PLACE: Final = os.environ.get("TMPDIR", "/var/tmp")
ARGOSY: Final = (str(ROOT / ".venv" / "bin" / "argosy"),)


def _leftovers() -> Any:
    spec = importlib.util.spec_from_file_location("leftovers", ROOT / "scripts" / "leftovers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Home:
    """A fresh home in a temporary folder, with a client; ends everything of it on leaving."""

    def __init__(self, config: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="argosy-bench-", dir=PLACE))
        self.path = self.folder / "home"
        self.path.mkdir()
        if config:
            (self.path / "config.yaml").write_text(config)
        self.client = Client(self.path)
        self.env = dict(os.environ, ARGOSY_HOME=str(self.path))

    def __enter__(self) -> Home:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def file(self, name: str, text: str) -> Path:
        """A group file in the folder."""
        path = self.folder / f"{name}.yaml"
        path.write_text(text)
        return path

    def launch(self, file: Path, **options: Any) -> str:
        """Submit it; its id."""
        return self.client.launch(launch_body(file, **options)).id

    def end(self, group: str) -> float:
        """Cancel without grace and wait until it has ended; seconds."""
        began = now()
        self.client.cancel(group, now=True)
        self.client.wait(group)
        return now() - began

    def running(self, group: str) -> None:
        """Wait until all its nodes run."""
        until(lambda: self.client.group(group).phase == "RUNNING", f"{group} runs")

    def agents(self) -> list[int]:
        """The pids of its agents."""
        files = self.path.glob("infra/local/**/agent.json")
        return [int(json.loads(file.read_text())["pid"]) for file in files]

    def close(self) -> None:
        """End groups, server and agents; remove the folder. Raises when something is left."""
        try:
            client = Client(self.path, start=False)
            for row in client.groups():
                client.cancel(row.id, now=True)
            for row in client.groups():
                client.wait(row.id, timeout=30.0)
        except ArgosyError:
            pass  # no server
        left = _leftovers().end_home(self.path)
        if left:
            raise RuntimeError("left behind: " + "; ".join(left))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)


def until(true: Callable[[], object], what: str, step: float = 0.01) -> None:
    """Wait until something is true."""
    deadline = now() + DEADLINE
    while not true():
        if now() > deadline:
            raise TimeoutError(f"not within {DEADLINE:g} s: {what}")
        time.sleep(step)


def group_text(name: str, marks: Marks, extra: str = "") -> str:
    """A group of one task for each marker; `extra` is added to each task."""
    lines = [f"name: {name}", "execution: parallel"]
    for one in marks.names:
        lines += [
            "---",
            f"name: {one}",
            f"run: {json.dumps(marks.script(one))}",
            *extra.splitlines(),
        ]
    return "\n".join(lines) + "\n"

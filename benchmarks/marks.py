"""Markers of programs: a folder for each launch, and waiting until all have listened."""

from __future__ import annotations

import itertools
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from measure import ROOT

FIVE: Final = ("trainer", "rollout", "reward", "replay", "data")
SERVICE: Final = ROOT / "benchmarks" / "service.py"
# The system's Python starts the programs, whoever measures.
PYTHON: Final = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
DEADLINE: Final = 60.0  # seconds for anything that is to come true
STEP: Final = 0.002
_numbers = itertools.count(1)


def now() -> float:
    """The clock of the markers."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class Marks:
    """A new folder in which programs say that they listen."""

    def __init__(self, parent: Path, names: Sequence[str] = FIVE) -> None:
        self.folder = parent / f"marks-{next(_numbers)}"
        self.names = names
        self.folder.mkdir(parents=True)

    def argv(self, name: str) -> list[str]:
        """The command line of a program."""
        return [PYTHON, str(SERVICE), name, str(self.folder)]

    def last(self) -> float:
        """The instant at which the last one listened; waits until all do."""
        return max(at for at, _ in self.read().values())

    def read(self) -> dict[str, tuple[float, int]]:
        """Instant and pid of each program; waits until all are there."""
        deadline = now() + DEADLINE
        for name in self.names:
            while not (self.folder / name).exists():
                if now() > deadline:
                    raise TimeoutError(f"{name} did not listen within {DEADLINE:g} s")
                time.sleep(STEP)
        found = {}
        for name in self.names:
            at, pid = (self.folder / name).read_text().split()
            found[name] = float(at), int(pid)
        return found

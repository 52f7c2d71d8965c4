"""Markers of programs: a folder for each launch, and waiting until all have listened."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
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

    def script(self, name: str) -> str:
        """The same as a line of shell."""
        return "exec " + shlex.join(self.argv(name))

    def last(self) -> float:
        """The instant at which the last one listened; waits until all do."""
        return max(self.read().values())

    def read(self) -> dict[str, float]:
        """The instant at which each program listened; waits until all do."""
        deadline = now() + DEADLINE
        for name in self.names:
            while not (self.folder / name).exists():
                if now() > deadline:
                    raise TimeoutError(f"{name} did not listen within {DEADLINE:g} s")
                time.sleep(STEP)
        return {name: self._at(self.folder / name) for name in self.names}

    def _at(self, marker: Path) -> float:
        return float(marker.read_text())

    def pid(self, name: str) -> int:
        """The pid of a program as this process sees it; its own may be of another namespace."""
        words = [os.fsencode(word) for word in (name, self.folder)]
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    line = Path(f"/proc/{entry}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                    if line[-2:] == words:
                        return int(entry)
        raise LookupError(f"{name} does not run")


class ShellMarks(Marks):
    """Markers of programs that take next to nothing to start: a shell that makes its marker and
    becomes `sleep`. What a launch takes is then what the launching takes.
    """

    def argv(self, name: str) -> list[str]:
        """The command line of a program."""
        return ["/bin/sh", "-c", self.script(name)]

    def script(self, name: str) -> str:
        """What its shell does."""
        return f">{shlex.quote(str(self.folder / name))}; exec sleep 86400"

    def _at(self, marker: Path) -> float:
        """The time of the file, which lags behind by up to a tick of the kernel (4 ms)."""
        return now() - (time.time() - marker.stat().st_mtime)

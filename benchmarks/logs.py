"""How fast one program's lines get to the disk, and to a client that follows.

    python benchmarks/logs.py [--quick]

Beside ours: the same program with a plain file as its output, through a pipe that asyncio copies in
chunks, and through a pipe that is read line by line and prefixed. Lines have 100 bytes.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from argosy.sdk.client import LogQuery
from home import Home, until
from marks import PYTHON, now
from measure import ROOT, Budget, Options, Ratio, Row, alone, interleaved, load

WRITER = ROOT / "benchmarks" / "writer.py"
LINES_DISK = 655 * 2000
LINES_FOLLOWED = 655 * 600
FILE = "plain file"
BUDGET_DISK = Budget(
    ">= 3 M lines/s; <= 2x plain file", least=3.0, ratio=Ratio(FILE, 2.0, margin=2.0)
)
BUDGET_FOLLOWED = Budget(
    ">= 0.3 M lines/s; <= 18x asyncio chunks", least=0.3, ratio=Ratio("asyncio chunks", 18.0)
)


class Writing:
    """The contestants; each answers million lines a second."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.told = home.folder / "took"

    def _argv(self, lines: int) -> list[str]:
        self.told.unlink(missing_ok=True)
        return [PYTHON, str(WRITER), str(lines), str(self.told)]

    def _rate(self, lines: int) -> float:
        until(self.told.exists, "the program has written all")
        return lines / float(self.told.read_text()) / 1e6

    def ours(self) -> float:
        """A task of a group writes its log."""
        command = " ".join(self._argv(LINES_DISK))
        group = self.home.launch(self.home.file("log", f"name: log\nrun: exec {command}\n"))
        rate = self._rate(LINES_DISK)
        self.home.client.wait(group)
        self.home.client.remove(group)
        return rate

    def followed(self) -> float:
        """A client follows the log from its first byte."""
        command = " ".join(self._argv(LINES_FOLLOWED))
        group = self.home.launch(self.home.file("log", f"name: log\nrun: exec {command}\n"))
        count, began = 0, 0.0
        for chunk in self.home.client.logs(group, LogQuery(follow=True)):
            began = began or now()
            count += len(chunk.data)
        took = now() - began
        if count != 100 * LINES_FOLLOWED:
            raise RuntimeError(f"{count} bytes came, of {100 * LINES_FOLLOWED}")
        self.home.client.wait(group)
        self.home.client.remove(group)
        return LINES_FOLLOWED / took / 1e6

    def file(self) -> float:
        """A plain file, nobody in between."""
        path = self.home.folder / "plain"
        with path.open("wb") as out:
            subprocess.run(self._argv(LINES_DISK), stdout=out, check=True)
        path.unlink()
        return self._rate(LINES_DISK)

    def chunks(self) -> float:
        """A pipe that asyncio copies into a file, 64 KiB at a time."""
        return self._piped(_copy_chunks)

    def lines(self) -> float:
        """A pipe that is read by the line; each gets a prefix."""
        return self._piped(_copy_lines)

    def _piped(self, copy: Callable[[list[str], Path], None]) -> float:
        path = self.home.folder / "copied"
        began = now()
        copy(self._argv(LINES_FOLLOWED), path)
        took = now() - began
        path.unlink()
        return LINES_FOLLOWED / took / 1e6


def _copy_chunks(argv: list[str], path: Path) -> None:
    async def work() -> None:
        process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE)
        assert process.stdout is not None
        with path.open("wb") as out:
            while data := await process.stdout.read(1 << 16):
                out.write(data)
        await process.wait()

    asyncio.run(work())


def _copy_lines(argv: list[str], path: Path) -> None:
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process, path.open("wb") as out:
        assert process.stdout is not None
        for line in process.stdout:
            out.write(b"task | " + line)


def log_path(options: Options) -> Iterator[Row]:
    """To the disk, and to a follower."""
    with Home() as home:
        writing = Writing(home)
        writing.ours()
        time.sleep(0.5)
        found = interleaved(
            options.rounds(8),
            {
                "disk": writing.ours,
                "follower": writing.followed,
                FILE: writing.file,
                "asyncio chunks": writing.chunks,
                "readline + prefix": writing.lines,
            },
        )
    disk, follower = found.pop("disk"), found.pop("follower")
    yield Row("log path: to the disk", disk, "M lines/s", BUDGET_DISK, found, load())
    yield Row("log path: to a follower", follower, "M lines/s", BUDGET_FOLLOWED, found, load())


LINES = (log_path,)

if __name__ == "__main__":
    alone(LINES, __doc__)

"""What the tests of faults share: files, groups that run, looks at /proc, and waiting."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

from tests.whole.home import Ended, Home, Running

T = TypeVar("T")
SECONDS = 60.0  # for anything that is to come true on two busy cores
LOOK = 0.03
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")


def until(what: str, holds: Callable[[], T], seconds: float = SECONDS) -> T:
    """Wait until something is so; what it was then."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}; last: {found!r}"
        time.sleep(LOOK)
    return found


def write(home: Home, name: str, text: str | bytes) -> str:
    """A group file beside the home; its path."""
    file = home.path.parent / f"{name}.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(file)


def task(name: str, run: str, *more: str) -> str:
    """A task document."""
    lines = "".join(f"  {line}\n" for line in run.strip("\n").splitlines())
    extra = "".join(f"{line}\n" for line in more)
    return f"---\nname: {name}\n{extra}run: |\n{lines}"


def group(name: str, *tasks: str, header: str = "") -> str:
    """A job group's text."""
    return f"name: {name}\nexecution: parallel\n{header}" + "".join(tasks)


def follow(home: Home, name: str, text: str, *words: str) -> Running:
    """Launch a text and follow it."""
    return home.launch(write(home, name, text), *words)


def detach(home: Home, name: str, text: str, *words: str) -> None:
    """Launch a text, and return when it is accepted."""
    follow(home, name, text, "-d", *words).ended().good()


def running(home: Home, name: str, text: str, *words: str) -> None:
    """Launch a text, and return when all of its nodes run."""
    detach(home, name, text, *words)
    until(f"{name} runs", lambda: stages(home, name) == {"RUNNING"})


def stages(home: Home, name: str) -> set[str]:
    """The stages of a group's nodes."""
    return {node["stage"] for node in home.nodes(name).values()}


def node(home: Home, group: str, name: str) -> dict[str, Any]:
    """One node of a group."""
    return home.nodes(group)[name]


def ended(home: Home, name: str, seconds: float = SECONDS) -> dict[str, Any]:
    """The group, once it has ended."""

    def look() -> dict[str, Any] | None:
        found = home.group(name)
        return found if found["phase"] in FINAL else None

    found = until(f"{name} has ended", look, seconds)
    assert found is not None
    return found


def events(home: Home, name: str) -> list[dict[str, Any]]:
    """What happened to a group."""
    said = home.argosy("events", name, "-o", "jsonl").good()
    return [json.loads(line) for line in said.out.splitlines()]


def refused(said: Ended, code: int, *words: str) -> None:
    """The command refused: its exit code, and a message with all of the words and a hint."""
    assert said.code == code, said.told()
    assert "error: " in said.err, said.told()
    assert "hint: " in said.err, said.told()
    for word in words:
        assert word in said.err, f"{word!r} is not in: {said.told()}"
    assert "Traceback" not in said.err, said.told()


def server_pid(home: Home) -> int:
    """The pid of the home's server."""
    return int(json.loads((home.path / "server.json").read_text())["pid"])


def agent_pids(home: Home) -> list[int]:
    """The pids of the home's agents."""
    files = sorted(home.path.glob("infra/local/**/agent.json"))
    return [int(json.loads(file.read_text())["pid"]) for file in files]


def nap(home: Home, number: int = 0) -> str:
    """A number of seconds, longer than any test, for one `sleep` of this home only."""
    return f"{100_000 + crc32(str(home.path).encode()) % 800_000}.{number}"


def sleeper(home: Home, number: int = 0) -> int:
    """The pid of the process that sleeps `nap(home, number)`, once there is exactly one."""
    word = nap(home, number)
    return until(f"one sleeps {word}", lambda: len(with_word(word)) == 1 and with_word(word))[0]


def lives(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    return False


def parent(pid: int) -> int:
    """The parent of a process; 0 when it is gone."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    return 0


def with_word(word: str) -> list[int]:
    """The processes that have a word in their command line."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with suppress(OSError):
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                if word.encode() in words and lives(int(name)):
                    found.append(int(name))
    return found

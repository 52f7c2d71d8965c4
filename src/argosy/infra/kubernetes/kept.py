"""Logs of pods that are gone: fetched when a lease is released, before its pod is deleted.

A pod takes its disk with it. So what `agent keep` writes is put into a folder here, one for each
group, that is an agent's home, and whoever asks for a pod afterwards is given a stream to an agent
of this machine that lives there: reading, following, searching and forgetting logs work as if the
pod were there.

    $ARGOSY_HOME/infra/kubernetes/CONTEXT/kept/GROUP/{journal,attempts/...}
                                               .../pods/POD     its logs are here
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from argosy.errors import InfraError
from argosy.infra.api import Stream
from argosy.infra.kubernetes.marks import group_of_pod, pod_name
from argosy.model.ids import LeaseId

CHUNK: Final = 1 << 20
NAMES: Final = ("output", "output.index")
FILE_MAX: Final = 128 << 20  # bytes of one file: more than `agent keep` sends
PLACE_MAX: Final = 1 << 43  # where in its file it may begin
NO_LOG: Final = (
    ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError,
)  # fmt: skip
OF_A_RECORD: Final = {
    "stage": int, "at": float, "outcome": str, "cause": str, "text": str, "exit_code": int,
    "signal": int,
}  # fmt: skip
OF_AN_ORDER: Final = {
    "node": str, "task": str, "index": int, "number": int, "incarnation": int, "goal": int,
}  # fmt: skip

Reader = Callable[[Path], Awaitable[Stream]]  # a stream to an agent in that folder


class Source(Protocol):
    """Where the bytes come from."""

    async def read(self, most: int = 65536) -> bytes:
        """Up to so many; b"" at the end."""

    async def readline(self) -> bytes:
        """One line."""


class Kept:
    """The kept logs of one context."""

    def __init__(self, folder: Path, reader: Reader) -> None:
        self._folder, self._reader = folder, reader

    def sweep(self) -> None:
        """Remove the folders of groups whose logs were forgotten, and what an earlier server has
        not received in full. Blocks.
        """
        for home in self._folder.iterdir() if self._folder.is_dir() else ():
            in_use = (home / "agent.sock").exists() or any((home / "attempts").glob("*"))
            if home.name.startswith(".") or not in_use:
                shutil.rmtree(home, ignore_errors=True)

    def has(self, pod: str) -> bool:
        """Whether the logs of that pod are here."""
        return (self._home(pod) / "pods" / pod).exists()

    async def attach(self, pod: str) -> Stream:
        """A stream to an agent that has the logs of that pod."""
        return await self._reader(self._home(pod))

    async def take(self, pod: str, source: Source) -> None:
        """Put what `agent keep` writes into its place, all of it or nothing. Raises InfraError,
        OSError.

        What it says is the word of a stranger: programs of the pod may have written it.
        """
        part = self._folder / f".{pod}.part"
        await asyncio.to_thread(_begin, part)
        try:
            try:
                await _receive(part, pod, source)
            except NO_LOG as error:
                raise _strange(f"says what is no log: {error}") from error
            await asyncio.to_thread(_end, part, self._home(pod), pod)
        finally:
            await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)

    def _home(self, pod: str) -> Path:
        return self._folder / (group_of_pod(pod) or "strange")


async def _receive(part: Path, pod: str, source: Source) -> None:
    records: list[str] = []
    folders: set[str] = set()
    while True:
        line = await source.readline()
        message: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {}
        if "end" in message:
            break
        if "record" in message:
            folders.add(str(message["folder"]))
            records.append(json.dumps(["attempt", message["attempt"], _record(message, pod)]))
        elif not message:
            raise InfraError("the pod ended before its logs were here", code="kubernetes/logs-cut")
        elif message["folder"] in folders:
            await _receive_file(part, message, source)
        else:
            raise _strange(f"has a log of nobody: {message['folder']}")
    text = "".join(line + "\n" for line in records)
    await asyncio.to_thread((part / "journal").write_text, text, "ascii")


def _record(message: dict[str, Any], pod: str) -> dict[str, Any]:
    """Of a record what is known, and of the right kind: no path, no order to start something."""
    said, lease = message["record"], str(message["record"]["lease"])
    if pod_name(LeaseId(lease)) != pod or not isinstance(message["attempt"], str):
        raise _strange(f"has attempts of another lease: {lease}")
    order = {**_known(said["order"], OF_AN_ORDER), "attempt": message["attempt"]}
    who = {"lease": lease, "group": group_of_pod(pod), "gone": True}
    return {**_known(said, OF_A_RECORD), **who, "order": order}


def _known(said: dict[str, Any], kinds: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    found = {name: said[name] for name in kinds if said.get(name) is not None}
    return {name: kinds[name](value) for name, value in found.items()}


async def _receive_file(part: Path, message: dict[str, Any], source: Source) -> None:
    folder, name = str(message["folder"]), str(message["name"])
    if not folder or "/" in folder or folder.startswith(".") or name not in NAMES:
        raise _strange(f"wants to write {folder}/{name}")
    place, left = int(message["at"]), int(message["size"])
    if not (0 <= place <= PLACE_MAX and 0 <= left <= FILE_MAX):
        raise _strange(f"wants to write {left} bytes at {place} of {folder}/{name}")
    path = part / "attempts" / folder
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(path / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while left:
            data = await source.read(min(CHUNK, left))
            if not data:
                raise InfraError(
                    "the pod ended before its logs were here", code="kubernetes/logs-cut"
                )
            await asyncio.to_thread(os.pwrite, fd, data, place)
            place, left = place + len(data), left - len(data)
    finally:
        os.close(fd)


def _strange(what: str) -> InfraError:
    return InfraError(f"the pod {what}", code="kubernetes/strange-log")


def _begin(part: Path) -> None:
    shutil.rmtree(part, ignore_errors=True)
    (part / "attempts").mkdir(parents=True, mode=0o700)


def _end(part: Path, home: Path, pod: str) -> None:
    """Move what came into the home. An agent that lives there finds logs by their path."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in ("attempts", "pods"):
        (home / name).mkdir(exist_ok=True, mode=0o700)
    for folder in (part / "attempts").iterdir():
        place = home / "attempts" / folder.name
        shutil.rmtree(place, ignore_errors=True)  # of a try that was cut off just here
        folder.rename(place)
    with open(home / "journal", "a", encoding="ascii") as journal:
        journal.write((part / "journal").read_text("ascii"))
    (home / "pods" / pod).touch()

"""Checkpoints that are whole or not there, and that only the newest attempt may write.

A checkpoint is a folder `step-00000040.2.5`: step, incarnation of the group, attempt of the node.
It is made aside, flushed to disk and renamed into place, with a list of its files and their
SHA-256, so a reader sees all of it or nothing. Newest means: of the newest attempt first, then of
the highest step.

The fence: a writer claims the folder when it is made; an older attempt that still runs somewhere,
or wakes up, can write no more. Claiming and publishing hold one lock (flock), so there is no gap.
A folder has one writer at a time: nodes that each save a part use a folder each.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

_NAME = re.compile(r"step-(\d+)\.(\d+)\.(\d+)")
_LIST = "checkpoint.json"
_FENCE, _LOCK, _ASIDE = ".fence", ".lock", ".aside-"
_BLOCK = 1 << 20

Content = Union[bytes, Callable[[Path], None]]


class Fenced(RuntimeError):
    """A newer attempt has claimed this folder: this one must not write, and should end."""


@dataclass(frozen=True)
class Checkpoint:
    """One whole checkpoint."""

    path: Path  # the folder with its files
    step: int
    incarnation: int
    attempt: int

    @property
    def order(self) -> Tuple[int, int, int]:
        """What is newer compares greater."""
        return (self.incarnation, self.attempt, self.step)


class Writer:
    """The one that may write checkpoints into a folder."""

    def __init__(
        self,
        folder: Union[str, Path, None] = None,
        *,
        keep: int = 3,
        incarnation: Optional[int] = None,
        attempt: Optional[int] = None,
    ) -> None:
        """Claim `folder`, by default `$ARGOSY_CHECKPOINT_DIR`; `keep` whole ones stay (at least 1).

        Incarnation and attempt default to those of this program. Raises `Fenced` when a newer
        attempt was here.
        """
        if keep < 1:
            raise ValueError("keep must be 1 or more")
        env = os.environ
        self.folder = Path(folder if folder is not None else env["ARGOSY_CHECKPOINT_DIR"])
        self.keep = keep
        self.incarnation = _given(incarnation, "ARGOSY_INCARNATION")
        self.attempt = _given(attempt, "ARGOSY_ATTEMPT")
        self.folder.mkdir(parents=True, exist_ok=True)
        with _locked(self.folder):
            self._check_fence()
            claim = json.dumps({"incarnation": self.incarnation, "attempt": self.attempt})
            _write_whole(self.folder / _FENCE, claim.encode())
            self._remove_leftovers()

    def save(self, step: int, content: Content) -> Checkpoint:
        """Write one checkpoint; on return it is on the disk.

        `content` is bytes (they become the file `state`), or a function that is given a new folder
        and fills it. The same step of the same attempt again replaces it. Raises `Fenced`.
        """
        aside = self.folder / f"{_ASIDE}{self.incarnation}.{self.attempt}.{os.getpid()}"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        try:
            if callable(content):
                content(aside)
            else:
                (aside / "state").write_bytes(content)
            _seal(aside)
            with _locked(self.folder):
                self._check_fence()
                return self._publish(step, aside)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def newest(self) -> Optional[Checkpoint]:
        """The newest whole checkpoint, from whichever attempt; None where there is none."""
        return newest(self.folder)

    def _publish(self, step: int, aside: Path) -> Checkpoint:
        target = self.folder / f"step-{step:08d}.{self.incarnation}.{self.attempt}"
        if target.exists():
            shutil.rmtree(target)
        aside.rename(target)
        _flush(self.folder)
        found = listed(self.folder)
        for old in found[: -self.keep]:
            shutil.rmtree(old.path, ignore_errors=True)
        return Checkpoint(target, step, self.incarnation, self.attempt)

    def _check_fence(self) -> None:
        """Call it under the lock only."""
        try:
            fence = json.loads((self.folder / _FENCE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        holder = (fence["incarnation"], fence["attempt"])
        if holder > (self.incarnation, self.attempt):
            raise Fenced(
                f"{self.folder} belongs to incarnation {holder[0]}, attempt {holder[1]};"
                f" this is incarnation {self.incarnation}, attempt {self.attempt}"
            )

    def _remove_leftovers(self) -> None:
        """What killed writers left half made; they can publish it no more."""
        for path in self.folder.glob(_ASIDE + "*"):
            shutil.rmtree(path, ignore_errors=True)


def listed(folder: Union[str, Path]) -> List[Checkpoint]:
    """All checkpoints by name, oldest first; their content is not looked at."""
    found = []
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    for name in names:
        match = _NAME.fullmatch(name)
        if match:
            step, incarnation, attempt = (int(part) for part in match.groups())
            found.append(Checkpoint(Path(folder) / name, step, incarnation, attempt))
    return sorted(found, key=lambda one: one.order)


def whole(checkpoint: Checkpoint) -> bool:
    """Are all files there, with the content they were written with? Reads them all."""
    try:
        files: Dict[str, Any] = json.loads((checkpoint.path / _LIST).read_text(encoding="utf-8"))
        return all(
            (checkpoint.path / name).stat().st_size == entry["bytes"]
            and _digest(checkpoint.path / name) == entry["sha256"]
            for name, entry in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def newest(folder: Union[str, Path]) -> Optional[Checkpoint]:
    """The newest whole checkpoint in `folder`; damaged ones are passed over. For readers too."""
    for checkpoint in reversed(listed(folder)):
        if whole(checkpoint):
            return checkpoint
    return None


def _given(value: Optional[int], name: str) -> int:
    return int(os.environ.get(name, "0")) if value is None else value


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One claimer or publisher at a time; a killed one lets go by itself."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _seal(folder: Path) -> None:
    """Write the list of files, and have everything on the disk."""
    files: Dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            _flush(path)
            name = str(path.relative_to(folder))
            files[name] = {"bytes": path.stat().st_size, "sha256": _digest(path)}
    _write_whole(folder / _LIST, json.dumps(files, indent=1).encode())
    for path in folder.rglob("*"):
        if path.is_dir():
            _flush(path)
    _flush(folder)


def _digest(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(_BLOCK), b""):
            total.update(block)
    return total.hexdigest()


def _write_whole(path: Path, content: bytes) -> None:
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    with aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    _flush(path.parent)


def _flush(path: Path) -> None:
    """fsync of a file or a folder: a rename is on the disk only once its folder is."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

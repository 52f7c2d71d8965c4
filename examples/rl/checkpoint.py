"""Checkpoints that are whole or not there: written aside, flushed, then renamed into place."""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from policy import Adam

KEEP = 3


@dataclass
class State:
    """All that the trainer needs to go on as if nothing had happened."""

    step: int
    weights: np.ndarray
    optimizer: Adam


def save(folder: Path, state: State) -> None:
    """Write `step-000040.npz`; a reader sees it whole or not at all, also after a power cut."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"step-{state.step:06d}.npz"
    aside = folder / f".{target.name}.{os.getpid()}"
    with aside.open("wb") as file:
        np.savez(
            file,
            step=state.step,
            weights=state.weights,
            first=state.optimizer.first,
            second=state.optimizer.second,
        )
        file.flush()
        os.fsync(file.fileno())
    aside.replace(target)
    _flush_folder(folder)
    for old in sorted(folder.glob("step-*.npz"))[:-KEEP]:
        old.unlink()


def newest(folder: Path) -> State | None:
    """The newest checkpoint that can be read to its end; None where there is none."""
    for path in sorted(folder.glob("step-*.npz"), reverse=True):
        try:
            with path.open("rb") as file, np.load(file) as saved:  # members bear checksums
                optimizer = Adam(saved["first"], saved["second"])
                return State(int(saved["step"]), saved["weights"], optimizer)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            print(f"passing over {path.name}: {error}", flush=True)
    return None


def _flush_folder(folder: Path) -> None:
    """A rename is durable only once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

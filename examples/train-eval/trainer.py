"""The trainer: learns to read digits, and leaves a checkpoint for each epoch."""

from __future__ import annotations

import os
from pathlib import Path

import net
import numpy as np
from digits import CLASSES, PIXELS, pictures, probabilities

EPOCHS, BATCH, RATE = 12, 32, 0.003


def epoch(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """One pass of gradient descent over all pictures."""
    for first in range(0, len(images), BATCH):
        here = slice(first, first + BATCH)
        error = probabilities(weights, images[here]) - np.eye(CLASSES)[labels[here]]
        slope = np.vstack([images[here].T @ error, error.sum(axis=0)])
        weights = weights - RATE * slope / len(error)
    return weights


def write_whole(path: Path, weights: np.ndarray) -> None:
    """Written aside, flushed, renamed: who reads the folder sees whole files only."""
    aside = path.with_suffix(".part")
    with aside.open("wb") as file:
        np.save(file, weights)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def main() -> None:
    """Train; tell the evaluator of each checkpoint, and do not wait for its verdict."""
    folder = Path(os.environ["ARGOSY_SHARED_DIR"]) / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = pictures(2000, seed=1)
    weights = np.zeros((PIXELS + 1, CLASSES))
    for number in range(1, EPOCHS + 1):
        weights = epoch(weights, images, labels)
        name = f"epoch-{number:03d}.npy"
        write_whole(folder / name, weights)
        news = {"name": name, "epoch": number, "last": number == EPOCHS}
        net.call(net.host("evaluator", 0), "/checkpoint", news)
        print(f"epoch {number}: wrote {name}", flush=True)


if __name__ == "__main__":
    main()

"""The teacher: a wide network that learns from many labels, then answers with probabilities."""

from __future__ import annotations

from typing import Any

import net
import numpy as np
from spirals import Network, points

HIDDEN, LABELS, STEPS, BATCH = 128, 4000, 1500, 128


def trained() -> Network:
    """A teacher that has seen all labels."""
    teacher = Network(HIDDEN, seed=1)
    x, label = points(LABELS, seed=10)
    chance = np.random.default_rng(2)
    for _ in range(STEPS):
        some = chance.integers(LABELS, size=BATCH)
        teacher.learn(x[some], label[some])
    return teacher


def main() -> None:
    """Learn first, listen then: whoever depends on `healthy` meets a teacher that knows."""
    teacher = trained()

    def label(body: dict[str, Any]) -> dict[str, Any]:
        return {"odds": teacher.odds(np.array(body["points"])).tolist()}

    net.serve({"/label": label})


if __name__ == "__main__":
    main()

"""The student: a narrow network with few labels, taught by the teacher's probabilities."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import net
import numpy as np
from spirals import Network, points

HIDDEN, OWN_LABELS, STEPS, BATCH = 24, 40, 1200, 128
NEAR = 0.03  # how far below the teacher the student may end


def ask(x: np.ndarray) -> np.ndarray:
    """The teacher's probabilities, by name."""
    return np.array(net.call(net.host("teacher", 0), "/label", {"points": x.tolist()})["odds"])


def alone() -> Network:
    """What the student learns from its own labels only."""
    student = Network(HIDDEN, seed=3)
    x, label = points(OWN_LABELS, seed=11)
    for _ in range(STEPS):
        student.learn(x, label)
    return student


def main() -> int:
    """0 when the taught student comes near the teacher and beats the one that learned alone."""
    test, truth = points(4000, seed=12)
    teacher = float(((ask(test) > 0.5) == truth).mean())
    own = alone().accuracy(test, truth)
    print(f"teacher {teacher:.3f}; student alone, {OWN_LABELS} labels: {own:.3f}", flush=True)
    student, chance = Network(HIDDEN, seed=3), np.random.default_rng(4)
    for step in range(1, STEPS + 1):
        # No labels here: points anywhere in the plane, told by the teacher.
        x = chance.uniform(-1.7, 1.7, size=(BATCH, 2))
        student.learn(x, ask(x), rate=0.02 if step < STEPS * 0.7 else 0.004)
        if step % (STEPS // 10) == 0:
            print(f"step {step} student {student.accuracy(test, truth):.3f}", flush=True)
    taught = student.accuracy(test, truth)
    result = {"teacher": teacher, "alone": own, "taught": taught}
    (Path(os.environ["ARGOSY_SHARED_DIR"]) / "result.json").write_text(json.dumps(result) + "\n")
    print(f"taught {taught:.3f}, alone {own:.3f}, teacher {teacher:.3f}", flush=True)
    return 0 if taught >= teacher - NEAR and taught > own else 1


if __name__ == "__main__":
    sys.exit(main())

"""The fine-tuner: one small model on all that was generated, one on what passed the filter."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import net
import numpy as np
from sums import LARGEST, WORDS, for_test, read

ROUNDS, BATCH = 32, 100
FEATURES = 2 * LARGEST + 1
GOOD_ENOUGH = 0.97


class Model:
    """For each word a linear model of the two numbers, kept as running normal equations."""

    def __init__(self) -> None:
        self._left = {word: np.eye(FEATURES) * 1e-6 for word in WORDS}
        self._right = {word: np.zeros(FEATURES) for word in WORDS}

    def learn(self, sentences: list[str]) -> None:
        """Take in what can be read at all."""
        for a, word, b, answer in filter(None, map(read, sentences)):
            seen = features(a, b)
            self._left[word] += np.outer(seen, seen)
            self._right[word] += seen * answer

    def accuracy(self) -> float:
        """Share of exact answers on the pairs that nobody generated."""
        pairs = [(a, b) for a in range(LARGEST) for b in range(LARGEST) if for_test(a, b)]
        seen, right = np.array([features(a, b) for a, b in pairs]), []
        for word, answer in WORDS.items():
            guess = np.rint(seen @ np.linalg.solve(self._left[word], self._right[word]))
            right.append(np.mean(guess == [answer(a, b) for a, b in pairs]))
        return float(np.mean(right))


def features(a: int, b: int) -> np.ndarray:
    """What the model sees of a pair: which numbers they are, and their product."""
    seen = np.zeros(FEATURES)
    seen[a] = seen[LARGEST + b] = 1.0
    seen[-1] = a * b / LARGEST
    return seen


def main() -> int:
    """0 when the filtered data teach what the raw data do not."""
    on_all, on_kept = Model(), Model()
    count_all = count_kept = 0
    for number in range(1, ROUNDS + 1):
        batch = net.call(net.host("sieve", 0), "/batch", {"n": BATCH})
        on_all.learn(batch["raw"])
        on_kept.learn(batch["kept"])
        count_all, count_kept = count_all + len(batch["raw"]), count_kept + len(batch["kept"])
        print(
            f"round {number} sentences {count_all} kept {count_kept} accuracy"
            f" raw={on_all.accuracy():.2f} kept={on_kept.accuracy():.2f}",
            flush=True,
        )
    result = {"raw": on_all.accuracy(), "kept": on_kept.accuracy(), "sentences": count_kept}
    (Path(os.environ["ARGOSY_SHARED_DIR"]) / "result.json").write_text(json.dumps(result) + "\n")
    return 0 if result["kept"] >= GOOD_ENOUGH and result["kept"] > result["raw"] else 1


if __name__ == "__main__":
    sys.exit(main())

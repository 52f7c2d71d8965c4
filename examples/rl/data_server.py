"""The data server: hands out prompts to learn from, and those kept for the final test."""

from __future__ import annotations

import itertools
import os
import random
import threading
from typing import Any

import net
import puzzles

TEST_SEED = 1  # the test is the same in every run


class Prompts:
    """Draws prompts; safe to ask from several threads."""

    def __init__(self, seed: str) -> None:
        self._chance = random.Random(seed)
        self._ids = itertools.count()
        self._lock = threading.Lock()

    def training(self, body: dict[str, Any]) -> dict[str, Any]:
        """`{n}` -> n prompts; the kinds take turns, so that none is rare."""
        with self._lock:
            return {"prompts": [self._prompt() for _ in range(body["n"])]}

    def _prompt(self) -> dict[str, Any]:
        number = next(self._ids)
        kind = puzzles.KINDS[number % len(puzzles.KINDS)]
        return {"id": number, "kind": kind, "digits": puzzles.draw(self._chance, for_training=True)}


def test_set(body: dict[str, Any]) -> dict[str, Any]:
    """`{n}` -> n prompts with digits that training never sees, n / 4 of each kind."""
    chance = random.Random(TEST_SEED)
    kinds = itertools.islice(itertools.cycle(puzzles.KINDS), body["n"])
    prompts = [{"kind": k, "digits": puzzles.draw(chance, for_training=False)} for k in kinds]
    return {"prompts": prompts}


def main() -> None:
    """Serve on port 8000 until told to stop."""
    # A replaced server goes on with other prompts than the ones that its predecessor began with.
    prompts = Prompts(seed=f"prompts {os.environ.get('ARGOSY_ATTEMPT', '1')}")
    net.serve({"/prompts": prompts.training, "/test-set": test_set})


if __name__ == "__main__":
    main()

"""A generator: writes sums like a model that is often wrong, or writes no sentence at all."""

from __future__ import annotations

import os
import random
import threading
from typing import Any

import net
from sums import LARGEST, WORDS, for_test, written

WRONG, BROKEN = 0.35, 0.05


class Generator:
    """Draws sentences; each node draws others."""

    def __init__(self, rank: int) -> None:
        self._chance = random.Random(100 + rank)
        self._lock = threading.Lock()

    def generate(self, body: dict[str, Any]) -> dict[str, Any]:
        """`{n}` -> n sentences, about three in five of them right."""
        with self._lock:
            return {"sentences": [self._sentence() for _ in range(body["n"])]}

    def _sentence(self) -> str:
        chance = self._chance
        while True:
            a, b = chance.randrange(LARGEST), chance.randrange(LARGEST)
            if not for_test(a, b):
                break
        word = chance.choice(list(WORDS))
        answer, luck = WORDS[word](a, b), chance.random()
        if luck < BROKEN:
            return f"{a} {word} {word} is"
        if luck < BROKEN + WRONG:
            answer += chance.choice((-10, -2, -1, 1, 2, 10))
        return written(a, word, b, answer)


if __name__ == "__main__":
    generator = Generator(int(os.environ["ARGOSY_NODE_RANK"]))
    net.serve({"/generate": generator.generate})

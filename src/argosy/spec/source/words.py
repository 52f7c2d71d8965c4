"""Which known word was meant by an unknown one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

LONGEST: Final = 64  # nobody misspells a longer word, and the comparison costs its square


def nearest_word(word: str, known: Iterable[str]) -> str:
    """The known word that a typing error could have turned into `word`; "" when none is near.

    Near is one edit for every three letters, two at least for words longer than four, and
    never the whole word.
    """
    if len(word) > LONGEST:
        return ""
    lowered = word.lower().replace("-", "_")
    most = min(1 if len(word) <= 4 else max(2, len(word) // 3), len(word) - 1)
    best, best_distance = "", most + 1
    for candidate in known:
        if abs(len(candidate) - len(word)) >= best_distance:
            continue
        distance = edits(lowered, candidate.lower().replace("-", "_"))
        if distance < best_distance:
            best, best_distance = candidate, distance
    return best


def edits(one: str, other: str) -> int:
    """How many letters to insert, remove, replace or swap with a neighbour (Damerau, 1964)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, last = row, before
        row = [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            swapped = i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted
            if swapped:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


def listed(words: Iterable[str], most: int = 12) -> str:
    """`a, b, c`; a long list ends in `...`."""
    every = list(words)
    return ", ".join(every[:most]) + (", ..." if len(every) > most else "")

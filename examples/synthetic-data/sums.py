"""Little sums in words, `37 plus 5 is 42`: how to write and to read them."""

from __future__ import annotations

import re

LARGEST = 40
WORDS = {"plus": lambda a, b: a + b, "minus": lambda a, b: a - b, "times": lambda a, b: a * b}
_FORM = re.compile(r"(\d+) (plus|minus|times) (\d+) is (-?\d+)")


def written(a: int, word: str, b: int, answer: int) -> str:
    """A sentence, right or wrong."""
    return f"{a} {word} {b} is {answer}"


def read(sentence: str) -> tuple[int, str, int, int] | None:
    """The parts of a sentence; None where it is not one."""
    match = _FORM.fullmatch(sentence)
    return (int(match[1]), match[2], int(match[3]), int(match[4])) if match else None


def right(sentence: str) -> bool:
    """Is it a sentence, and is it true?"""
    parts = read(sentence)
    return parts is not None and WORDS[parts[1]](parts[0], parts[2]) == parts[3]


def for_test(a: int, b: int) -> bool:
    """A quarter of all pairs is never generated."""
    return (a + 2 * b) % 4 == 0

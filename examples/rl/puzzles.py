"""The task to learn: four kinds of puzzle on six digits, each with exactly one right answer.

The four right answers of a prompt always differ, so a policy that ignores the kind solves at most
one prompt in four, and one that ignores the digits solves next to none: there is no shortcut.
"""

from __future__ import annotations

import random

DIGITS = 10  # the alphabet: 0..9
LENGTH = 6  # digits in a prompt and in an answer
KINDS = ("copy", "reverse", "rotate", "next")

Numbers = tuple[int, ...]


def right_answer(kind: str, digits: Numbers) -> Numbers:
    """The one right answer."""
    if kind == "copy":
        return digits
    if kind == "reverse":
        return digits[::-1]
    if kind == "rotate":
        return digits[1:] + digits[:1]
    if kind == "next":
        return tuple((digit + 1) % DIGITS for digit in digits)
    raise ValueError(f"no such kind of puzzle: {kind}")


def held_out(digits: Numbers) -> bool:
    """True for the eighth of all digit strings that training never sees."""
    return sum((3 * place + 1) * digit for place, digit in enumerate(digits)) % 8 == 0


def draw(chance: random.Random, *, for_training: bool) -> Numbers:
    """Six digits whose four right answers all differ."""
    while True:
        digits = tuple(chance.randrange(DIGITS) for _ in range(LENGTH))
        answers = {right_answer(kind, digits) for kind in KINDS}
        if len(answers) == len(KINDS) and held_out(digits) != for_training:
            return digits


def score(kind: str, digits: Numbers, answer: Numbers) -> float:
    """The reward: the share of digits that are right, 1.0 only for the right answer."""
    wanted = right_answer(kind, digits)
    return sum(a == b for a, b in zip(answer, wanted)) / LENGTH

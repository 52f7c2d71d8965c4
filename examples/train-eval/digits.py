"""Noisy pictures of digits, seven by five: made on the spot, the same for the same seed."""

from __future__ import annotations

import numpy as np

CLASSES, PIXELS = 10, 35
_FONT = """
01110 10001 10011 10101 11001 10001 01110
00100 01100 00100 00100 00100 00100 01110
01110 10001 00001 00110 01000 10000 11111
11111 00010 00100 00010 00001 10001 01110
00010 00110 01010 10010 11111 00010 00010
11111 10000 11110 00001 00001 10001 01110
00110 01000 10000 11110 10001 10001 01110
11111 00001 00010 00100 01000 01000 01000
01110 10001 10001 01110 10001 10001 01110
01110 10001 10001 01111 00001 00010 01100
"""
_ROWS = _FONT.replace(" ", "").split()
_SHAPES = np.array([[int(bit) for bit in row] for row in _ROWS])


def pictures(count: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` noisy pictures (count, PIXELS) and what they show (count,)."""
    chance = np.random.default_rng(seed)
    labels = chance.integers(CLASSES, size=count)
    return _SHAPES[labels] + chance.normal(scale=0.6, size=(count, PIXELS)), labels


def probabilities(weights: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Softmax regression; the last row of `weights` (PIXELS + 1, CLASSES) is the bias."""
    logits = images @ weights[:-1] + weights[-1]
    logits -= logits.max(axis=1, keepdims=True)
    result = np.exp(logits)
    return result / result.sum(axis=1, keepdims=True)

"""Two classes of points on two spirals, and a small network with one hidden layer to tell them."""

from __future__ import annotations

import numpy as np


def points(count: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(count, 2) noisy points and the spiral of each, 0 or 1."""
    chance = np.random.default_rng(seed)
    label = chance.integers(2, size=count)
    turn = np.sqrt(chance.random(count)) * 2.0 * np.pi
    angle = turn + np.pi * label
    place = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1) / 4.0
    return place + chance.normal(scale=0.05, size=place.shape), label


class Network:
    """Tanh network with one output: the log-odds of class 1; trained with Adam on soft labels."""

    def __init__(self, hidden: int, *, seed: int) -> None:
        chance = np.random.default_rng(seed)
        self.parts = [
            chance.normal(scale=2.0, size=(2, hidden)),
            chance.normal(scale=1.0, size=hidden),
            chance.normal(scale=hidden**-0.5, size=hidden),
            np.zeros(1),
        ]
        self._first = [np.zeros_like(part) for part in self.parts]
        self._second = [np.zeros_like(part) for part in self.parts]
        self._steps = 0

    def odds(self, x: np.ndarray) -> np.ndarray:
        """Probability of class 1 for each point."""
        inner, shift, outer, bias = self.parts
        return 1 / (1 + np.exp(-(np.tanh(x @ inner + shift) @ outer + bias)))

    def accuracy(self, x: np.ndarray, label: np.ndarray) -> float:
        """Share of points told rightly."""
        return float(((self.odds(x) > 0.5) == label).mean())

    def learn(self, x: np.ndarray, wanted: np.ndarray, *, rate: float = 0.02) -> None:
        """One step down the cross-entropy to `wanted`, probabilities of class 1."""
        inner, shift, outer, _ = self.parts
        seen = np.tanh(x @ inner + shift)
        error = (self.odds(x) - wanted) / len(x)
        back = error[:, None] * outer * (1 - seen**2)
        slopes = [x.T @ back, back.sum(axis=0), seen.T @ error, error.sum(keepdims=True)]
        self._steps += 1
        for i, slope in enumerate(slopes):
            self._first[i] = 0.9 * self._first[i] + 0.1 * slope
            self._second[i] = 0.99 * self._second[i] + 0.01 * slope**2
            first = self._first[i] / (1 - 0.9**self._steps)
            second = self._second[i] / (1 - 0.99**self._steps)
            self.parts[i] = self.parts[i] - rate * first / (np.sqrt(second) + 1e-8)

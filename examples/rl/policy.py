"""A softmax policy over answers, and the gradient of the GRPO objective for it.

For each kind and each place of the answer, one linear layer over the one-hot prompt gives the
logits of the digit there. All weights are one flat float64 vector: that is what travels, what is
all-reduced and what is saved.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np
from puzzles import DIGITS, KINDS, LENGTH

# kind, place in the answer, place in the prompt, digit in the prompt, digit in the answer
SHAPE = (len(KINDS), LENGTH, LENGTH, DIGITS, DIGITS)
SIZE = int(np.prod(SHAPE))
CLIP = 0.2  # of the ratio between the policy now and the policy that answered
ENTROPY_BONUS = 0.003


@dataclass
class Batch:
    """Answers to learn from; one row per answer."""

    kinds: np.ndarray  # (n,) index into KINDS
    digits: np.ndarray  # (n, LENGTH)
    answers: np.ndarray  # (n, LENGTH)
    logps: np.ndarray  # (n, LENGTH) under the policy that answered
    advantages: np.ndarray  # (n,)


def log_probabilities(weights: np.ndarray, kinds: np.ndarray, digits: np.ndarray) -> np.ndarray:
    """(n, LENGTH, DIGITS): log-probability of each digit at each place of the answer."""
    table = weights.reshape(SHAPE)
    logits = sum(table[kinds, :, place, digits[:, place], :] for place in range(LENGTH))
    logits = logits - logits.max(axis=2, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))


def sample(
    weights: np.ndarray, kinds: np.ndarray, digits: np.ndarray, chance: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """One answer per row, and the log-probability of each of its digits."""
    logp = log_probabilities(weights, kinds, digits)
    answers = np.argmax(logp + chance.gumbel(size=logp.shape), axis=2)
    return answers, np.take_along_axis(logp, answers[:, :, None], axis=2)[:, :, 0]


def greedy(weights: np.ndarray, kinds: np.ndarray, digits: np.ndarray) -> np.ndarray:
    """The most likely answer per row."""
    return np.argmax(log_probabilities(weights, kinds, digits), axis=2)


def advantages(rewards: np.ndarray) -> np.ndarray:
    """(groups, samples) rewards, normalised within each group: the G of GRPO."""
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    return centred / (rewards.std(axis=1, keepdims=True) + 1e-6)


def gradient(weights: np.ndarray, batch: Batch) -> np.ndarray:
    """Ascent direction of the clipped GRPO objective plus an entropy bonus, mean over digits."""
    logp = log_probabilities(weights, batch.kinds, batch.digits)
    probability = np.exp(logp)
    chosen = np.take_along_axis(logp, batch.answers[:, :, None], axis=2)[:, :, 0]
    ratio = np.exp(chosen - batch.logps)
    gain = batch.advantages[:, None]
    clipped = ((gain > 0) & (ratio > 1 + CLIP)) | ((gain < 0) & (ratio < 1 - CLIP))
    pull = np.where(clipped, 0.0, ratio * gain)
    one_hot = np.eye(DIGITS)[batch.answers]
    entropy = -(probability * logp).sum(axis=2, keepdims=True)
    on_logits = pull[:, :, None] * (one_hot - probability)
    on_logits -= ENTROPY_BONUS * probability * (logp + entropy)
    on_logits /= batch.answers.size
    result = np.zeros(SHAPE)
    for place in range(LENGTH):
        where = (batch.kinds, slice(None), batch.digits[:, place])
        np.add.at(result[:, :, place], where, on_logits)
    return result.reshape(-1)


@dataclass
class Adam:
    """The optimizer: its two moments are part of every checkpoint."""

    first: np.ndarray
    second: np.ndarray
    rate: float = 0.015

    @classmethod
    def fresh(cls) -> Adam:
        """Nothing learned yet."""
        return cls(np.zeros(SIZE), np.zeros(SIZE))

    def ascend(self, weights: np.ndarray, slope: np.ndarray, step: int) -> np.ndarray:
        """New weights; `step` counts from 1."""
        self.first = 0.9 * self.first + 0.1 * slope
        self.second = 0.99 * self.second + 0.01 * slope**2
        first = self.first / (1 - 0.9**step)
        second = self.second / (1 - 0.99**step)
        return weights + self.rate * first / (np.sqrt(second) + 1e-8)


def packed(weights: np.ndarray) -> str:
    """Weights as text for JSON; single precision is enough to answer with."""
    return base64.b64encode(weights.astype("<f4").tobytes()).decode()


def unpacked(text: str) -> np.ndarray:
    """What `packed` made, as float64 again."""
    return np.frombuffer(base64.b64decode(text), dtype="<f4").astype(np.float64)

"""A pole on a cart, many at once: push left or right so that the pole stays up.

Equations: Barto, Sutton and Anderson, "Neuronlike adaptive elements that can solve difficult
learning control problems", 1983, without friction, Euler steps of 20 ms.
"""

from __future__ import annotations

import numpy as np

STEPS_MAX = 500
_GRAVITY, _CART, _POLE, _HALF, _FORCE, _TIME = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
_TRACK, _LEAN = 2.4, np.radians(12)


def returns(controllers: np.ndarray, *, seed: int, episodes: int) -> np.ndarray:
    """(n, 5) linear controllers -> steps that the pole stays up, mean over the episodes, (n,)."""
    chance = np.random.default_rng(seed)
    starts = chance.uniform(-0.05, 0.05, size=(episodes, 4))
    state = np.tile(starts, (len(controllers), 1)).T  # position, speed, angle, turning; all runs
    gains = np.repeat(controllers, episodes, axis=0).T
    up = np.ones(state.shape[1], dtype=bool)
    steps = np.zeros(state.shape[1])
    for _ in range(STEPS_MAX):
        push = np.where((gains[:4] * state).sum(axis=0) + gains[4] > 0, _FORCE, -_FORCE)
        state = _moved(state, push)
        up &= (np.abs(state[0]) < _TRACK) & (np.abs(state[2]) < _LEAN)
        if not up.any():
            break
        steps += up
    return steps.reshape(len(controllers), episodes).mean(axis=1)


def _moved(state: np.ndarray, push: np.ndarray) -> np.ndarray:
    """The state one step later."""
    _, speed, angle, turning = state
    sine, cosine, mass = np.sin(angle), np.cos(angle), _CART + _POLE
    pull = (push + _POLE * _HALF * turning**2 * sine) / mass
    twist = (_GRAVITY * sine - cosine * pull) / (_HALF * (4.0 / 3.0 - _POLE * cosine**2 / mass))
    drive = pull - _POLE * _HALF * twist * cosine / mass
    return state + _TIME * np.stack([speed, drive, turning, twist])

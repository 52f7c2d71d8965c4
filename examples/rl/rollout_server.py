"""A rollout server: answers prompts with the newest weights that the trainer has sent.

Weights bear a version, `[life, step]`. `life` is (incarnation of the group, attempt of the trainer)
and grows with every restart: what a resumed trainer sends is newer than what its predecessor sent
last, although its step is lower. Weights older than those held are refused. A new server holds
none: requests wait until some arrive.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import net
import numpy as np
import policy
import puzzles

WAIT = 10.0  # seconds that a request waits for the first weights before it is told to come again


class Rollout:
    """The weights and their version; replaced together, under one lock."""

    def __init__(self) -> None:
        self._weights: np.ndarray | None = None
        self._version: list[Any] | None = None
        self._arrived = threading.Condition()
        self._chance = np.random.default_rng()

    def version(self, _: dict[str, Any]) -> dict[str, Any]:
        """-> the version held, null in a new server."""
        return {"version": self._version}

    def load(self, body: dict[str, Any]) -> dict[str, Any]:
        """`{version, weights}`; an older version than the one held is refused."""
        with self._arrived:
            if self._version is not None and body["version"] < self._version:
                raise net.Refused(409, f"{body['version']} is older than {self._version}")
            if self._version is None or body["version"][0] != self._version[0]:
                print(
                    f"weights of life {body['version'][0]} from step {body['version'][1]}",
                    flush=True,
                )
            self._weights = policy.unpacked(body["weights"])
            self._version = body["version"]
            self._arrived.notify_all()
        return {"version": self._version}

    def generate(self, body: dict[str, Any]) -> dict[str, Any]:
        """`{prompts, samples}` -> so many answers to each prompt, their log-probabilities."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._weights is not None, WAIT):
                raise net.Refused(503, "no weights yet")
            weights, version = self._weights, self._version
            chance = self._chance.spawn(1)[0]
        prompts, samples = body["prompts"], body["samples"]
        kinds = np.array([puzzles.KINDS.index(prompt["kind"]) for prompt in prompts])
        digits = np.array([prompt["digits"] for prompt in prompts])
        answers, logps = policy.sample(
            weights, np.repeat(kinds, samples), np.repeat(digits, samples, axis=0), chance
        )
        shape = (len(prompts), samples, puzzles.LENGTH)
        return {
            "version": version,
            "node": os.environ.get("ARGOSY_NODE"),
            "answers": answers.reshape(shape).tolist(),
            "logps": logps.reshape(shape).round(6).tolist(),
        }


if __name__ == "__main__":
    rollout = Rollout()
    net.serve(
        {"/generate": rollout.generate, "/weights": rollout.load, "/version": rollout.version}
    )

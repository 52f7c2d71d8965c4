"""The learner: improves a controller by the cross-entropy method, on all simulators at once.

It finds the simulators in the peers file, `$ARGOSY_PEERS`: the more there are, the more it uses.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import net
import numpy as np

ROUNDS, CANDIDATES, BEST, EPISODES = 8, 60, 10, 5
SPREAD_MIN = 0.05
GOOD_ENOUGH = 400.0  # steps of 500, on starts that were never trained on


def simulators() -> list[str]:
    """Addresses of all nodes of the task `simulator`, read anew: a replaced one may have moved."""
    peers = json.loads(Path(os.environ["ARGOSY_PEERS"]).read_text())
    return [node["address"] for node in peers["nodes"] if node["task"] == "simulator"]


def tried(controllers: np.ndarray, seed: int) -> np.ndarray:
    """How long each controller kept the pole up; the work is split over the simulators."""
    where = simulators()[: len(controllers)]

    def part(of: tuple[str, np.ndarray]) -> list[float]:
        wish = {"controllers": of[1].tolist(), "seed": seed, "episodes": EPISODES}
        return net.call(of[0], "/simulate", wish)["returns"]

    with ThreadPoolExecutor(len(where)) as pool:
        parts = pool.map(part, zip(where, np.array_split(controllers, len(where))))
    return np.concatenate(list(parts))


def main() -> int:
    """0 when the learned controller is good on new starts and far better than a random one."""
    chance = np.random.default_rng(5)
    mean, spread = np.zeros(5), np.ones(5)
    random_ones = float(tried(chance.normal(size=(CANDIDATES, 5)), seed=0).mean())
    print(
        f"{len(simulators())} simulators; random controllers: {random_ones:.0f} steps", flush=True
    )
    for number in range(1, ROUNDS + 1):
        candidates = mean + spread * chance.normal(size=(CANDIDATES, 5))
        steps = tried(candidates, seed=number)
        best = candidates[np.argsort(-steps)[:BEST]]
        mean, spread = best.mean(axis=0), best.std(axis=0) + SPREAD_MIN
        print(f"round {number} mean {steps.mean():.0f} best {steps.max():.0f} steps", flush=True)
    learned = float(np.mean([tried(mean[None], seed=1000 + i)[0] for i in range(4)]))
    result = {"random": random_ones, "learned": learned}
    (Path(os.environ["ARGOSY_SHARED_DIR"]) / "result.json").write_text(json.dumps(result) + "\n")
    print(f"learned controller: {learned:.0f} steps of 500, new starts", flush=True)
    return 0 if learned >= GOOD_ENOUGH and learned > 3 * random_ones else 1


if __name__ == "__main__":
    sys.exit(main())

"""A simulator: tries controllers on the pole and says how long each kept it up."""

from __future__ import annotations

from typing import Any

import net
import numpy as np
from cartpole import returns


def simulate(body: dict[str, Any]) -> dict[str, Any]:
    """`{controllers, seed, episodes}` -> steps for each controller."""
    tried = np.array(body["controllers"])
    steps = returns(tried, seed=body["seed"], episodes=body["episodes"])
    return {"returns": steps.tolist()}


if __name__ == "__main__":
    net.serve({"/simulate": simulate})

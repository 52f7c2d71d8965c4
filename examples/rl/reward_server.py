"""The reward server: the only task that knows what is right."""

from __future__ import annotations

from typing import Any

import net
import puzzles


def score(body: dict[str, Any]) -> dict[str, Any]:
    """`{prompts, answers}`, several answers to each prompt -> one reward for each answer."""
    rewards = [
        [puzzles.score(prompt["kind"], tuple(prompt["digits"]), tuple(one)) for one in answers]
        for prompt, answers in zip(body["prompts"], body["answers"])
    ]
    return {"rewards": rewards}


if __name__ == "__main__":
    net.serve({"/score": score})

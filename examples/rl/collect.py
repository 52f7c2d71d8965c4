"""The trainer's two helpers in the background: one fetches experience, one sends weights out.

Each is a thread. One that cannot go on ends the program, so that nothing broken looks healthy.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from functools import partial
from typing import Any, Callable

import net
import numpy as np
import policy

GROUPS = 16  # prompts asked at once
SAMPLES = 8  # answers to each: the group that GRPO compares
LOOK_AGAIN = 0.5  # seconds after which an idle sender asks a rollout server what it holds


def start(work: Callable[[], None], name: str) -> None:
    """Run `work` in a thread; its failure is the program's failure."""

    def run() -> None:
        try:
            work()
        except BaseException:  # whatever it was, training cannot go on without it
            traceback.print_exc()
            os._exit(1)

    threading.Thread(target=run, name=name, daemon=True).start()


def fetch_for_ever() -> None:
    """Prompts from the data server, answers from a rollout server, rewards, into the buffer."""
    while True:
        prompts = net.call(net.host("data", 0), "/prompts", {"n": GROUPS})["prompts"]
        # The balanced address: whichever rollout server is healthy and least busy.
        given = net.call(net.host("rollout"), "/generate", {"prompts": prompts, "samples": SAMPLES})
        asked = {"prompts": prompts, "answers": given["answers"]}
        rewards = net.call(net.host("reward", 0), "/score", asked)["rewards"]
        groups = [
            {
                "version": given["version"],
                "kind": prompt["kind"],
                "digits": prompt["digits"],
                "answers": given["answers"][row],
                "logps": given["logps"][row],
                "rewards": rewards[row],
            }
            for row, prompt in enumerate(prompts)
        ]
        net.call(net.host("replay", 0), "/put", {"groups": groups})


class Outbox:
    """The newest weights, and one sender for each rollout server that keeps it up to date."""

    def __init__(self, life: list[int], servers: int) -> None:
        self._life = life
        self._changed = threading.Condition()
        self._message: dict[str, Any] | None = None
        for index in range(servers):
            start(partial(self._keep_up_to_date, index), f"sender-{index}")

    def put(self, step: int, weights: np.ndarray) -> None:
        """From now on these are the newest weights; returns at once."""
        with self._changed:
            self._message = {"version": [self._life, step], "weights": policy.packed(weights)}
            self._changed.notify_all()

    def _keep_up_to_date(self, index: int) -> None:
        """Send what is new; while nothing is, ask: a server that was replaced holds nothing."""
        where, held = net.host("rollout", index), None
        while True:
            with self._changed:
                self._changed.wait_for(partial(self._news, held), LOOK_AGAIN)
                message = self._message
            try:
                if message is not None and message["version"] != held:
                    held = net.call(where, "/weights", message, patience=0)["version"]
                else:
                    held = net.call(where, "/version", patience=0)["version"]
            except ConnectionError:
                held = None
                time.sleep(LOOK_AGAIN)  # it is being replaced; the other servers go on

    def _news(self, held: Any) -> bool:
        return self._message is not None and self._message["version"] != held

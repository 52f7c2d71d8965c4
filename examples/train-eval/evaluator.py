"""The evaluator: tests each checkpoint on unseen pictures, while the trainer goes on."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from pathlib import Path
from typing import Any

import net
import numpy as np
from digits import pictures, probabilities

GOOD_ENOUGH = 0.9


def accuracy(path: Path) -> float:
    """Share of unseen pictures that this checkpoint reads rightly."""
    images, labels = pictures(2000, seed=2)
    return float((probabilities(np.load(path), images).argmax(axis=1) == labels).mean())


def main() -> int:
    """0 when accuracy rose and the last checkpoint is good enough."""
    shared = Path(os.environ["ARGOSY_SHARED_DIR"])
    news: queue.Queue[dict[str, Any]] = queue.Queue()

    def take(body: dict[str, Any]) -> dict[str, Any]:
        news.put(body)
        return {}

    door = net.server({"/checkpoint": take})
    door.daemon_threads = False  # closing waits for the answers that are under way
    threading.Thread(target=door.serve_forever, daemon=True).start()
    reached: list[float] = []
    with (shared / "eval.jsonl").open("a", encoding="utf-8") as results:
        while True:
            one = news.get()
            reached.append(accuracy(shared / "checkpoints" / one["name"]))
            results.write(json.dumps({"epoch": one["epoch"], "accuracy": reached[-1]}) + "\n")
            results.flush()
            print(f"epoch {one['epoch']} accuracy {reached[-1]:.3f}", flush=True)
            if one["last"]:
                break
    door.shutdown()
    door.server_close()
    good = reached[-1] >= GOOD_ENOUGH and reached[-1] > reached[0]
    print(f"accuracy went from {reached[0]:.3f} to {reached[-1]:.3f}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

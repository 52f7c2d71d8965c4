"""One shard of the index: holds every n-th passage and finds the nearest to a vector."""

from __future__ import annotations

import heapq
import os
from typing import Any

import net
from corpus import towns


def main() -> None:
    """Take this shard's passages, have them embedded, then listen."""
    rank, shards = int(os.environ["ARGOSY_NODE_RANK"]), int(os.environ["ARGOSY_NUM_NODES"])
    texts = [town.passage() for town in towns()[rank::shards]]
    vectors = net.call(net.host("embedder", 0), "/embed", {"texts": texts})["vectors"]
    # Sparse: most places of a vector are 0.
    held = [{i: x for i, x in enumerate(vector) if x} for vector in vectors]
    print(f"shard {rank} of {shards} holds {len(texts)} passages", flush=True)

    def nearest(vector: list[float], count: int) -> list[dict[str, Any]]:
        scores = [sum(x * vector[i] for i, x in sparse.items()) for sparse in held]
        best = heapq.nlargest(count, range(len(texts)), key=scores.__getitem__)
        return [{"text": texts[i], "score": scores[i]} for i in best]

    def search(body: dict[str, Any]) -> dict[str, Any]:
        return {"found": [nearest(vector, body["count"]) for vector in body["vectors"]]}

    net.serve({"/search": search})


if __name__ == "__main__":
    main()

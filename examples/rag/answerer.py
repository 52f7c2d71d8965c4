"""The answerer: asks every question, reads the best passages, counts what was right."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import net
from corpus import questions

BATCH, COUNT = 40, 3
HITS_WANTED, ANSWERS_WANTED = 0.9, 0.85
# The reader: which part of a passage answers which question.
_READ = {
    "make": re.compile(r"known for its (\w+)"),
    "water": re.compile(r"on the river (\w+)"),
    "started": re.compile(r"founded by (\w+)"),
}


def search(texts: list[str], shards: int) -> list[list[dict[str, Any]]]:
    """The best passages for each text, over all shards."""
    vectors = net.call(net.host("embedder", 0), "/embed", {"texts": texts})["vectors"]
    wish = {"vectors": vectors, "count": COUNT}
    answers = [net.call(net.host("index", i), "/search", wish)["found"] for i in range(shards)]
    merged = [[hit for shard in found for hit in shard] for found in zip(*answers)]
    return [sorted(hits, key=lambda hit: -hit["score"])[:COUNT] for hits in merged]


def read(question: str, passage: str) -> str:
    """The answer that the passage gives, or an empty text."""
    pattern = next(pattern for word, pattern in _READ.items() if word in question)
    match = pattern.search(passage)
    return match.group(1) if match else ""


def main() -> int:
    """0 when enough passages were found and enough answers were right."""
    asked, shards = questions(), int(os.environ["SHARDS"])
    hits = right = 0
    for first in range(0, len(asked), BATCH):
        part = asked[first : first + BATCH]
        found = search([question for question, _, _ in part], shards)
        for (question, town, answer), passages in zip(part, found):
            hits += any(passage["text"].startswith(f"{town} ") for passage in passages)
            right += read(question, passages[0]["text"]) == answer
        done = first + len(part)
        print(f"{done} questions: found {hits / done:.3f} right {right / done:.3f}", flush=True)
    result = {"questions": len(asked), "found": hits / len(asked), "right": right / len(asked)}
    (Path(os.environ["ARGOSY_SHARED_DIR"]) / "result.json").write_text(json.dumps(result) + "\n")
    return 0 if result["found"] >= HITS_WANTED and result["right"] >= ANSWERS_WANTED else 1


if __name__ == "__main__":
    sys.exit(main())

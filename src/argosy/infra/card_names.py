"""What cards are called: the short names that needs use, from the names of products."""

from __future__ import annotations

import re
from typing import Final

_MAKERS: Final = frozenset(("NVIDIA", "TESLA", "GEFORCE", "QUADRO"))


def card_name(product: str, memory_gib: float) -> str:
    """The short name: `NVIDIA A100-SXM4-80GB` is `A100-80GB`, `GeForce RTX 4090` is `RTX4090`."""
    words = [word for word in re.split(r"[\s-]+", product) if word.upper() not in _MAKERS]
    for place, word in enumerate(words):
        if word.upper() == "RTX" and place + 1 < len(words):
            return "RTX" + words[place + 1]
        if re.fullmatch(r"[A-Z]{1,2}\d{1,4}[A-Za-z]?", word):
            return f"{word}-80GB" if word == "A100" and memory_gib > 60 else word
    return "-".join(words) or product

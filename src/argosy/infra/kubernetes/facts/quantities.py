"""Reads and writes amounts as Kubernetes has them: `500m`, `16Gi`, `2e3`, `1.5G`."""

from __future__ import annotations

import re
from typing import Final

GIB: Final = 1 << 30
QUANTITY: Final = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]+))?"
)
FACTORS: Final = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip


def amount(text: object) -> float:
    """The number that a quantity means; 0 for what is none."""
    match = QUANTITY.fullmatch(str(text).strip())
    if match is None:
        return 0.0
    number = float(match[1])
    if match[3]:
        return number * 10.0 ** int(match[3])
    return number * FACTORS[match[2]] if match[2] else number


def cores(count: float) -> str:
    """A number of cores; never more than `count`."""
    return f"{count:g}" if float(count).is_integer() else f"{max(int(count * 1000), 1)}m"


def gibibytes(count: float) -> str:
    """An amount of memory in GiB; never more than `count`."""
    return f"{count:g}Gi" if float(count).is_integer() else f"{max(int(count * 1024), 1)}Mi"

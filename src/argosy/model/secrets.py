"""Secret values in texts that people read: each is shown as `***`.

A value may have been put into a path or an address of the file, and so into what is said of it.
It is masked where such a text comes in: notes on a file (`spec`), the words of agents (`control`),
and what the server answers (`server`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from argosy.model.codec import MASK
from argosy.model.spec import GroupSpec

LEAST_LENGTH: Final = 6  # a shorter value may be any word; it is masked only among `secrets`
CUT_MOST: Final = 200  # characters of the file that a message quotes


def secret_values(spec: GroupSpec) -> tuple[str, ...]:
    """The secret values of a group that are masked in texts, the longest first."""
    return maskable(value for task in spec.tasks for _, value in task.secrets)


def maskable(values: Iterable[str]) -> tuple[str, ...]:
    """Those long enough to be masked in texts, the longest first."""
    return tuple(sorted({v for v in values if len(v) >= LEAST_LENGTH}, key=lambda v: (-len(v), v)))


def masked(text: str, values: tuple[str, ...]) -> str:
    """`text` without `values`, nor the beginning of one that a quotation cuts off."""
    for value in values:
        if value[:LEAST_LENGTH] not in text:
            continue
        text = text.replace(value, MASK)
        for length in range(min(len(value) - 1, CUT_MOST), LEAST_LENGTH - 1, -1):
            text = text.replace(f"{value[:length]}`", f"{MASK}`")
    return text

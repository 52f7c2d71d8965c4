"""One deliberate mistake: a few words of the source replaced by others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """One mistake: `old` stands exactly once in `decide/MODULE.py`."""

    name: str
    module: str
    old: str
    new: str
    explained: str = ""  # why it may survive

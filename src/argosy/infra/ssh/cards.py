"""The cards of a host, by the short names that needs use."""

from __future__ import annotations

from typing import Any

from argosy.infra.card_names import card_name
from argosy.model.needs import Accelerator, Capacity


def indices_by_card(facts: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Short name -> indices, from the facts of an agent."""
    found: dict[str, tuple[int, ...]] = {}
    for one in facts.get("gpus", ()):
        name = card_name(str(one["name"]), float(one["memory_gib"]))
        found[name] = (*found.get(name, ()), int(one["index"]))
    return found


def capacity(facts: dict[str, Any]) -> Capacity:
    """What a host has when nobody is there."""
    memory = {int(one["index"]): float(one["memory_gib"]) for one in facts.get("gpus", ())}
    cards = tuple(
        Accelerator(name, len(indices), memory[indices[0]])
        for name, indices in indices_by_card(facts).items()
    )
    return Capacity(float(facts["cpus"]), float(facts["memory_gib"]), cards)


def taken(facts: dict[str, Any], look: dict[str, Any]) -> Capacity:
    """What anybody has taken of it, from the answer to a look."""
    gone = set(look["gpus"])
    cards = tuple(
        Accelerator(name, len(gone.intersection(indices)))
        for name, indices in indices_by_card(facts).items()
    )
    return Capacity(float(look["cpus"]), float(look["memory_gib"]), cards)

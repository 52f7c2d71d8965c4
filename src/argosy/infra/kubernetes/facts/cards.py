"""The cards of nodes: what their labels say, by the short names that needs use, and back.

A node says how many cards it has as a resource (`nvidia.com/gpu: 8`), and which ones by labels,
whose keys and words differ by who labelled it. A card that is chosen by its short name is asked for
by the label that it came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from argosy.infra.card_names import card_name
from argosy.infra.kubernetes.facts.card_table import (
    BARE,
    LABELS,
    MEMORY_LABELS,
    NVIDIA,
    PINNED,
    ROWS,
)
from argosy.infra.kubernetes.marks import CONTAINER

# Slices of a card, as resources of their own or (where all slices of a node are alike) as products.
MIG_RESOURCE: Final = re.compile(r"nvidia\.com/(mig-[0-9cg.]+?\.([0-9]+)gb(?:\.me)?)")
MIG_PRODUCT: Final = re.compile(r"-MIG-([0-9cg.]+?\.([0-9]+)gb(?:\.me)?)", re.IGNORECASE)
SHARED: Final = "-SHARED"  # ends the product where several pods share a card by time
# Two cards of one name, which some labellers do not tell apart.
SMALL_A100, SMALL_A100_GIB, LARGE_A100 = "A100", 60.0, "A100-80GB"


@dataclass(frozen=True, slots=True, order=True)
class Card:
    """One kind of card on a cluster, and how a pod asks for it."""

    name: str  # the short one
    resource: str
    label: str = ""  # that says which product; "": none does
    value: str = ""
    memory_gib: float = 0.0  # 0: unknown
    pinned: tuple[tuple[str, str], ...] = ()  # further labels that a pod must ask for


def cards_of(labels: Mapping[str, str], amounts: Mapping[str, str]) -> dict[Card, int]:
    """The cards of one node, with how many of each it has. `amounts`: by resource."""
    found: dict[Card, int] = {}
    for resource, amount in sorted(amounts.items()):
        if is_card(resource) and amount.isdecimal() and int(amount):
            card = _card(resource, labels)
            found[card] = found.get(card, 0) + int(amount)
    return found


def cards_of_pod(pod: Mapping[str, Any]) -> int:
    """How many cards our container of a pod has."""
    return sum(
        int(amount)
        for one in pod["spec"]["containers"]
        if one["name"] == CONTAINER
        for resource, amount in ((one.get("resources") or {}).get("limits") or {}).items()
        if is_card(resource)
    )


def is_card(resource: str) -> bool:
    """Whether a resource of that name is cards."""
    return resource in LABELS or MIG_RESOURCE.fullmatch(resource) is not None


def _card(resource: str, labels: Mapping[str, str]) -> Card:
    mig = MIG_RESOURCE.fullmatch(resource)
    if mig:
        return Card(mig[1], resource, memory_gib=float(mig[2]))
    pinned = tuple((key, labels[key]) for key in PINNED.get(resource, ()) if labels.get(key))
    for key in LABELS[resource]:
        value = labels.get(key, "")
        if value:
            name, said = named(value)
            memory = _memory(labels, said)
            large = name == SMALL_A100 and memory > SMALL_A100_GIB
            return Card(LARGE_A100 if large else name, resource, key, value, memory, pinned)
    return Card(BARE[resource], resource, memory_gib=_memory(labels, 0.0), pinned=pinned)


@lru_cache(maxsize=1024)  # of all the nodes of a cluster, few differ
def named(product: str) -> tuple[str, float]:
    """Short name and GiB (0: unknown) of a product, in the words of any label."""
    mig = MIG_PRODUCT.search(product)
    if mig:
        return f"mig-{mig[1].lower()}", float(mig[2])
    plain = product.removesuffix(SHARED)
    for name, memory, values in _rows():
        if any(plain.lower() == value.lower() for words in values.values() for value in words):
            return name, memory
    size = re.search(r"(\d+)GB", plain, re.IGNORECASE)
    said = float(size[1]) if size else 0.0
    words = plain.replace("_", "-")
    name = card_name(words if re.search("[A-Z]", words) else words.upper(), said)
    return name, said or next((memory for known, memory, _ in _rows() if known == name), 0.0)


def _rows() -> Iterator[tuple[str, float, Mapping[str, tuple[str, ...]]]]:
    for rows in ROWS.values():
        yield from rows


def _memory(labels: Mapping[str, str], said: float) -> float:
    for key in MEMORY_LABELS:
        if labels.get(key, "").isdecimal():
            return round(int(labels[key]) / 1024, 1)
    return said


def asked(name: str, seen: Iterable[Card] = ()) -> tuple[Card, ...]:
    """All kinds of card that a pod may ask for by that short name: of one resource, sorted.

    `seen`: those of the cluster's nodes. Where none of them has the name (offline, or on a cluster
    that makes its nodes on demand) it is asked for in the words of every labeller in the table.
    """
    mine = [card for card in seen if card.name.lower() == name.lower()] or list(_tabled(name))
    resource = mine[0].resource if mine else NVIDIA
    return tuple(sorted({card for card in mine if card.resource == resource}))


def resource_of(cards: Iterable[Card]) -> str:
    """The resource that counts them; NVIDIA's where nobody knows the name that was asked for."""
    return next((card.resource for card in cards), NVIDIA)


def _tabled(name: str) -> Iterator[Card]:
    """The cards of that name in the table."""
    wanted = name.lower()
    mig = MIG_RESOURCE.fullmatch(f"nvidia.com/{wanted}")
    if mig:
        yield Card(wanted, f"nvidia.com/{wanted}", memory_gib=float(mig[2]))
    for resource, bare in BARE.items():
        if bare.lower() == wanted:
            yield Card(bare, resource)
    for resource, rows in ROWS.items():
        for short, memory, values in rows:
            if short.lower() == wanted:
                for label, words in values.items():
                    for value in words:
                        yield Card(short, resource, label, value, memory)


def known_cards() -> tuple[tuple[str, float], ...]:
    """Short name and GiB of every card in the table."""
    return tuple((name, memory) for name, memory, _ in _rows())

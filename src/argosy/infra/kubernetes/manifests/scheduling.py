"""Where a pod may run, and where it had better run: affinities.

What must hold is only what the need says: the card, by the label that names it. The node that the
plan chose, spot capacity and nearness are preferences: the scheduler knows better what is free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from argosy.infra.kubernetes.facts.cards import Card
from argosy.infra.kubernetes.facts.taints import SPOT
from argosy.infra.kubernetes.marks import GROUP, Json
from argosy.model.action import LeaseRequest

HOST_WEIGHT: Final = 100  # of the node that the plan chose
SPOT_WEIGHT: Final = 60
# Topology label -> how much it is worth to be near one's group by it.
NEAR: Final[Mapping[str, int]] = {
    "topology.kubernetes.io/zone": 50,
    "cloud.google.com/gce-topology-block": 30,
    "topology.k8s.aws/network-node-layer-2": 30,
}


def affinity(request: LeaseRequest, cards: Sequence[Card]) -> Json:
    """Which nodes it must and should have. `cards`: the kinds that may be given.

    Where the plan chose a node, nothing else pulls: the scheduler weighs nearness as much as all
    preferred nodes together, and a small task that it draws to the node meant for a large one
    would keep the group from ever being placed.
    """
    nodes: Json = {}
    terms = _card_terms(cards)
    if terms:
        nodes["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    wanted = _preferred(request)
    if wanted:
        nodes["preferredDuringSchedulingIgnoredDuringExecution"] = wanted
    found: Json = {"nodeAffinity": nodes} if nodes else {}
    if request.placement.host is None:
        near = {"preferredDuringSchedulingIgnoredDuringExecution": _near(request)}
        found["podAffinity"] = near
    return found


def _card_terms(cards: Sequence[Card]) -> list[Json]:
    """One term a labeller: a node needs to satisfy any one of them."""
    if any(not card.label for card in cards):
        return []
    values: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    for card in cards:
        values.setdefault((card.label, card.pinned), []).append(card.value)
    return [
        {
            "matchExpressions": [
                _among(label, sorted(set(words))),
                *(_among(key, [value]) for key, value in pinned),
            ]
        }
        for (label, pinned), words in values.items()
    ]


def _among(key: str, values: list[str]) -> Json:
    return {"key": key, "operator": "In", "values": values}


def _preferred(request: LeaseRequest) -> list[Json]:
    found: list[Json] = []
    host = request.placement.host
    if host:
        fields = [_among("metadata.name", [host])]
        found.append({"weight": HOST_WEIGHT, "preference": {"matchFields": fields}})
    if request.placement.need.use_spot:
        found += [
            {"weight": SPOT_WEIGHT, "preference": {"matchExpressions": [_among(key, [value])]}}
            for key, value in SPOT.items()
        ]
    return found


def _near(request: LeaseRequest) -> list[Json]:
    def term(key: str) -> Json:
        group = {"matchLabels": {GROUP: str(request.group)}}
        return {"labelSelector": group, "topologyKey": key}

    return [{"weight": weight, "podAffinityTerm": term(key)} for key, weight in NEAR.items()]

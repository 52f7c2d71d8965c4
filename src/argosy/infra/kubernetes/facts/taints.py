"""Taints of nodes, and what our pods put up with.

A pod tolerates what the context says, the taints that keep nodes with cards for those who ask for
cards, and, for a while, a node that is silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from argosy.infra.kubernetes.config import ContextConfig
from argosy.infra.kubernetes.marks import Json
from argosy.model.needs import Need

NOT_READY: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
# Who sells capacity that may be taken back: label (and taint) -> its value.
SPOT: Final[Mapping[str, str]] = {
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
}
MIG_TAINT: Final = "nvidia.com/gpu"  # of nodes whose cards are cut into slices, too


def tolerations(need: Need, resources: Iterable[str], config: ContextConfig) -> list[Json]:
    """What a pod puts up with. `resources`: the cards that it asks for."""
    found: list[Json] = [dict(one) for one in config.tolerations]
    for key in NOT_READY:
        found.append(
            {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": config.tolerate_seconds,
            }
        )
    keys = sorted(set(resources))
    if any(key.startswith("nvidia.com/mig-") for key in keys):
        keys.append(MIG_TAINT)
    found += [{"key": key, "operator": "Exists"} for key in keys]
    if need.use_spot:
        found += [
            {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
            for key, value in SPOT.items()
        ]
    return found


def tolerated(taint: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of the tolerations answers that taint, as the scheduler decides it."""
    return any(_answers(one, taint) for one in tolerations)


def _answers(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint.get("effect"):
        return False
    if key and key != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")

"""What a cluster could give: its nodes, less what runs there, as the scheduler counts it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from argosy.infra.kubernetes.config import ContextConfig
from argosy.infra.kubernetes.facts.cards import Card, cards_of, is_card, known_cards
from argosy.infra.kubernetes.facts.quantities import GIB, amount
from argosy.infra.kubernetes.facts.taints import tolerated, tolerations
from argosy.model.ids import InfraName
from argosy.model.needs import Accelerator, Capacity, Need
from argosy.model.plan import Offer

NODES_MADE: Final = 1000  # at most by a cluster that makes nodes on demand
NODE_MADE_AFTER: Final = 120.0  # seconds until such a node is there
ZONE: Final = "topology.kubernetes.io/zone"
CARDS_MADE: Final = 16  # at most on one such node
MADE: Final = Capacity(cpus=256.0, memory_gib=4096.0)  # what such a node has at most
NETWORK: Final = "isolated"  # every pod has an address of its own
BLOCKING: Final = ("NoSchedule", "NoExecute")
STATES: Final = "node.kubernetes.io/"  # taints that pass: cordoned, short of memory, not ready
DISK: Final = "ephemeral-storage"
PODS_DEFAULT: Final = 110.0  # on one node, where it does not say


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is needed of a node."""

    name: str
    ready: bool
    why_not: str = ""  # the kubelet's message, or the controller's, when it is not ready
    cordoned: bool = False
    taints: tuple[tuple[str, str, str], ...] = ()  # key, value, effect
    labels: tuple[tuple[str, str], ...] = ()
    cpus: float = 0.0
    memory_gib: float = 0.0
    disk_gib: float | None = None  # for what containers write; None: it does not say
    pods: float = PODS_DEFAULT
    cards: tuple[tuple[Card, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What a pod takes from its node."""

    node: str  # "": it is not on one, and takes nothing yet
    cpus: float = 0.0
    memory_gib: float = 0.0
    disk_gib: float = 0.0
    cards: tuple[tuple[str, int], ...] = ()  # by resource


def node_facts(node: Mapping[str, Any]) -> NodeFacts:
    """Trimmed from the API's JSON."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    labels: Mapping[str, str] = metadata.get("labels") or {}
    allocatable: Mapping[str, str] = status.get("allocatable") or {}
    conditions = (one for one in status.get("conditions") or () if one.get("type") == "Ready")
    ready: Mapping[str, Any] = next(conditions, {})
    is_ready = ready.get("status") == "True"
    return NodeFacts(
        name=metadata["name"],
        ready=is_ready,
        why_not="" if is_ready else str(ready.get("message") or "it has not said that it is ready"),
        cordoned=bool(spec.get("unschedulable")),
        taints=tuple(
            (str(one.get("key", "")), str(one.get("value") or ""), str(one.get("effect", "")))
            for one in spec.get("taints") or ()
        ),
        labels=tuple(sorted(labels.items())),
        cpus=amount(allocatable.get("cpu", "0")),
        memory_gib=amount(allocatable.get("memory", "0")) / GIB,
        disk_gib=amount(allocatable[DISK]) / GIB if DISK in allocatable else None,
        pods=amount(allocatable.get("pods", PODS_DEFAULT)),
        cards=tuple(cards_of(labels, allocatable).items()),
    )


def pod_facts(pod: Mapping[str, Any]) -> PodFacts:
    """Trimmed from the API's JSON; of a pod that has ended nothing is left."""
    spec = pod.get("spec") or {}
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return PodFacts("")
    taken = _requests(spec)
    return PodFacts(
        node=str(spec.get("nodeName") or ""),
        cpus=taken.get("cpu", 0.0),
        memory_gib=taken.get("memory", 0.0) / GIB,
        disk_gib=taken.get(DISK, 0.0) / GIB,
        cards=tuple(sorted((key, int(count)) for key, count in taken.items() if is_card(key))),
    )


def _requests(spec: Mapping[str, Any]) -> dict[str, float]:
    """What the scheduler counts: all containers together, or the largest moment before they run.

    Containers of `initContainers` with `restartPolicy: Always` run on beside all later ones.
    """
    kept: dict[str, float] = {}  # of those that run on
    peak: dict[str, float] = {}
    for one in spec.get("initContainers") or ():
        own = _request(one)
        if one.get("restartPolicy") == "Always":
            kept = _sum(kept, own)
            peak = _most(peak, kept)
        else:
            peak = _most(peak, _sum(kept, own))
    for one in spec.get("containers") or ():
        kept = _sum(kept, _request(one))
    found = _most(peak, kept)
    whole = _request(spec)  # of the pod as a whole, where it says one
    found = {**found, **{key: value for key, value in whole.items() if key in ("cpu", "memory")}}
    overhead = {key: amount(value) for key, value in (spec.get("overhead") or {}).items()}
    return _sum(found, overhead)


def _request(one: Mapping[str, Any]) -> dict[str, float]:
    """Requests; where only a limit is given, that is the request."""
    resources = one.get("resources") or {}
    given = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {key: amount(value) for key, value in given.items()}


def _sum(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {key: one.get(key, 0.0) + other.get(key, 0.0) for key in {*one, *other}}


def _most(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {key: max(one.get(key, 0.0), other.get(key, 0.0)) for key in {*one, *other}}


def offers(
    infra: InfraName,
    need: Need,
    nodes: Sequence[NodeFacts],
    pods: Iterable[PodFacts],
    config: ContextConfig,
) -> tuple[Offer, ...]:
    """One offer a node that our pods may run on, and one of nodes that could be made.

    All nodes, whatever cards the need names: the planner counts, for all tasks at once. A node that
    is cordoned, or short of memory or disk, has nothing now, and would have it again; of one that
    is not ready nobody knows.
    """
    by_node: dict[str, list[PodFacts]] = {}
    for pod in pods:
        by_node.setdefault(pod.node, []).append(pod)
    found = [
        _offer(infra, node, by_node.get(node.name, ()))
        for node in sorted(nodes, key=lambda one: one.name)
        if _may_run_on(node, need, config)
    ]
    if config.autoscaling:
        found.append(_made_on_demand(infra, need, nodes))
    return tuple(found)


def seen_cards(nodes: Iterable[NodeFacts]) -> tuple[Card, ...]:
    """Every kind of card on the cluster, once."""
    return tuple(sorted({card for node in nodes for card, _ in node.cards}))


def _may_run_on(node: NodeFacts, need: Need, config: ContextConfig) -> bool:
    """Whether the selectors of the context choose it, and pods put up with its taints."""
    own = config.pod_config.get("spec") or {}
    labels = dict(node.labels)
    selector = {**dict(config.node_selector), **(own.get("nodeSelector") or {})}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    accepted = [
        *tolerations(need, {card.resource for card, _ in node.cards}, config),
        *(own.get("tolerations") or ()),
    ]
    return all(
        tolerated({"key": key, "value": value, "effect": effect}, accepted)
        for key, value, effect in node.taints
        if effect in BLOCKING and not key.startswith(STATES)
    )


def _offer(infra: InfraName, node: NodeFacts, pods: Sequence[PodFacts]) -> Offer:
    total = Capacity(node.cpus, node.memory_gib, _by_name(node.cards), node.disk_gib)
    zone = dict(node.labels).get(ZONE, "")
    none = Offer(infra, node.name, Capacity(), total, 0, region=zone, network=NETWORK)
    if not node.ready:
        return replace(none, silent=node.why_not)
    unwell = any(key.startswith(STATES) and effect in BLOCKING for key, _, effect in node.taints)
    if node.cordoned or unwell or len(pods) >= node.pods:
        return none
    return replace(none, free=total.minus(_taken(node, pods)), count=1)


def _by_name(cards: Iterable[tuple[Card, int]]) -> tuple[Accelerator, ...]:
    found: dict[str, Accelerator] = {}
    for card, count in cards:
        more = found.get(card.name, Accelerator(card.name, 0, card.memory_gib)).count + count
        found[card.name] = Accelerator(card.name, more, card.memory_gib)
    return tuple(found.values())


def _taken(node: NodeFacts, pods: Sequence[PodFacts]) -> Capacity:
    names = {card.resource: card.name for card, _ in node.cards}
    counts: dict[str, int] = {}
    for pod in pods:
        for resource, count in pod.cards:
            if resource in names:
                counts[names[resource]] = counts.get(names[resource], 0) + count
    cards = tuple(Accelerator(name, count) for name, count in counts.items())
    return Capacity(
        sum(one.cpus for one in pods),
        sum(one.memory_gib for one in pods),
        cards,
        sum(one.disk_gib for one in pods),
    )


def unseen(infra: InfraName, need: Need) -> Offer:
    """What may be offered where nodes may not be seen: the scheduler says what there is."""
    return replace(_made_on_demand(infra, need, ()), ready_after=0.0)


def _made_on_demand(infra: InfraName, need: Need, nodes: Sequence[NodeFacts]) -> Offer:
    """A node as large as anybody makes them, with any card that is known or named."""
    known = dict(known_cards()) | {card.name: card.memory_gib for card in seen_cards(nodes)}
    named = (one.name for one in need.accelerators if one.name)
    cards = tuple(
        Accelerator(name, CARDS_MADE, known.get(name, 0.0))
        for name in dict.fromkeys((*known, *named))
    )
    room = Capacity(MADE.cpus, MADE.memory_gib, cards)
    return Offer(infra, None, room, room, NODES_MADE, ready_after=NODE_MADE_AFTER, network=NETWORK)

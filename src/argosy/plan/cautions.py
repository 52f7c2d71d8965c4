"""What will run, but not as one might think: the warnings of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import pairwise

from argosy.model.ids import InfraName, NodeId
from argosy.model.plan import Offer, Placement
from argosy.model.spec import GroupSpec, Probe, TaskSpec
from argosy.plan import volumes

# Kind of infra -> words of `resources` that it carries out, and others only read.
CARRIED_OUT = {
    "kubernetes": (
        "use_spot", "image_id", "disk_size", "ephemeral_storage", "labels", "priority_class",
    ),
}  # fmt: skip
NAMED_MOST = 4  # nodes, paths and ports that one warning names
ONE_NETWORK = (
    "one host, whose network they share: each program must bind $ARGOSY_HOSTNAME, not 0.0.0.0"
)
HAS = "has it, too, at an address of its own: each program must bind $ARGOSY_HOSTNAME, not 0.0.0.0"
ONE_ADDRESS = (
    "{}, whose one address they share, as the group is on several hosts: give each a port of its "
    "own, or ask for so much that one host cannot take both"
)

HostKey = tuple[InfraName, str | None]
Ports = tuple[int, int]  # the first and the last of a range


def warnings(
    spec: GroupSpec, placements: Sequence[Placement], offers: Sequence[Offer]
) -> tuple[str, ...]:
    """What people should know of these placements; of those that are missing, nothing."""
    by_host = {(offer.infra, offer.host): offer for offer in offers}
    elastic = {key: offer for key, offer in by_host.items() if offer.elastic_cpus}
    found = list(not_carried_out(spec, placements))
    for task in spec.tasks:
        mine = [placement for placement in placements if placement.node.task == task.name]
        found += _beyond(task, mine, elastic)
        found += _written_here(task, mine, by_host)
    found += _beyond_together(placements, elastic)
    found += _clashes(spec, placements, by_host)
    found += _beside_proxies(spec, placements, on_several_hosts(spec, placements, offers))
    found += volumes.cautions(spec, placements, by_host)
    infras = sorted({placement.infra for placement in placements})
    if len(infras) > 1 and spec.inter_connection is None:
        found.append(
            f"the group is spread over {', '.join(infras)}: host names work within each, not across"
        )
    return tuple(found)


def not_carried_out(spec: GroupSpec, placements: Sequence[Placement] = ()) -> tuple[str, ...]:
    """What was read and checked, and is no more than that where the nodes are placed, or may be."""
    found = []
    for task in spec.tasks:
        placed = {one.infra for one in placements if one.node.task == task.name}
        meant = placed or {need.infra or "" for need in task.needs}
        kinds = {infra.partition("/")[0] for infra in meant}
        said = (one for one in task.not_carried_out if not _carried_out(one, kinds))
        found += [f'task "{task.name}": {sentence}' for sentence in said]
    return tuple(found)


def _carried_out(sentence: str, kinds: set[str]) -> bool:
    """Whether what the sentence is about is carried out on the only kind of infra that is used."""
    for kind, words in CARRIED_OUT.items():
        if kinds == {kind}:
            return sentence.startswith(tuple(f"`resources.{word}`:" for word in words))
    return False


# Cores and memory beyond what there is


def _beyond(
    task: TaskSpec, placements: Iterable[Placement], by_host: Mapping[HostKey, Offer]
) -> list[str]:
    """A task that wants more cores or memory than an elastic host has: once a task."""
    for placement in placements:
        offer = by_host.get((placement.infra, placement.host))
        if offer is None:
            continue
        asked, total = placement.need, offer.total
        lines = []
        if (asked.cpus or 0.0) > total.cpus:
            lines.append(f"{asked.cpus:g} cpus, {offer.infra} has {total.cpus:g}")
        if (asked.memory_gib or 0.0) > total.memory_gib:
            lines.append(f"{asked.memory_gib:g} GiB, {offer.infra} has {total.memory_gib:.4g}")
        if lines:
            return [f'task "{task.name}" asks for {"; ".join(lines)}: it runs with what is there']
    return []


def _beyond_together(
    placements: Sequence[Placement], by_host: Mapping[HostKey, Offer]
) -> list[str]:
    """Nodes that fit one by one, and not all at once."""
    lines = []
    for (infra, host), offer in by_host.items():
        mine = [one.need for one in placements if (one.infra, one.host) == (infra, host)]
        cpus = sum(need.cpus or 0.0 for need in mine)
        memory = sum(need.memory_gib or 0.0 for need in mine)
        alone = any((need.cpus or 0.0) > offer.total.cpus for need in mine)
        if cpus > offer.total.cpus and not alone:
            lines.append(
                f"together the tasks ask for {cpus:g} cpus, {infra} has {offer.total.cpus:g}"
            )
        alone = any((need.memory_gib or 0.0) > offer.total.memory_gib for need in mine)
        if memory > offer.total.memory_gib and not alone:
            has = f"{infra} has {offer.total.memory_gib:.4g}"
            lines.append(
                f"together the tasks ask for {memory:g} GiB, {has}: they may run out of it"
            )
    return lines


# Files of this machine


def _written_here(
    task: TaskSpec, placements: Iterable[Placement], by_host: Mapping[HostKey, Offer]
) -> list[str]:
    """Mounts outside of the node's own folder, where that is the user's own machine."""
    offers = [by_host.get((one.infra, one.host)) for one in placements]
    paths = [one.destination for one in task.file_mounts if one.destination[:1] in ("/", "~")]
    if not paths or not any(offer is not None and offer.own_machine for offer in offers):
        return []
    return [
        f'task "{task.name}" writes {_listed(paths)} on this machine itself, over what is there:'
        " a relative destination lies in the node's own folder"
    ]


# Ports on a host that is one network for all its nodes


def _clashes(
    spec: GroupSpec, placements: Sequence[Placement], by_host: Mapping[HostKey, Offer]
) -> list[str]:
    """Ports that several nodes on one host would bind, where nodes have no network of their own."""
    here: dict[HostKey, list[tuple[Ports, NodeId]]] = {}
    spread = on_several_hosts(spec, placements, by_host.values())
    for placement in placements:
        key = (placement.infra, placement.host)
        offer = by_host.get(key)
        network = spec.network or (offer.network if offer is not None else "")
        if (network == "host" or placement.infra in spread) and placement.host is not None:
            ports = _ports(spec.task(placement.node.task), placement)
            here.setdefault(key, []).extend((port, placement.node) for port in ports)
    return [
        f"{_listed([str(node) for node in nodes])} use {_listed(ports)} on "
        + (ONE_ADDRESS.format(host) if infra in spread else ONE_NETWORK)
        for (infra, host), bound in here.items()
        for nodes, ports in _shared(bound).items()
    ]


def _beside_proxies(
    spec: GroupSpec, placements: Sequence[Placement], spread: Container[InfraName]
) -> list[str]:
    """Nodes that use the port of a balanced name on hosts where its proxy has it, too: at another
    address, so that only who binds all addresses is in its way.
    """
    lines = []
    for name, port in [(one.name, port) for one in spec.tasks for port in one.balance]:
        nodes = [
            str(one.node)
            for one in placements
            if one.infra in spread
            and any(low <= port <= high for low, high in _ports(spec.task(one.node.task), one))
        ]
        if nodes:
            proxy = f"hosts where the proxy of {spec.balanced_name(name)}:{port}"
            lines.append(f"{_listed(nodes)} use port {port} on {proxy} {HAS}")
    return lines


def on_several_hosts(
    spec: GroupSpec, placements: Iterable[Placement], offers: Iterable[Offer]
) -> frozenset[InfraName]:
    """The infras where the nodes use the hosts' own addresses, since they are on several hosts
    whose isolated networks end there.
    """
    apart = {offer.infra for offer in offers if offer.apart} if spec.network != "isolated" else ()
    hosts = {(one.infra, one.host) for one in placements if one.infra in apart}
    count = Counter(infra for infra, _ in hosts)
    return frozenset(infra for infra, hosts in count.items() if hosts > 1)


def _ports(task: TaskSpec, placement: Placement) -> set[Ports]:
    """What a node's program is said to listen on: `ports`, `ready` and `balance`."""
    found = {(port, port) for port in task.balance}
    if task.ready is not None and task.ready.kind in (Probe.HTTP, Probe.TCP):
        found.add((task.ready.port, task.ready.port))
    for text in placement.need.ports:
        first, _, last = text.partition("-")
        found.add((int(first), int(last or first)))
    return found


def _shared(bound: Sequence[tuple[Ports, NodeId]]) -> dict[tuple[NodeId, ...], list[str]]:
    """Nodes that would bind the same ports -> these ports, in words."""
    edges = sorted({edge for (first, last), _ in bound for edge in (first, last + 1)})
    found: dict[tuple[NodeId, ...], list[str]] = {}
    for first, after in pairwise(edges):  # between two edges all ports have the same nodes
        nodes = {node for (low, high), node in bound if low <= first <= high}
        if len(nodes) > 1:
            word = f"port {first}" if after == first + 1 else f"ports {first}-{after - 1}"
            found.setdefault(tuple(sorted(nodes)), []).append(word)
    return found


def _listed(words: Sequence[str]) -> str:
    more = len(words) - NAMED_MOST
    if more > 0:
        return f"{', '.join(words[:NAMED_MOST])} and {more} more"
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))

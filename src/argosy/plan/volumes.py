"""What volumes ask of the places of nodes, and what people should know of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from argosy.model.ids import InfraName, NodeId, TaskName
from argosy.model.plan import Offer, Placement
from argosy.model.spec import GroupSpec
from argosy.model.volumes import KUBERNETES, VolumeKind, VolumeUse, on_infra

HOSTS_TRIED = 64  # for a volume that has no host yet
SHARED = "ARGOSY_SHARED_DIR"
SHARED_HINT = (
    "mount one folder that all hosts have in every task, `volumes: {/shared: {host_path: /mnt/x, "
    "type: nfs}}`, or ask for so little that one host takes the group"
)


def allowed(uses: Iterable[VolumeUse], offer: Offer) -> bool:
    """Whether a node with these volumes can be on that host, or infra."""
    return all(
        on_infra(use, offer.infra)
        and (not use.spec.host or not offer.apart or offer.host == use.spec.host)
        for use in uses
    )


def pinned(uses: Iterable[VolumeUse]) -> frozenset[str]:
    """The hosts that the volumes name."""
    return frozenset(use.spec.host for use in uses if use.spec.host)


@dataclass(frozen=True, slots=True)
class Loose:
    """Volumes on hosts of a pool, none of them decided yet, that several nodes mount: these nodes
    have to be on one host.
    """

    ids: frozenset[str]
    tasks: tuple[TaskName, ...]
    hosts: frozenset[str | None]  # of nodes that stay where they are; none: any host will do

    def at(self, uses: Sequence[VolumeUse], host: str) -> tuple[VolumeUse, ...]:
        """The same volumes, on that host."""
        return tuple(
            replace(use, spec=replace(use.spec, host=host)) if use.id in self.ids else use
            for use in uses
        )

    def candidates(self, offers: Sequence[Offer]) -> list[str]:
        """The hosts that may be tried."""
        known = dict.fromkeys(one.host for one in offers if one.apart and one.host is not None)
        return [host for host in known if not self.hosts or host in self.hosts][:HOSTS_TRIED]


def loose(
    spec: GroupSpec, nodes: Sequence[NodeId], kept: Sequence[Placement], offers: Sequence[Offer]
) -> Loose | None:
    """The volumes that several of the nodes mount, and that may be on any one host."""
    apart = dict.fromkeys(offer.infra for offer in offers if offer.apart)
    if not apart:
        return None
    users: dict[str, list[tuple[TaskName, str | None]]] = {}
    where: dict[NodeId, str | None] = {one.node: one.host for one in kept}
    for node in (*nodes, *where):
        for use in spec.task(node.task).volume_uses():
            meant = any(on_infra(use, infra) for infra in apart)  # else: one folder for all hosts
            if _on_one_host(use) and not use.spec.host and meant:
                users.setdefault(use.id, []).append((node.task, where.get(node)))
    several = {id_: found for id_, found in users.items() if len(found) > 1}
    if not several:
        return None
    tasks = dict.fromkeys(task for found in several.values() for task, _ in found)
    hosts = frozenset(host for found in several.values() for _, host in found if host)
    return Loose(frozenset(several), tuple(tasks), hosts)


def _on_one_host(use: VolumeUse) -> bool:
    """Whether its bytes are a folder of one host."""
    return use.spec.kind is VolumeKind.LOCAL and not use.ephemeral


# For people


def places(spec: GroupSpec, placements: Sequence[Placement]) -> tuple[str, ...]:
    """Where the bytes of its volumes are, of those that are on one host of a pool."""
    found: dict[str, str] = {}
    for placement in placements:
        for use in spec.task(placement.node.task).volume_uses():
            if _on_one_host(use) and placement.infra.startswith("ssh/"):
                when = "where it is" if use.spec.host else "from now on, as it is used first there"
                host = f"{placement.host} of {placement.infra}"
                found.setdefault(use.id, f"volume {use.spec.name}: {host}, {when}")
    return tuple(found.values())


def refusals(
    spec: GroupSpec,
    nodes: Sequence[NodeId],
    offers: Sequence[Offer],
    together: Loose | None,
    *,
    never: bool,
) -> tuple[str, ...]:
    """Why volumes keep the nodes from places that would do without them."""
    when = "even when empty" if never else "now"
    lines = []
    for task in dict.fromkeys(node.task for node in nodes):
        uses = spec.task(task).volume_uses()
        lines += [
            _nowhere(task, use, offers) for use in uses
            if not any(allowed((use,), offer) for offer in offers)
        ]  # fmt: skip
        lines += [
            f'task "{task}" must be on {use.spec.host}, where its volume {use.spec.name!r} is, and '
            f"there is no room {when}"
            for use in uses
            if use.spec.host and any(allowed((use,), offer) for offer in offers)
        ]
    if together is not None and not lines:
        tasks = ", ".join(together.tasks)
        lines.append(
            f"the nodes of {tasks} mount one volume of type `local` and must be on one host, and "
            f"no host has room for all of them {when}: a volume of type `nfs` may be on several"
        )
    return tuple(lines)


def _nowhere(task: TaskName, use: VolumeUse, offers: Sequence[Offer]) -> str:
    infras = ", ".join(sorted({offer.infra for offer in offers})) or "no infra"
    what = f"volume {use.spec.name!r}" if use.spec.name else f"volume at {use.destination}"
    kind = f"of type `{use.spec.kind}`" if use.spec.kind else "of the group"
    if use.spec.host and any(on_infra(use, offer.infra) for offer in offers):
        return f'task "{task}": its {what} is on {use.spec.host}, which {infras} does not offer'
    at = f" on `{use.spec.infra}`" if use.spec.infra else ""
    return f'task "{task}": its {what}, {kind}{at}, cannot be mounted on {infras}'


def cautions(
    spec: GroupSpec,
    placements: Sequence[Placement],
    by_host: Mapping[tuple[str, str | None], Offer],
) -> list[str]:
    """What will run, but not as one might think."""
    lines = []
    machines = {(one.infra, "" if _is_local(one.infra) else one.host) for one in placements}
    asking = [task.name for task in spec.tasks if SHARED in task.run or SHARED in task.setup]
    several = len(machines) > 1
    if several and asking and not spec.shared_volume():
        lines.append(
            f"{', '.join(asking)}: ${SHARED} is not set, as the group is on several hosts and has "
            f"no folder that is the same on all: {SHARED_HINT}"
        )
    for task in spec.tasks:
        mine = [one for one in placements if one.node.task == task.name]
        apart = {one.host for one in mine if _apart(one, by_host)}
        for use in task.volume_uses():
            if use.ephemeral and len(apart) > 1:
                lines.append(
                    f'task "{task.name}": the volume at {use.destination} is a folder of its own on'
                    f" each of {len(apart)} hosts: a volume of type `nfs` is the same on all"
                )
            elif use.ephemeral and use.spec.kind is VolumeKind.PVC and mine and not any(
                one.infra.partition("/")[0] == KUBERNETES for one in mine
            ):  # fmt: skip
                lines.append(
                    f'task "{task.name}": the volume at {use.destination} is a folder on '
                    f"{mine[0].infra}, which has no claims"
                )
    return lines


def _apart(placement: Placement, by_host: Mapping[tuple[str, str | None], Offer]) -> bool:
    offer = by_host.get((placement.infra, placement.host))
    return offer is not None and offer.apart


def _is_local(infra: InfraName) -> bool:
    return infra == "local" or infra.startswith("local/")

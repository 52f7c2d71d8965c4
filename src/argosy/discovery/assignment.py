"""The `assign` message: everything an agent needs for the attempts of one lease, as JSON values.

Its fields are documented in docs/agent-protocol.md. The message is a function of the record, so a
repeated assignment is the same message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from argosy.discovery.env import cards, job_id, order_environment, task_environment
from argosy.model.action import Assign
from argosy.model.group import Book, Group, Lease, LeaseState, Order, Outcome, Stage
from argosy.model.ids import InfraName, LeaseId, NodeId, TaskName
from argosy.model.plan import Placement
from argosy.model.spec import FileMount, GroupSpec, TaskSpec
from argosy.model.volumes import KUBERNETES, VolumeKind, VolumeUse, pod_path

LOG_CAP_BYTES: Final = 1 << 30  # of one attempt: the oldest part is freed beyond it


def compose(
    group: Group,
    assign: Assign,
    *,
    gpu_indices: Sequence[int] = (),
    log_cap_bytes: int = LOG_CAP_BYTES,
    book: Mapping[str, Any] | None = None,
    spread: bool = False,
    shared: bool | None = None,
) -> dict[str, Any]:
    """The message of one `Assign`.

    `gpu_indices`: the cards that the lease holds. `book`: its `book_fields`, where the caller has
    them for another lease already. `spread`: its nodes have the addresses of their hosts, at which
    those on other hosts reach them. `shared`: `on_one_host`, where the caller knows it.
    """
    placement = lease_of(group, assign.lease).placement
    names = dict.fromkeys([placement.node.task, *(order.node.task for order in assign.orders)])
    tasks = {name: _task(group, group.spec.task(name), placement, log_cap_bytes) for name in names}
    return {
        "type": "assign",
        "lease": assign.lease,
        "serial": [assign.serial.life, assign.serial.count],
        "group": group_fields(group, spread=spread, shared=shared),
        "tasks": tasks,
        "orders": [_order(group, order, gpu_indices) for order in assign.orders],
        "book": book_fields(group.spec, assign.book) if book is None else book,
    }


def lease_of(group: Group, lease: LeaseId) -> Lease:
    """The lease of that id; KeyError when the group has none."""
    for one in group.leases:
        if one.id == lease:
            return one
    raise KeyError(lease)


def on_several_hosts(group: Group, infra: InfraName) -> bool:
    """Whether the group's nodes there are on several hosts. A lease that was not seen yet, and
    whose placement names no host, counts as one of its own.
    """
    hosts = {
        lease.host or lease.placement.host or lease.id
        for lease in group.leases
        if lease.placement.infra == infra and lease.state < LeaseState.RELEASING and not lease.lost
    }
    return len(hosts) > 1


def on_one_host(group: Group) -> bool:
    """Whether all that runs of the group, and all that has run in it and was not lost, is on one
    host: then a folder there is the same for all its nodes. All of a local infra is one machine.
    """
    places = {
        (lease.placement.infra, lease.host or lease.placement.host or lease.id)
        for lease in group.leases
        if lease.state < LeaseState.RELEASING and not lease.lost
    }
    places |= {
        (one.infra, one.host)
        for one in group.attempts
        if one.host and one.outcome is not Outcome.LOST and one.incarnation == group.incarnation
    }
    machines = {(infra, "" if _is_local(infra) else host) for infra, host in places}
    return len(machines) <= 1


def _is_local(infra: InfraName) -> bool:
    return infra == "local" or infra.startswith("local/")


def group_fields(
    group: Group, *, spread: bool = False, shared: bool | None = None
) -> dict[str, Any]:
    """GROUP of the protocol. `spread` and `shared`: as `compose` has them."""
    spec = group.spec
    return {
        "id": group.id,
        "name": spec.name,
        "incarnation": group.incarnation,
        "job_id": job_id(group.id),
        "network": "host" if spread else spec.network,
        "spread": spread,
        "shared": on_one_host(group) if shared is None else shared,
        "names": spec.inter_connection,
        "user": spec.user,
    }


def _task(group: Group, task: TaskSpec, placement: Placement, log_cap_bytes: int) -> dict[str, Any]:
    """TASK of the protocol."""
    mounts = [one for one in task.file_mounts if _travels(one)]
    ready = asdict(task.ready) if task.ready else None
    if ready is not None:
        ready["kind"] = str(ready["kind"])
    return {
        "num_nodes": task.num_nodes,
        "env": task_environment(group, task, placement),
        "secrets": dict(task.secrets),
        "setup": task.setup,
        "run": task.run,
        "strict": task.strict,
        "grace": task.grace,
        "ready": ready,
        "balance": list(task.balance),
        "workdir": task.workdir.path if task.workdir else "",
        "git": _repository(task),
        "file_mounts": [
            {"destination": one.destination, "source": one.source, "name": one.name}
            for one in mounts
        ],
        "gpus": cards(placement),
        "log_cap_bytes": log_cap_bytes,
        "ends_with": str(task.ends_with),
        "launcher": task.launcher,
        "volumes": _volumes(group, task, placement.infra),
    }


def _volumes(group: Group, task: TaskSpec, infra: InfraName) -> list[dict[str, Any]]:
    """VOLUMES of the protocol. In a pod they are mounted already."""
    if not task.volumes:
        return []
    common = None if _is_local(infra) else group.spec.shared_volume().get(task.name)
    return [
        _volume(use, use == common, in_pod=infra.partition("/")[0] == KUBERNETES)
        for use in task.volume_uses()
    ]


def _volume(use: VolumeUse, shares: bool, *, in_pod: bool) -> dict[str, Any]:
    spec = use.spec
    if in_pod:
        place, path = "there", pod_path(use)
    elif use.ephemeral:
        place, path = "group", use.id
    elif spec.host_path:
        place, path = "host", spec.host_path
    else:
        place, path = "shared", use.id
    own = spec.kind is VolumeKind.LOCAL and not spec.use_existing
    return {
        "destination": use.destination,
        "place": place,
        "path": path,
        "make": place in ("group", "shared") or (place == "host" and own),
        "mount": spec.kind is VolumeKind.NFS and not in_pod,
        "sub_path": use.sub_path,
        "read_only": use.read_only,
        "shares": shares,
    }


def _repository(task: TaskSpec) -> dict[str, str] | None:
    """What the agent clones; None when the code is no repository."""
    if task.workdir is None or not task.workdir.url:
        return None
    return {"url": task.workdir.url, "ref": task.workdir.ref}


def _travels(mount: FileMount) -> bool:
    """Local files are copied, and files of the web fetched, by the agent; a bucket (`mode`) not."""
    web = not mount.mode and mount.source.startswith(("https://", "http://"))
    return web or mount.source.startswith("/")


def _order(group: Group, order: Order, gpu_indices: Sequence[int]) -> dict[str, Any]:
    """ORDER of the protocol."""
    task = group.spec.task(order.node.task)
    at_once = group.grace_zero and order.goal is Stage.ENDED
    return {
        "attempt": order.attempt,
        "node": str(order.node),
        "task": order.node.task,
        "index": order.node.index,
        "number": order.number,
        "incarnation": order.incarnation,
        "goal": int(order.goal),
        "restart_reason": order.restart_reason,
        "grace": 0.0 if at_once else None,
        "gpu_indices": list(gpu_indices),
        "env": order_environment(group.spec, task, order),
    }


def book_fields(
    spec: GroupSpec, book: Book, balanced_addresses: Mapping[TaskName, str] | None = None
) -> dict[str, Any]:
    """BOOK of the protocol: every node of the group, those without an address too.

    `balanced_addresses`: of tasks that no proxy of an agent serves, but the infra itself.
    """
    peers = {peer.node: peer for peer in book.peers}
    nodes = []
    for node in spec.nodes():
        peer = peers.get(node)
        nodes.append(
            {
                "task": node.task,
                "index": node.index,
                "node": str(node),
                "name": spec.host_name(node),
                "address": peer.address if peer else "",
                "attempt": peer.attempt if peer else 0,
                "live": peer.live if peer else False,
                "healthy": peer.healthy if peer else False,
                "ports": _ports(spec, node),
            }
        )
    given = balanced_addresses or {}
    balanced = [
        {
            "task": task.name,
            "name": spec.balanced_name(task.name),
            "ports": list(task.balance),
            **({"address": given[task.name]} if task.name in given else {}),
        }
        for task in spec.tasks
        if task.balance
    ]
    return {"version": book.version, "nodes": nodes, "balanced": balanced}


def _ports(spec: GroupSpec, node: NodeId) -> list[int | str]:
    """What the file says of a node's ports: numbers, and ranges as text."""
    task = spec.task(node.task)
    balanced = map(str, task.balance)
    named = dict.fromkeys([*balanced, *(port for need in task.needs for port in need.ports)])
    return [int(port) if port.isdigit() else port for port in named]

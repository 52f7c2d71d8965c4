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
from argosy.model.group import Book, Group, Lease, LeaseState, Order, Stage
from argosy.model.ids import InfraName, LeaseId, NodeId
from argosy.model.plan import Placement
from argosy.model.spec import FileMount, GroupSpec, TaskSpec

LOG_CAP_BYTES: Final = 1 << 30  # of one attempt: the oldest part is freed beyond it


def compose(
    group: Group,
    assign: Assign,
    *,
    gpu_indices: Sequence[int] = (),
    log_cap_bytes: int = LOG_CAP_BYTES,
    book: Mapping[str, Any] | None = None,
    spread: bool = False,
) -> dict[str, Any]:
    """The message of one `Assign`.

    `gpu_indices`: the cards that the lease holds. `book`: its `book_fields`, where the caller has
    them for another lease already. `spread`: nodes of the group are on hosts none of which reaches
    into an isolated network of another.
    """
    placement = lease_of(group, assign.lease).placement
    names = dict.fromkeys([placement.node.task, *(order.node.task for order in assign.orders)])
    tasks = {name: _task(group, group.spec.task(name), placement, log_cap_bytes) for name in names}
    return {
        "type": "assign",
        "lease": assign.lease,
        "serial": [assign.serial.life, assign.serial.count],
        "group": group_fields(group, spread=spread),
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


def group_fields(group: Group, *, spread: bool = False) -> dict[str, Any]:
    """GROUP of the protocol. `spread`: as `compose` has it."""
    spec = group.spec
    # Isolated on several hosts is planned only where the nodes need not reach each other.
    spread = spread and spec.network != "isolated"
    return {
        "id": group.id,
        "name": spec.name,
        "incarnation": group.incarnation,
        "job_id": job_id(group.id),
        "network": "host" if spread else spec.network,
        "spread": spread,
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
        "file_mounts": [{"destination": one.destination, "source": one.source} for one in mounts],
        "gpus": cards(placement),
        "log_cap_bytes": log_cap_bytes,
        "ends_with": str(task.ends_with),
        "launcher": task.launcher,
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


def book_fields(spec: GroupSpec, book: Book) -> dict[str, Any]:
    """BOOK of the protocol: every node of the group, those without an address too."""
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
    balanced = [
        {"task": task.name, "name": spec.balanced_name(task.name), "ports": list(task.balance)}
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

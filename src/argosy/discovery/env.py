"""What a program learns from its environment, but for what only its host knows.

Names that SkyPilot made known come under both prefixes, so that existing programs run unchanged.
The agent adds addresses, paths, cards and login defaults (docs/agent-protocol.md). The
contract's names win over the user's, so that a rank is always the true one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from argosy.model.group import Group, Order
from argosy.model.ids import GroupId, InfraName, dns_label
from argosy.model.plan import Placement
from argosy.model.spec import GroupSpec, TaskSpec

PREFIXES: Final = ("SKYPILOT_", "ARGOSY_")
MASTER_PORT: Final = 29500  # torchrun's own default


def environment(group: Group, task: TaskSpec, order: Order, placement: Placement) -> dict[str, str]:
    """All of it for one attempt: of the task, then of the attempt."""
    return {
        **task_environment(group, task, placement),
        **order_environment(group.spec, task, order),
    }


def task_environment(group: Group, task: TaskSpec, placement: Placement) -> dict[str, str]:
    """The part that all nodes of a task share; secrets are not in it."""
    spec, gpus = group.spec, cards(placement)
    shared = {
        "NUM_NODES": str(task.num_nodes),
        "NUM_GPUS_PER_NODE": str(gpus),
        "SETUP_NUM_GPUS_PER_NODE": str(gpus),
        "TASK_ID": task_id(group, task),
        "JOBGROUP_NAME": spec.name,
        "MANAGED_JOB_ID": job_id(group.id),
        "CLUSTER_INFO": cluster_info(spec, task, placement.infra),
    }
    if spec.user:
        shared["USER"] = spec.user
    own = {"ARGOSY_GROUP": spec.name, "ARGOSY_TASK": task.name}
    if task.launcher == "torchrun":
        own |= _torchrun(task, gpus)
    return {**dict(task.envs), **_both(shared), **own}


def order_environment(spec: GroupSpec, task: TaskSpec, order: Order) -> dict[str, str]:
    """The part that differs from node to node and from attempt to attempt."""
    rank = str(order.node.index)
    own = {
        "ARGOSY_NODE": str(order.node),
        "ARGOSY_ATTEMPT": str(order.number),
        "ARGOSY_INCARNATION": str(order.incarnation),
        "ARGOSY_RESTART_REASON": order.restart_reason,
    }
    if task.launcher == "torchrun":
        own["NODE_RANK"] = rank
    return {**_both({"NODE_RANK": rank, "SETUP_NODE_RANK": rank}), **own}


def cards(placement: Placement) -> int:
    """How many accelerators the node holds."""
    return placement.accelerator.count if placement.accelerator else 0


def task_id(group: Group, task: TaskSpec) -> str:
    """The same over all restarts: the key under which a program keeps its checkpoints."""
    return f"argosy-{group.id}_{group.spec.name}_{dns_label(task.name)}"


def job_id(group: GroupId) -> str:
    """Life and serial of the group's id as a decimal number, since programs parse it as one."""
    life, count = group.removeprefix("g").split("-")[-2:]
    return f"{int(life, 16)}{int(count, 16):06d}"


def cluster_info(spec: GroupSpec, task: TaskSpec, infra: InfraName) -> str:
    """JSON with the keys that SkyPilot gives; what is not known is null."""
    cloud, _, region = infra.partition("/")
    info = {
        "cluster_name": f"{spec.name}-{dns_label(task.name)}",
        "cloud": cloud,
        "region": region or None,
        "zone": None,
    }
    return json.dumps(info)


def _both(values: Mapping[str, str]) -> dict[str, str]:
    return {prefix + name: value for name, value in values.items() for prefix in PREFIXES}


def _torchrun(task: TaskSpec, gpus: int) -> dict[str, str]:
    """What `torchrun` and its like read; MASTER_ADDR is the agent's to say."""
    return {
        "MASTER_PORT": str(MASTER_PORT),
        "NNODES": str(task.num_nodes),
        "NPROC_PER_NODE": str(max(gpus, 1)),
        "WORLD_SIZE": str(task.num_nodes * max(gpus, 1)),
    }

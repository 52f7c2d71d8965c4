"""The mark on everything of ours in a cluster, and what things are called there."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from argosy.model.action import LeaseRequest
from argosy.model.ids import GroupId, LeaseId, ServerId, TaskName, dns_label, group_lease

PREFIX: Final = "argosy.dev/"
SERVER: Final = f"{PREFIX}server"
GROUP: Final = f"{PREFIX}group"
LEASE: Final = f"{PREFIX}lease"
TASK: Final = f"{PREFIX}task"
NODE: Final = f"{PREFIX}node"
LIVE: Final = f"{PREFIX}live"  # what the service selects; taken away when a lease is released
GROUP_NAME: Final = f"{PREFIX}group-name"  # an annotation: a name may hold signs no label may
BALANCED: Final = f"{PREFIX}balanced-task"  # an annotation of a service: the task it balances
HEALTHY: Final = f"{PREFIX}healthy"  # what the services of balanced tasks select
IS_LIVE: Final = "true"

CONTAINER: Final = "argosy"  # of our pods
NO_PYTHON: Final = 90  # exit status of a pod whose image has no Python that will do
NO_PYTHON_TEXT: Final = "no Python >= 3.8 in the image"
LABEL_MAX: Final = 63  # signs in the value of a label

POD_NAME: Final = re.compile(r"argosy-(g[0-9a-f]+-[0-9a-f]+-[0-9a-f]+)-.*")

Json = dict[str, Any]


def group_labels(server: ServerId, group: GroupId) -> dict[str, str]:
    """The mark on what is group-wide: it bears the group's lease 0."""
    return {SERVER: server, GROUP: group, LEASE: group_lease(group)}


def pod_labels(server: ServerId, request: LeaseRequest) -> dict[str, str]:
    """The mark on a pod."""
    return {
        SERVER: server,
        GROUP: request.group,
        LEASE: request.lease,
        TASK: task_label(request.node.task),
        NODE: str(request.node),
        LIVE: IS_LIVE,
    }


def lease_of(thing: Mapping[str, Any]) -> LeaseId | None:
    """The lease that a thing of the API stands for; None: it is not ours."""
    found = (thing.get("metadata", {}).get("labels") or {}).get(LEASE)
    return LeaseId(found) if found else None


def pod_name(lease: LeaseId) -> str:
    """What the pod of a lease is called."""
    return f"argosy-{lease.replace('.', '-')}"


def group_of_pod(pod: str) -> GroupId:
    """The group whose lease a pod of that name stands for; "" when it is none of ours."""
    found = POD_NAME.fullmatch(pod)
    return GroupId(found[1] if found else "")


def anchor_name(group: GroupId) -> str:
    """What the config map is called that owns all that is group-wide."""
    return f"argosy-{group}"


def secret_name(group: GroupId) -> str:
    """What the secret is called that carries the agent."""
    return f"argosy-{group}"


def service_name(group_name: str) -> str:
    """What the service is called: the second part of every node's name."""
    return dns_label(group_name)


def balanced_name(group: GroupId, task: TaskName) -> str:
    """What the service is called that balances the connections to a task."""
    name = f"{anchor_name(group)}-{dns_label(task)}"
    if len(name) <= LABEL_MAX:
        return name
    short = hashlib.sha256(task.encode()).hexdigest()[:8]
    return f"{anchor_name(group)}-{short}"


def task_label(task: TaskName) -> str:
    """A task in a label."""
    return dns_label(task)[:LABEL_MAX].strip("-")


def node_of(pod: Mapping[str, Any]) -> str:
    """The node of the cluster that a pod is on; "" while it has none."""
    return str((pod.get("spec") or {}).get("nodeName") or "")

"""The mark on everything of ours in a cluster, and what things are called there."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from argosy.model.action import LeaseRequest
from argosy.model.ids import GroupId, InfraName, LeaseId, ServerId, TaskName, dns_label, group_lease

PREFIX: Final = "argosy.dev/"
SERVER: Final = f"{PREFIX}server"
CONTEXT: Final = f"{PREFIX}context"  # of the server: two of its contexts may be one namespace
GROUP: Final = f"{PREFIX}group"
LEASE: Final = f"{PREFIX}lease"
TASK: Final = f"{PREFIX}task"
NODE: Final = f"{PREFIX}node"
LIVE: Final = f"{PREFIX}live"  # what the service selects; taken away when a lease is released
OF_A_GROUP: Final = (SERVER, CONTEXT, GROUP)  # what tells whose it is
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


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose things they are: a server's, in one of its contexts. What another context shows in the
    same namespace is not this one's to judge or to end.
    """

    server: ServerId
    context: str  # `digest` of the infra's name

    @property
    def labels(self) -> dict[str, str]:
        """The mark on everything."""
        return {SERVER: self.server, CONTEXT: self.context}

    @property
    def selector(self) -> str:
        """What finds all that bears it."""
        return ",".join(f"{key}={value}" for key, value in self.labels.items())


def digest(infra: InfraName) -> str:
    """The name of an infra as a label or a folder may have it: a context's may hold any sign."""
    return hashlib.sha256(infra.encode()).hexdigest()[:16]


def group_labels(owner: Owner, group: GroupId) -> dict[str, str]:
    """The mark on what is group-wide: it bears the group's lease 0."""
    return {**owner.labels, GROUP: group, LEASE: group_lease(group)}


def pod_labels(owner: Owner, request: LeaseRequest) -> dict[str, str]:
    """The mark on a pod."""
    return {
        **owner.labels,
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


def task_of(pod: Mapping[str, Any]) -> tuple[str, str]:
    """(group, task) of a pod, as its labels have it; "" for what somebody took away."""
    labels = pod["metadata"].get("labels") or {}
    return labels.get(GROUP, ""), labels.get(TASK, "")


def task_label(task: TaskName) -> str:
    """A task in a label."""
    return dns_label(task)[:LABEL_MAX].strip("-")


def node_of(pod: Mapping[str, Any]) -> str:
    """The node of the cluster that a pod is on; "" while it has none."""
    return str((pod.get("spec") or {}).get("nodeName") or "")

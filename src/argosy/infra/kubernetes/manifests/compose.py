"""Composes what a group is on a cluster: needs and leases to manifests, as plain data.

A lease is a pod that is never restarted by the cluster: what to do about its end is decided by the
server. A group has one headless service, by which its nodes find each other, and one secret, which
carries the agent; both are owned by the group's anchor, a config map, and go with it. Its user's
secrets are in none of these: they travel to the agent alone.

Requests are what the file asks for, so that plan and scheduler count alike. Cores are never
limited: a limit throttles, and other infras do not. Memory is limited where the file gave an exact
amount (`memory: 16`): then the program that exceeds it is ended, not its neighbours. `16+` is a
least amount, and says nothing of a most.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from argosy.infra.kubernetes import marks
from argosy.infra.kubernetes.config import LABEL_KEY, LABEL_VALUE, ContextConfig
from argosy.infra.kubernetes.facts.cards import Card, asked, resource_of
from argosy.infra.kubernetes.facts.quantities import cores, gibibytes
from argosy.infra.kubernetes.facts.taints import tolerations
from argosy.infra.kubernetes.manifests import scripts
from argosy.infra.kubernetes.manifests.merge import merge_pod_config
from argosy.infra.kubernetes.manifests.owned import owned
from argosy.infra.kubernetes.manifests.scheduling import affinity
from argosy.infra.kubernetes.manifests.volumes import mounted
from argosy.infra.kubernetes.marks import CONTAINER, Json
from argosy.model.action import BalancedName, LeaseRequest
from argosy.model.ids import GroupId
from argosy.model.needs import Need

GRACE_MARGIN: Final = 10  # seconds that the reaper has beyond the grace of the program
LEAST_CPUS: Final = 0.05  # what the agent needs, where the file says nothing
LEAST_MEMORY_GIB: Final = 0.0625
SHM_GIB: Final = 1.0  # of /dev/shm, where the file says nothing of memory
PORTS_MAX: Final = 100  # that are listed in a pod: a list is for people, it opens nothing
DIAL_MOUNT: Final = {
    "name": scripts.DIAL_VOLUME, "mountPath": scripts.DIAL_MOUNT, "readOnly": True,
}  # fmt: skip
SECRET_MODE: Final = 0o444  # the image may run as any user; the secret holds no user's secret


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What pods are made from, beside the request."""

    owner: marks.Owner
    context: ContextConfig
    cards: tuple[Card, ...] = ()  # that the cluster's nodes have, as far as known
    balanced: tuple[tuple[str, str], ...] = ()  # host name, address
    dial: str = ""  # HOST:PORT at which agents reach the server; "": it reaches them


def pod(request: LeaseRequest, settings: PodSettings) -> Json:
    """The pod of a lease."""
    labels, annotations = _labels(request, settings.owner)
    found: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": marks.pod_name(request.lease),
            "labels": labels,
            "annotations": annotations,
        },
        "spec": _spec(request, settings),
    }
    return merge_pod_config(found, settings.context.pod_config)


def anchor(group: GroupId, group_name: str, owner: marks.Owner) -> Json:
    """The config map that owns what is group-wide. It is made first and goes last."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _wide(marks.anchor_name(group), group, group_name, owner),
    }


def service(group: GroupId, group_name: str, owner: marks.Owner, anchor_uid: str) -> Json:
    """The headless service by which the group's nodes have names, ready or not."""
    metadata = _wide(marks.service_name(group_name), group, group_name, owner)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**metadata, **owned(group, anchor_uid)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {marks.GROUP: group, marks.LIVE: marks.IS_LIVE},
        },
    }


def balanced_service(
    group: GroupId, group_name: str, owner: marks.Owner, anchor_uid: str, balanced: BalancedName
) -> Json:
    """The service that balances connections to the healthy nodes of a task."""
    name = marks.balanced_name(group, balanced.task)
    metadata = _wide(name, group, group_name, owner)
    metadata["annotations"] = {**metadata["annotations"], marks.BALANCED: balanced.task}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**metadata, **owned(group, anchor_uid)},
        "spec": {
            "selector": {
                marks.GROUP: group,
                marks.TASK: marks.task_label(balanced.task),
                marks.HEALTHY: marks.IS_LIVE,
            },
            "ports": [{"name": f"p{port}", "port": port} for port in balanced.ports],
        },
    }


def secret(
    group: GroupId, group_name: str, owner: marks.Owner, anchor_uid: str, agent: Mapping[str, bytes]
) -> Json:
    """The secret that carries the agent's files, and the scripts that start and reach it."""
    metadata = _wide(marks.secret_name(group), group, group_name, owner)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {**metadata, **owned(group, anchor_uid)},
        "data": {name: base64.b64encode(body).decode() for name, body in agent.items()},
        "stringData": {
            scripts.START_KEY: scripts.START,
            scripts.COMMAND_KEY: scripts.AGENT,
        },
    }


def dial_secret(
    request: LeaseRequest, owner: marks.Owner, anchor_uid: str, certificate: str, token: str
) -> Json:
    """The secret by which the agent of one lease, and no other, gets in where it dials."""
    labels, annotations = _labels(request, owner)
    metadata: Json = {
        "name": marks.pod_name(request.lease),
        "labels": {key: labels[key] for key in (*marks.OF_A_GROUP, marks.LEASE)},
        "annotations": {marks.GROUP_NAME: annotations[marks.GROUP_NAME]},
    }
    files = {scripts.CERTIFICATE_KEY: certificate, scripts.TOKEN_KEY: token}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {**metadata, **owned(request.group, anchor_uid)},
        "data": {key: base64.b64encode(body.encode()).decode() for key, body in files.items()},
    }


def _wide(name: str, group: GroupId, group_name: str, owner: marks.Owner) -> Json:
    return {
        "name": name,
        "labels": marks.group_labels(owner, group),
        "annotations": {marks.GROUP_NAME: group_name},
    }


def _labels(request: LeaseRequest, owner: marks.Owner) -> tuple[Json, Json]:
    """Labels and annotations: a user's label that Kubernetes takes no such value for is noted."""
    labels: Json = {}
    annotations: Json = {marks.GROUP_NAME: request.group_name}
    for key, value in request.placement.need.labels:
        if key.startswith(marks.PREFIX) or not LABEL_KEY.fullmatch(key):
            continue
        target = labels if LABEL_VALUE.fullmatch(value) else annotations
        target[key] = value
    return {**labels, **marks.pod_labels(owner, request)}, annotations


def _spec(request: LeaseRequest, settings: PodSettings) -> Json:
    need, config = request.placement.need, settings.context
    card = request.placement.accelerator
    cards = asked(card.name, settings.cards) if card else ()
    counts = {resource_of(cards): card.count} if card else {}
    found: Json = {
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "automountServiceAccountToken": bool(config.service_account),
        "hostname": str(request.node),
        "subdomain": marks.service_name(request.group_name),
        "terminationGracePeriodSeconds": math.ceil(request.grace) + GRACE_MARGIN,
        "tolerations": tolerations(need, counts, config),
        "containers": [_container(request, settings, counts)],
        "volumes": [*_volumes(request, settings), *mounted(request, settings.owner).volumes],
    }
    where = affinity(request, cards)
    if where:
        found["affinity"] = where
    if settings.balanced:
        found["hostAliases"] = [
            {"ip": address, "hostnames": [name]} for name, address in settings.balanced
        ]
    if config.service_account:
        found["serviceAccountName"] = config.service_account
    if config.node_selector:
        found["nodeSelector"] = dict(config.node_selector)
    if config.image_pull_secrets:
        found["imagePullSecrets"] = [{"name": name} for name in config.image_pull_secrets]
    priority_class = dict(need.other).get("priority_class") or config.priority_class
    if priority_class:
        found["priorityClassName"] = priority_class
    if config.restricted:
        found["securityContext"] = {
            "runAsNonRoot": True,
            "runAsUser": config.run_as_user,
            "runAsGroup": config.run_as_user,
            "fsGroup": config.run_as_user,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    return found


def _container(request: LeaseRequest, settings: PodSettings, cards: Mapping[str, int]) -> Json:
    need, config = request.placement.need, settings.context
    found: Json = {
        "name": CONTAINER,
        "image": image(need, config),
        "imagePullPolicy": "IfNotPresent",
        "command": list(scripts.START_COMMAND),
        "env": _environment(request, settings),
        "resources": resources(need, cards),
        "volumeMounts": [
            {"name": "argosy", "mountPath": scripts.MOUNT, "readOnly": True},
            {"name": "argosy-home", "mountPath": scripts.FOLDER},
            {"name": "argosy-shm", "mountPath": "/dev/shm"},
            *([DIAL_MOUNT] if settings.dial else ()),
            *mounted(request, settings.owner).mounts,
        ],
    }
    ports = _ports(need)
    if ports:
        found["ports"] = ports
    if config.restricted:
        found["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
    return found


def _environment(request: LeaseRequest, settings: PodSettings) -> list[Json]:
    """What the start script and PID 1 are told. The programs see none of it."""
    dial = {
        "ARGOSY_DIAL": settings.dial,
        "ARGOSY_DIAL_FOLDER": scripts.DIAL_MOUNT,
        "ARGOSY_LEASE": request.lease,
    }
    return [
        {"name": "ARGOSY_SERVER_ID", "value": settings.owner.server},
        *({"name": key, "value": value} for key, value in dial.items() if settings.dial),
        {"name": "ARGOSY_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]


def image(need: Need, config: ContextConfig) -> str:
    """The image of a task: its own, that of this context in a map of places, or the context's."""
    given = need.image or ""
    if "=" in given:  # no reference of an image holds that sign: it is a map of place to image
        by_place = dict(pair.split("=", 1) for pair in given.split(",") if "=" in pair)
        given = by_place.get(config.name) or by_place.get("kubernetes") or ""
    return given.removeprefix("docker:") or config.image


def resources(need: Need, cards: Mapping[str, int]) -> Json:
    """Requests, and limits where there is a reason for one (see above)."""
    requests: dict[str, Any] = {
        "cpu": cores(need.cpus or LEAST_CPUS),
        "memory": gibibytes(need.memory_gib or LEAST_MEMORY_GIB),
    }
    limits: dict[str, Any] = {}
    if need.memory_gib and need.memory_exact:
        limits["memory"] = requests["memory"]
    if need.disk_gib:
        requests["ephemeral-storage"] = gibibytes(need.disk_gib)
        limits["ephemeral-storage"] = requests["ephemeral-storage"]
    for resource, count in cards.items():
        requests[resource] = limits[resource] = str(count)
    return {"requests": requests, **({"limits": limits} if limits else {})}


def _ports(need: Need) -> list[Json]:
    found: list[int] = []
    for text in need.ports:
        first, _, last = text.partition("-")
        found += range(int(first), int(last or first) + 1)[:PORTS_MAX]
    numbers = list(dict.fromkeys(found))[:PORTS_MAX]
    return [{"containerPort": number} for number in numbers]


def _volumes(request: LeaseRequest, settings: PodSettings) -> list[Json]:
    need = request.placement.need
    home: Json = {"sizeLimit": gibibytes(need.disk_gib)} if need.disk_gib else {}
    shared = need.memory_gib / 2 if need.memory_gib else SHM_GIB
    name = marks.secret_name(request.group)
    return [
        {"name": "argosy", "secret": {"secretName": name, "defaultMode": SECRET_MODE}},
        {"name": "argosy-home", "emptyDir": home},
        {"name": "argosy-shm", "emptyDir": {"medium": "Memory", "sizeLimit": gibibytes(shared)}},
        *([_dial_volume(request)] if settings.dial else ()),
    ]


def _dial_volume(request: LeaseRequest) -> Json:
    name = marks.pod_name(request.lease)
    return {"name": scripts.DIAL_VOLUME, "secret": {"secretName": name, "defaultMode": SECRET_MODE}}

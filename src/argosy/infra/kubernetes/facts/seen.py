"""What a pod says of its lease: waiting, there, or gone, and why, in the cluster's own words.

A pod is gone on evidence only: it has ended, or the cluster has given it up on a node that is not
ready. There it may still run, for nobody can tell its kubelet to end it: see docs/kubernetes.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from argosy.infra.kubernetes.marks import (
    CONTAINER,
    NO_PYTHON,
    NO_PYTHON_TEXT,
    lease_of,
    node_of,
)
from argosy.model.ids import LeaseId
from argosy.model.observed import SeenLease, SeenState

Pod = Mapping[str, Any]

# Waiting for these is in vain until somebody mends the image or what the pod refers to.
IMAGE_REASONS: Final = (
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
    "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed",
)  # fmt: skip
CONTAINER_REASONS: Final = (
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
    "CreatePodSandboxError", "PreCreateHookError", "PreStartHookError", "PostStartHookError",
    "CrashLoopBackOff",
)  # fmt: skip
# A container that ended so has never run: its image has no `sh`.
START_REASONS: Final = ("StartError", "ContainerCannotRun")
NO_COMMAND: Final = (126, 127)  # exit status of a shell that cannot run what it was told
# Reasons of DisruptionTarget -> what happens to the pod.
DISRUPTIONS: Final[Mapping[str, str]] = {
    "EvictionByEvictionAPI": "its node is being drained, or somebody evicted it",
    "PreemptionByScheduler": "it is preempted by a pod of higher priority",
    "PreemptionByKubeScheduler": "it is preempted by a pod of higher priority",
    "DeletionByTaintManager": "its node does not answer, and the cluster gave it up",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node ends it, for a shutdown or for lack of room",
}
# Reasons of a pod that failed -> what happened, where the word alone does not say it.
FAILURES: Final[Mapping[str, str]] = {
    "Evicted": "evicted by its node",
    "Preempting": "preempted by its node for a critical pod",
    "Terminated": "ended by the shutdown of its node",
    "Shutdown": "ended by the shutdown of its node",
    "NodeShutdown": "ended by the shutdown of its node",
    "DeadlineExceeded": "ended by its own deadline (`activeDeadlineSeconds`)",
    "NodeLost": "lost with its node",
}
GIVEN_UP: Final = ("DeletionByTaintManager", "DeletionByPodGC")
OOM: Final = "OOMKilled"
UNSCHEDULABLE: Final = "Unschedulable"
GATED: Final = "SchedulingGated"  # something else, such as a quota of the cluster, lets it wait


def seen(pod: Pod, *, node_ready: bool | None, answers: bool = False) -> SeenLease:
    """The lease of one of our pods.

    `node_ready`: of the node that it is on, which may be gone; None where that cannot be seen.
    `answers`: its agent does, so it runs, whether that is said already or not.
    """
    lease = lease_of(pod)
    assert lease is not None, "only what bears the mark is asked for"
    name = str(pod["metadata"]["name"])
    status = pod.get("status") or {}
    ended = _ended(status)
    if _given_up(pod, node_ready=node_ready):
        return SeenLease(lease, SeenState.GONE, name, f"pod {name}: {leaving(pod)}{_on(pod)}")
    if ended is not None and _never_ran(ended):
        return _stuck(lease, _start_failure(pod, ended))
    if status.get("phase") in ("Failed", "Succeeded"):
        return SeenLease(lease, SeenState.GONE, name, _end(pod, ended))
    if ended is not None:  # other containers, from `pod_config`, still run
        return SeenLease(lease, SeenState.GONE, name, _end(pod, ended))
    if answers or "running" in _state(_ours(status)):
        return SeenLease(lease, SeenState.UP, name, leaving=leaving(pod))
    return _pending(pod, lease)


def may_answer_early(pod: Pod) -> bool:
    """Whether its agent may be asked for before it is said to run: it has a node, has not ended,
    and there is nothing that has to be begun after our container and before its programs.
    """
    status = pod.get("status") or {}
    containers: list[Any] = (pod.get("spec") or {}).get("containers") or []
    if len(containers) != 1 or containers[0].get("lifecycle"):
        return False
    over = _ended(status) is not None or status.get("phase") in ("Failed", "Succeeded")
    return bool(node_of(pod)) and not over and "running" not in _state(_ours(status))


def leaving(pod: Pod) -> str:
    """Why a pod that is being deleted goes; "" when it stays."""
    if not pod["metadata"].get("deletionTimestamp"):
        return ""
    condition = _condition(pod.get("status") or {}, "DisruptionTarget")
    if condition is None or condition.get("status") != "True":
        return "somebody deletes it"
    reason, message = str(condition.get("reason", "")), str(condition.get("message", ""))
    return _said(DISRUPTIONS.get(reason, reason), message)


def _given_up(pod: Pod, *, node_ready: bool | None) -> bool:
    """The cluster deletes it on a node that cannot say that it has ended."""
    deleted = pod["metadata"].get("deletionTimestamp")
    if node_ready is not False or not deleted or not node_of(pod):
        return False
    condition = _condition(pod.get("status") or {}, "DisruptionTarget")
    return condition is not None and condition.get("reason") in GIVEN_UP


# --- a pod that waits ----------------------------------------------------------------------------


def _pending(pod: Pod, lease: LeaseId) -> SeenLease:
    status = pod.get("status") or {}
    scheduled = _condition(status, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        return _not_scheduled(lease, status, scheduled)
    placed = bool(node_of(pod))
    for one in _all_containers(status):
        waiting = _state(one).get("waiting") or {}
        reason, message = str(waiting.get("reason", "")), str(waiting.get("message", ""))
        if reason in IMAGE_REASONS:
            image = _image(pod, str(one.get("name", "")))
            return _stuck(lease, _said(f"image {image}: {reason}", message), placed=placed)
        if reason in CONTAINER_REASONS:
            return _stuck(lease, _said(reason, message), placed=placed)
    if not placed:
        return SeenLease(lease, SeenState.PENDING, text="it waits for the scheduler")
    reason = str((_state(_ours(status)).get("waiting") or {}).get("reason", ""))
    text = f"it is made{_on(pod)}" + (f": {reason}" if reason else "")
    return SeenLease(lease, SeenState.PENDING, text=text, placed=True)


def _not_scheduled(
    lease: LeaseId, status: Mapping[str, Any], condition: Mapping[str, Any]
) -> SeenLease:
    reason, message = str(condition.get("reason", "")), str(condition.get("message", ""))
    nominated = status.get("nominatedNodeName")
    if nominated:  # pods of lower priority are being ended there
        text = _said(f"room is made for it on node {nominated}", message)
        return SeenLease(lease, SeenState.PENDING, text=text)
    text = _said("no node takes it" if reason == UNSCHEDULABLE else reason, message)
    return SeenLease(lease, SeenState.PENDING, text=text, unschedulable=reason != GATED)


def _stuck(lease: LeaseId, text: str, *, placed: bool = True) -> SeenLease:
    return SeenLease(lease, SeenState.PENDING, text=text, unschedulable=True, placed=placed)


def _never_ran(ended: Mapping[str, Any]) -> bool:
    code = ended.get("exitCode")
    return ended.get("reason") in START_REASONS or code in (NO_PYTHON, *NO_COMMAND)


def _start_failure(pod: Pod, ended: Mapping[str, Any]) -> str:
    image, message = _image(pod, CONTAINER), str(ended.get("message", "")).strip()
    if ended.get("exitCode") == NO_PYTHON:
        return f"image {image}: {message or NO_PYTHON_TEXT}"
    if ended.get("reason") in START_REASONS and '"sh"' in message:
        return f"image {image}: no `sh` in the image"
    what = ended.get("reason") if ended.get("reason") in START_REASONS else ""
    return _said(f"image {image}: {what or 'it cannot be started'}", message)


# --- a pod that has ended ------------------------------------------------------------------------


def _end(pod: Pod, ended: Mapping[str, Any] | None) -> str:
    """Why it has ended, in one sentence."""
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    reason, message = str(status.get("reason", "")), str(status.get("message", ""))
    where = f"pod {name}{_on(pod)}"
    if reason:
        return f"{where}: " + _said(FAILURES.get(reason, reason), message)
    going = leaving(pod) or _disrupted(status)
    if ended is None:
        return f"{where}: {going or 'it ended, and does not say why'}"
    code = ended.get("exitCode")
    if ended.get("reason") == OOM:
        limit = _memory_limit(pod)
        how = f"above its limit of {limit}" if limit else "the node had no memory left"
        return f"{where}: killed for lack of memory (OOMKilled, {how})"
    if going:
        return f"{where}: {going}"
    if code == 0:
        return f"{where}: its agent has ended"
    return f"{where}: " + _said(f"its agent ended with {code}", str(ended.get("message", "")))


def _disrupted(status: Mapping[str, Any]) -> str:
    condition = _condition(status, "DisruptionTarget") or {}
    reason = str(condition.get("reason", ""))
    return _said(DISRUPTIONS.get(reason, reason), str(condition.get("message", "")))


def _memory_limit(pod: Pod) -> str:
    for one in (pod.get("spec") or {}).get("containers", ()):
        if one.get("name") == CONTAINER:
            return str(((one.get("resources") or {}).get("limits") or {}).get("memory", ""))
    return ""


# --- reading -------------------------------------------------------------------------------------


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    found = (one for one in status.get("conditions") or () if one.get("type") == kind)
    return next(found, None)


def _all_containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]


def _ours(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status of our container; {} while it has none."""
    found = (one for one in status.get("containerStatuses") or () if one.get("name") == CONTAINER)
    return next(found, {})


def _state(container: Mapping[str, Any]) -> Mapping[str, Any]:
    return container.get("state") or {}


def _ended(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How our container ended; None: it has not."""
    found: Mapping[str, Any] | None = _state(_ours(status)).get("terminated")
    return found


def _image(pod: Pod, container: str) -> str:
    spec = pod.get("spec") or {}
    for one in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        if one.get("name") == container:
            return str(one.get("image", "?"))
    return "?"


def _on(pod: Pod) -> str:
    node = node_of(pod)
    return f" on node {node}" if node else ""


def _said(text: str, message: str) -> str:
    """Our words, then the cluster's; each where there are any."""
    said = " ".join(message.split())
    return f"{text}: {said}" if text and said else text or said

"""What whoever signs in must be allowed to do, and what of it the API server says is not.

The rights are those of deploy/kubernetes-role.yaml. Anybody may ask about their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from argosy.infra.kubernetes.cluster.client import Cluster, Json
from argosy.infra.kubernetes.cluster.failures import FORBIDDEN, Refused

REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
AT_ONCE: Final = 8  # questions
NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one kind of object; `wide`: in all namespaces."""

    verb: str
    resource: str  # "pods", "pods/exec"
    wide: bool = False

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (" of the whole cluster" if self.wide else "")


def _each(resource: str, verbs: str, *, wide: bool = False) -> tuple[Right, ...]:
    return tuple(Right(verb, resource, wide) for verb in verbs.split())


RIGHTS: Final = (
    *_each("pods", "create get list watch patch delete"),
    *_each("pods/exec", "create get"),
    *_each("configmaps", "create get list watch delete"),
    *_each("services", "create get list watch delete"),
    *_each("secrets", "create get delete"),
    *_each("persistentvolumeclaims", "create get list delete"),
    *_each("events", "list watch"),
    *_each("nodes", "list watch", wide=True),
    *_each("pods", "list watch", wide=True),
)


def vital(right: Right, *, dial: bool) -> bool:
    """Whether nothing runs without it. `dial`: agents dial out, and `exec` is seldom needed."""
    seldom = ("persistentvolumeclaims", "events", *(("pods/exec",) if dial else ()))
    return not right.wide and right.resource not in seldom


async def no_namespace(cluster: Cluster) -> bool:
    """Whether ours is surely not there; few may ask. Raises Refused, Unreachable."""
    try:
        await cluster.get(f"/api/v1/namespaces/{cluster.namespace}")
    except Refused as error:
        if error.status not in (FORBIDDEN, NOT_FOUND):
            raise
        return error.status == NOT_FOUND
    return False


async def missing(cluster: Cluster) -> Sequence[Right]:
    """Which of the rights are not given. Raises Refused, Unreachable."""
    places = asyncio.Semaphore(AT_ONCE)

    async def given(right: Right) -> bool:
        async with places:
            answer = await cluster.post(REVIEWS, _question(right, cluster.namespace))
        return bool((answer.get("status") or {}).get("allowed"))

    answers = await asyncio.gather(*map(given, RIGHTS))
    return [right for right, allowed in zip(RIGHTS, answers, strict=True) if not allowed]


def _question(right: Right, namespace: str) -> Json:
    resource, _, inside = right.resource.partition("/")
    asked = {"verb": right.verb, "resource": resource, "subresource": inside}
    place = {} if right.wide else {"namespace": namespace}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**asked, **place}},
    }

"""Merges the user's `pod_config` into a pod: maps join, lists append, named things meet by name."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from argosy.infra.kubernetes.marks import CONTAINER, Json

# List -> the key by which its items are the same thing.
KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
}


def merge_pod_config(pod: Json, config: Mapping[str, Any]) -> Json:
    """A new pod: `config` over `pod`. A container without a name, in the first place, is ours."""
    theirs = copy.deepcopy(dict(config))
    containers = (theirs.get("spec") or {}).get("containers") or []
    if containers and isinstance(containers[0], dict):
        containers[0].setdefault("name", CONTAINER)
    return _maps(pod, theirs)


def _maps(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Json:
    found: Json = copy.deepcopy(dict(ours))
    for key, value in theirs.items():
        found[key] = _merged(key, found.get(key), value)
    return found


def _merged(key: str, ours: Any, theirs: Any) -> Any:
    """Their value over ours; what has no counterpart replaces."""
    if isinstance(ours, dict) and isinstance(theirs, Mapping):
        return _maps(ours, theirs)
    if isinstance(ours, list) and isinstance(theirs, list):
        return _lists(KEYS.get(key, ""), ours, theirs)
    return theirs


def _lists(key: str, ours: list[Any], theirs: list[Any]) -> list[Any]:
    found = list(ours)
    for item in theirs:
        place = _place(key, found, item)
        if place is None:
            found.append(item)
        else:
            found[place] = _maps(found[place], item)
    return found


def _place(key: str, items: list[Any], item: Any) -> int | None:
    """Where the same thing stands already; None: nowhere."""
    if not key or not isinstance(item, dict) or key not in item:
        return None
    for place, one in enumerate(items):
        if isinstance(one, dict) and one.get(key) == item[key]:
            return place
    return None

"""The section `kubernetes` of config.yaml, for editors and for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from argosy.infra.kubernetes.config import (
    DEFAULT_IMAGE,
    DEFAULT_USER,
    EFFECTS,
    OPERATORS,
    TOLERATE_SECONDS,
    parse_contexts,
)

TEXT: Final[Mapping[str, Any]] = {"type": "string"}
TOLERATION: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "key": TEXT,
        "operator": {"enum": list(OPERATORS)},
        "value": TEXT,
        "effect": {"enum": list(EFFECTS)},
        "tolerationSeconds": {"type": "integer", "minimum": 0},
    },
}
CONTEXT: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "context": {
            "type": "string",
            "description": "Its name in the kubeconfig, or `in-cluster`; else the name here.",
        },
        "kubeconfig": {"type": "string", "description": "Else $KUBECONFIG, ~/.kube/config."},
        "namespace": {"type": "string", "description": "Else the context's own."},
        "image": {
            "type": "string",
            "default": DEFAULT_IMAGE,
            "description": "Of tasks that name none: it needs `sh` and Python >= 3.8.",
        },
        "service_account": {"type": "string", "description": "Of the pods; else none."},
        "image_pull_secrets": {"type": ["string", "array"], "items": TEXT},
        "priority_class": TEXT,
        "node_selector": {"type": "object", "additionalProperties": TEXT},
        "tolerations": {"type": "array", "items": TOLERATION},
        "tolerate_seconds": {
            "type": "integer",
            "minimum": 0,
            "default": TOLERATE_SECONDS,
            "description": "That a node may be silent before its pods are given up.",
        },
        "restricted": {
            "type": "boolean",
            "default": False,
            "description": "Pods that Pod Security `restricted` lets in.",
        },
        "run_as_user": {
            "type": "integer",
            "minimum": 1,
            "default": DEFAULT_USER,
            "description": "Implies `restricted`.",
        },
        "autoscaling": {
            "type": "boolean",
            "default": False,
            "description": "The cluster makes nodes when pods wait for them.",
        },
        "pod_config": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"metadata": {"type": "object"}, "spec": {"type": "object"}},
            "description": "Merged into every pod.",
        },
    },
}
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "Kubernetes clusters.",
    "additionalProperties": False,
    "properties": {
        "contexts": {
            "type": "object",
            "description": "Clusters as one user reaches them: `--infra kubernetes/NAME`.",
            "additionalProperties": CONTEXT,
        }
    },
}


def shown(text: str, file: str) -> dict[str, Any]:
    """Every context by name, as it was understood. Raises InputErrors."""
    found = {}
    for context in parse_contexts(text, file):
        fields = {key: value for key, value in asdict(context).items() if key != "name"}
        found[context.name] = {**fields, "node_selector": dict(context.node_selector)}
    return found

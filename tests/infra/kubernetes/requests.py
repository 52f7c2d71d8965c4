"""Lease requests and settings of pods, as tests of what is composed need them."""

from __future__ import annotations

from typing import Any

from argosy.infra.kubernetes.config import ContextConfig, parse_contexts
from argosy.infra.kubernetes.manifests.compose import PodSettings
from argosy.infra.kubernetes.marks import Owner
from argosy.model.action import LeaseRequest
from argosy.model.ids import GroupId, LeaseId, NodeId, ServerId
from argosy.model.needs import Accelerator, Need
from argosy.model.plan import Placement

SERVER = ServerId("3f9a1c5eed01")
OWNER = Owner(SERVER, "0123456789abcdef")
GROUP = GroupId("g3f9a1c5eed01-6b0f3a2c-1")
LEASE = LeaseId(f"{GROUP}.6b0f3a2c-4")
NAME = "rl_demo"
CONTEXT = ContextConfig("prod", context="prod", image="trainer:1")


def a_request(
    need: Need | None = None,
    *,
    card: Accelerator | None = None,
    host: str | None = "node-1",
    **more: Any,
) -> LeaseRequest:
    """For `trainer-0` of the group `rl_demo`."""
    node = NodeId("trainer", 0)
    placement = Placement(node, "kubernetes/prod", host, need or Need(), card)
    return LeaseRequest(LEASE, GROUP, NAME, node, placement, **more)


def settings(context: ContextConfig = CONTEXT, **more: Any) -> PodSettings:
    return PodSettings(OWNER, context, **more)


def a_context(text: str = "{}") -> ContextConfig:
    """One context, as config.yaml has it."""
    (found,) = parse_contexts(f"kubernetes: {{contexts: {{prod: {text}}}}}", "config.yaml")
    return found

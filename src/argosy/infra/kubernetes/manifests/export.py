"""Everything that a launch would make on a cluster, as one text that `kubectl apply` takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import yaml

from argosy.infra.kubernetes.manifests import compose
from argosy.infra.kubernetes.manifests.compose import PodSettings
from argosy.infra.kubernetes.manifests.volumes import mounted
from argosy.infra.kubernetes.marks import Json
from argosy.model.action import LeaseRequest

WIDTH: Final = 100
HEAD: Final = """\
# What Argosy would make on {infra} for the group {group}.
# The user's programs, files and secrets are in none of it: they travel to the agents in the pods,
# from the server that launched the group. Applied by hand, these pods wait for such a server.
# On a launch the service and the secret are owned by the config map, whose uid is not known here.
"""
NO_AGENT: Final = "# (the bytes of the agent are left out here)\n"


def manifests(
    infra: str, requests: Sequence[LeaseRequest], settings: PodSettings, agent: bytes
) -> str:
    """A YAML stream: the anchor, services, the secret, claims, and a pod a lease.

    `requests`: of one group, at least one. `agent`: b"" leaves its bytes out.
    """
    first = requests[0]
    text = [HEAD.format(infra=infra, group=first.group_name)]
    wide = _wide(first, settings.server, agent)
    for one in (*wide, *_claims(requests, settings), *_pods(requests, settings)):
        left_out = NO_AGENT if one["kind"] == "Secret" and not agent else ""
        body = as_yaml(_in(settings, one))
        text.append(f"---\n{left_out}{body}")
    return "".join(text)


def as_yaml(one: Json) -> str:
    """One document, as people read it."""
    return yaml.dump(one, Dumper=_Dumper, sort_keys=False, width=WIDTH)


def _wide(first: LeaseRequest, server: Any, agent: bytes) -> list[Json]:
    """What is group-wide."""
    group = (first.group, first.group_name, server)
    secret = compose.secret(*group, "", agent)
    if not agent:
        del secret["data"]
    return [
        compose.anchor(*group),
        compose.service(*group, ""),
        *(compose.balanced_service(*group, "", one) for one in first.balanced),
        secret,
    ]


def _claims(requests: Sequence[LeaseRequest], settings: PodSettings) -> list[Json]:
    """Those that live as long as the group, each once."""
    every = (claim for one in requests for claim in mounted(one, settings.server).claims)
    return list({claim["metadata"]["name"]: claim for claim in every}.values())


def _pods(requests: Sequence[LeaseRequest], settings: PodSettings) -> list[Json]:
    """Without the addresses of balanced services, which a cluster gives when they are made."""
    bare = replace(settings, balanced=())
    return [compose.pod(one, bare) for one in requests]


def _in(settings: PodSettings, one: Json) -> Json:
    """With the namespace, where the context names one."""
    if settings.context.namespace:
        one["metadata"]["namespace"] = settings.context.namespace
    return one


class _Dumper(yaml.SafeDumper):
    """Repeats what is the same, where the usual one writes an anchor; keeps the lines of texts."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)

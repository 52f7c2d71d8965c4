"""Everything that a launch would make on a cluster, as one text that `kubectl apply` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import yaml

from argosy.infra.kubernetes.manifests import compose, scripts
from argosy.infra.kubernetes.manifests.compose import PodSettings
from argosy.infra.kubernetes.manifests.volumes import mounted
from argosy.infra.kubernetes.marks import Json, Owner
from argosy.model.action import LeaseRequest

WIDTH: Final = 100
HEAD: Final = """\
# What Argosy would make on {infra} for the group {group}.
# The user's programs, files and secrets are in none of it: they travel to the agents in the pods,
# from the server that launched the group. Applied by hand, these pods wait for such a server.
# On a launch the service and the secret are owned by the config map, whose uid is not known here.
"""
NO_DIAL: Final = """\
# (the certificate of the server and the token of this one lease, by which its agent dials the
# server, are left out here: a launch makes them, and no other token opens that door)
"""
NO_AGENT: Final = "# (the bytes of the agent are left out here)\n"
PORTABLE: Final = """\
# (the agent is without its comments here, and without the compiled code that a launch adds:
# `kubectl apply` takes 256 KiB at most)
"""


def manifests(
    infra: str,
    requests: Sequence[LeaseRequest],
    settings: PodSettings,
    agent: Mapping[str, bytes],
) -> str:
    """A YAML stream: the anchor, services, the secret, claims, and a pod a lease; before each pod
    the secret of the lease, where agents dial, without what is secret in it.

    `requests`: of one group, at least one. `agent`: its files; {} leaves their bytes out.
    """
    first = requests[0]
    text = [HEAD.format(infra=infra, group=first.group_name)]
    wide = _wide(first, settings.owner, agent)
    for one in (*wide, *_claims(requests, settings)):
        left_out = PORTABLE if agent else NO_AGENT
        text.append(_document(settings, one, left_out if one["kind"] == "Secret" else ""))
    for request in requests:
        if settings.dial:
            text.append(_document(settings, _dial(request, settings), NO_DIAL))
        text.append(_document(settings, _pod(request, settings)))
    return "".join(text)


def _document(settings: PodSettings, one: Json, comment: str = "") -> str:
    return f"---\n{comment}{as_yaml(_in(settings, one))}"


def as_yaml(one: Json) -> str:
    """One document, as people read it."""
    return yaml.dump(one, Dumper=_Dumper, sort_keys=False, width=WIDTH)


def _wide(first: LeaseRequest, owner: Owner, agent: Mapping[str, bytes]) -> list[Json]:
    """What is group-wide."""
    group = (first.group, first.group_name, owner)
    secret = compose.secret(*group, "", _applicable(agent))
    if not agent:
        del secret["data"]
    return [
        compose.anchor(*group),
        compose.service(*group, ""),
        *(compose.balanced_service(*group, "", one) for one in first.balanced),
        secret,
    ]


def _applicable(agent: Mapping[str, bytes]) -> dict[str, bytes]:
    """Of the agent's files those that are needed: `kubectl apply` keeps all that it applied in an
    annotation, which holds 256 KiB at most.
    """
    needed = (scripts.AGENT_KEY, scripts.RELAY_KEY)
    return {name: body for name, body in agent.items() if name in needed}


def _claims(requests: Sequence[LeaseRequest], settings: PodSettings) -> list[Json]:
    """Those that live as long as the group, each once."""
    every = (claim for one in requests for claim in mounted(one, settings.owner).claims)
    return list({claim["metadata"]["name"]: claim for claim in every}.values())


def _dial(request: LeaseRequest, settings: PodSettings) -> Json:
    """The secret of a lease, without its data."""
    secret = compose.dial_secret(request, settings.owner, "", "", "")
    del secret["data"]
    return secret


def _pod(request: LeaseRequest, settings: PodSettings) -> Json:
    """Without the addresses of balanced services, which a cluster gives when they are made."""
    return compose.pod(request, replace(settings, balanced=()))


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

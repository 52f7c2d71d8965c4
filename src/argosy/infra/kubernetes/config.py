"""Reads the Kubernetes contexts of `config.yaml`, every error with its place.

    kubernetes:
      contexts:
        prod:                               # `--infra kubernetes/prod`
          context: gke_acme_europe-west4    # in the kubeconfig; default: the name above
          kubeconfig: ~/.kube/config        # default: $KUBECONFIG, else ~/.kube/config
          namespace: research               # default: the context's own
          image: python:3.11-slim-bookworm  # of tasks that name none
          service_account: trainer          # of the pods; default: none, and no token in them
          image_pull_secrets: [registry]
          priority_class: batch
          node_selector: {pool: gpu}
          tolerations: [{key: dedicated, operator: Exists}]
          tolerate_seconds: 30              # that a node may be silent before its pods are given up
          restricted: true                  # pods that Pod Security `restricted` lets in
          run_as_user: 1000                 # implies `restricted`
          autoscaling: true                 # the cluster makes nodes when pods wait for them
          pod_config: {spec: {...}}         # merged into every pod

What a context is called in the kubeconfig is not checked here: that file is read on first use.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from argosy.infra.config_file import FLATTER, Reading, text_of
from argosy.infra.kubernetes.marks import CONTAINER, PREFIX

DEFAULT_IMAGE: Final = "python:3.11-slim-bookworm"
DEFAULT_USER: Final = 1000  # of restricted pods
TOLERATE_SECONDS: Final = 30
IN_CLUSTER: Final = "in-cluster"  # as `context`: the pod's own service account
DEPTH_MAX: Final = 20  # of `pod_config`

NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
DNS_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
DNS_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
LABEL_KEY: Final = re.compile(
    r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)
LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
OPERATORS: Final = ("Exists", "Equal")
TOLERATION_KEYS: Final = ("key", "operator", "value", "effect", "tolerationSeconds")
CONTEXT_KEYS: Final = (
    "context", "kubeconfig", "namespace", "image", "service_account", "image_pull_secrets",
    "priority_class", "node_selector", "tolerations", "tolerate_seconds", "restricted",
    "run_as_user", "autoscaling", "pod_config",
)  # fmt: skip

# What `pod_config` may not say: each is what makes the pod the lease's.
OURS: Final[Mapping[str, tuple[str, ...]]] = {
    "metadata": ("name", "generateName", "namespace", "ownerReferences"),
    "spec": ("restartPolicy", "hostname", "subdomain", "nodeName", "terminationGracePeriodSeconds"),
    "container": ("command", "args", "image", "stdin", "tty"),
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ContextConfig:
    """One cluster as one user reaches it. "": as the kubeconfig or the cluster has it."""

    name: str  # in Argosy's words: `kubernetes/NAME`
    context: str = ""  # in those of the kubeconfig; IN_CLUSTER: no kubeconfig at all
    kubeconfig: str = ""
    namespace: str = ""
    image: str = DEFAULT_IMAGE
    service_account: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    priority_class: str = ""
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    tolerate_seconds: int = TOLERATE_SECONDS
    restricted: bool = False
    run_as_user: int = DEFAULT_USER  # of restricted pods
    autoscaling: bool = False
    pod_config: Mapping[str, Any] = field(default_factory=dict, hash=False)


def read_contexts(path: Path) -> tuple[ContextConfig, ...]:
    """All contexts in that file; () when there is none. Raises InputError, InputErrors."""
    return parse_contexts(text_of(path), str(path))


def parse_contexts(text: str, file: str) -> tuple[ContextConfig, ...]:
    """The contexts in a text. Raises InputErrors with all errors."""
    reading = Reading(file, text)
    section = reading.section(reading.root(), "the file", "kubernetes")
    inside = reading.entries(section, "`kubernetes`", ("contexts",))
    given = inside["contexts"][1] if "contexts" in inside else None
    found = []
    for name, (key, value) in reading.entries(given, "`contexts`").items():
        if not NAME.fullmatch(name):
            hint = "letters, digits, `.`, `_` and `-`; 63 at most. `context:` takes any name"
            reading.wrong(key, f"`{name}` is no name for a context", hint=hint)
        found.append(_context(reading, name, value))
    reading.settle()
    return tuple(found)


def _context(reading: Reading, name: str, node: yaml.Node) -> ContextConfig:
    entries = reading.entries(node, f"context `{name}`", CONTEXT_KEYS)
    values = {key: value for key, (_, value) in entries.items()}

    def read(key: str, reader: Callable[[Reading, yaml.Node, str], T], default: T) -> T:
        return reader(reading, values[key], key) if key in values else default

    kubeconfig = read("kubeconfig", Reading.path, "")
    return ContextConfig(
        name=name,
        context=read("context", Reading.word, "") or name,
        kubeconfig=os.path.expanduser(kubeconfig) if kubeconfig else "",
        namespace=read("namespace", _dns_label, ""),
        image=read("image", Reading.word, "") or DEFAULT_IMAGE,
        service_account=read("service_account", _dns_name, ""),
        image_pull_secrets=read("image_pull_secrets", _dns_names, ()),
        priority_class=read("priority_class", _dns_name, ""),
        node_selector=read("node_selector", _labels, ()),
        tolerations=read("tolerations", _tolerations, ()),
        tolerate_seconds=read("tolerate_seconds", _whole, TOLERATE_SECONDS),
        restricted=read("restricted", Reading.boolean, False) or "run_as_user" in values,
        run_as_user=read("run_as_user", _user, DEFAULT_USER),
        autoscaling=read("autoscaling", Reading.boolean, False),
        pod_config=read("pod_config", _pod_config, {}),
    )


def _dns_label(reading: Reading, node: yaml.Node, name: str) -> str:
    return _matching(reading, node, name, DNS_LABEL)


def _dns_name(reading: Reading, node: yaml.Node, name: str) -> str:
    return _matching(reading, node, name, DNS_NAME)


def _matching(reading: Reading, node: yaml.Node, name: str, pattern: re.Pattern[str]) -> str:
    """A name as Kubernetes takes it; "" when it is wrong."""
    text = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
    if not pattern.fullmatch(text):
        hint = "lower-case letters, digits and `-`, as Kubernetes has it"
        reading.wrong(node, f"`{name}` must be a name", hint=hint)
        return ""
    return text


def _dns_names(reading: Reading, node: yaml.Node, name: str) -> tuple[str, ...]:
    if isinstance(node, yaml.ScalarNode):
        return (_dns_name(reading, node, name),)
    return tuple(_dns_name(reading, one, name) for one in _items(reading, node, name))


def _items(reading: Reading, node: yaml.Node, name: str) -> list[yaml.Node]:
    if not isinstance(node, yaml.SequenceNode):
        reading.wrong(node, f"`{name}` must be a list", "not-a-list", f"write `{name}: [one, two]`")
        return []
    return list(node.value)


def _whole(reading: Reading, node: yaml.Node, name: str, least: int = 0) -> int:
    text = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
    if not text.isdecimal() or int(text) < least:
        text = f"`{name}` must be a whole number, {least} or more"
        reading.wrong(node, text, hint=f"write it in digits: `{name}: 60`")
        return least
    return int(text)


def _user(reading: Reading, node: yaml.Node, name: str) -> int:
    return _whole(reading, node, name, 1)


def _labels(reading: Reading, node: yaml.Node, name: str) -> tuple[tuple[str, str], ...]:
    found = []
    for key, (key_node, value) in reading.entries(node, f"`{name}`").items():
        text = str(value.value) if isinstance(value, yaml.ScalarNode) else "?"
        if not LABEL_KEY.fullmatch(key):
            hint = "such as `pool` or `example.org/pool`"
            reading.wrong(key_node, f"`{key}` is no key of a label", hint=hint)
        elif not LABEL_VALUE.fullmatch(text):
            text = f"the value of `{key}` is none that a label may have"
            reading.wrong(value, text, hint="63 letters, digits, `.`, `_` and `-` at most")
        found.append((key, text))
    return tuple(found)


def _tolerations(reading: Reading, node: yaml.Node, name: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(_toleration(reading, one) for one in _items(reading, node, name))


def _toleration(reading: Reading, node: yaml.Node) -> Mapping[str, Any]:
    if not isinstance(node, yaml.MappingNode):
        hint = "write `{key: dedicated, operator: Exists}`"
        reading.wrong(node, "a toleration must be a map", "not-a-map", hint)
        return {}
    entries = reading.entries(node, "a toleration", TOLERATION_KEYS)
    found: dict[str, Any] = {}
    for key, (_, value) in entries.items():
        match key:
            case "tolerationSeconds":
                found[key] = _whole(reading, value, key)
            case "operator":
                found[key] = _one_of(reading, value, key, OPERATORS)
            case "effect":
                found[key] = _one_of(reading, value, key, EFFECTS)
            case _:
                found[key] = str(value.value)
    if found and not found.get("key") and found.get("operator") != "Exists":
        hint = "`{operator: Exists}` tolerates everything"
        reading.wrong(node, "a toleration needs `key`, or `operator: Exists`", hint=hint)
    return found


def _one_of(reading: Reading, node: yaml.Node, name: str, known: tuple[str, ...]) -> str:
    text = str(node.value)
    if text not in known:
        hint = f"write `{name}: {known[0]}`: capital letters count"
        reading.wrong(node, f"`{name}` must be one of {', '.join(known)}", hint=hint)
    return text


def _pod_config(reading: Reading, node: yaml.Node, name: str) -> Mapping[str, Any]:
    """A part of a pod's manifest as plain data."""
    parts = reading.entries(node, f"`{name}`", ("metadata", "spec"))
    for part, (_, value) in parts.items():
        inside = reading.entries(value, f"`{name}.{part}`")
        _not_ours(reading, inside, f"{name}.{part}", OURS.get(part, ()))
        if part == "metadata" and "labels" in inside:
            for key, (key_node, _) in reading.entries(inside["labels"][1], "`labels`").items():
                if key.startswith(PREFIX):
                    text = f"labels under `{PREFIX}` are Argosy's own"
                    reading.wrong(key_node, text, "not-yours", "choose another prefix")
        if part == "spec" and "containers" in inside:
            _containers(reading, inside["containers"][1], f"{name}.spec.containers")
    plain = _plain(reading, node, DEPTH_MAX)
    return plain if isinstance(plain, dict) else {}


def _containers(reading: Reading, node: yaml.Node, name: str) -> None:
    for place, one in enumerate(_items(reading, node, name)):
        inside = reading.entries(one, f"a container of `{name}`")
        title = str(inside["name"][1].value) if "name" in inside else ""
        if title == CONTAINER or (not title and place == 0):
            _not_ours(reading, inside, f"{name}[{place}]", OURS["container"])
        elif not title:
            hint = f"one without a name, in the first place, is merged into `{CONTAINER}`"
            reading.wrong(one, "a container beside ours needs a `name`", hint=hint)


def _not_ours(
    reading: Reading,
    inside: Mapping[str, tuple[yaml.Node, yaml.Node]],
    where: str,
    ours: tuple[str, ...],
) -> None:
    for key, (node, _) in inside.items():
        if key in ours:
            hint = "`image:` of the context, or `image_id:` of a task" if key == "image" else ""
            text = f"`{key}` of `{where}` is set by Argosy"
            reading.wrong(node, text, "not-yours", hint or "leave it out")


def _plain(reading: Reading, node: yaml.Node, depth: int) -> Any:
    """A tree of YAML as JSON has it: a date, say, stays the text that it was written as."""
    if depth == 0:
        reading.wrong(node, f"more than {DEPTH_MAX} levels of maps and lists", hint=FLATTER)
        return None
    if isinstance(node, yaml.MappingNode):
        pairs = reading.entries(node, "a map").items()
        return {key: _plain(reading, value, depth - 1) for key, (_, value) in pairs}
    if isinstance(node, yaml.SequenceNode):
        return [_plain(reading, one, depth - 1) for one in node.value]
    kind = node.tag.rpartition(":")[2]
    if kind in ("int", "float", "bool", "null"):
        return yaml.constructor.SafeConstructor().construct_object(node)
    return str(node.value)

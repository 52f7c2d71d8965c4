"""The contexts that are there without a word in config.yaml: those of the kubeconfig, and the
cluster that this server runs in.

Only their names are read here, when the server starts; whoever signs in reads the files again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from argosy.infra.kubernetes.config import IN_CLUSTER, ContextConfig

VARIABLE: Final = "KUBECONFIG"
SERVICE_HOST: Final = "KUBERNETES_SERVICE_HOST"
FILE: Final = Path(".kube/config")  # in the user's home


def found_contexts(
    environment: Mapping[str, str], user_home: Path
) -> tuple[tuple[ContextConfig, ...], str]:
    """(every context, the name of the current one or ""). A file that cannot be read has none."""
    names: dict[str, None] = {}
    current = ""
    for path in _files(environment, user_home):
        said = _read(path)
        current = current or str(said.get("current-context") or "")
        contexts = said.get("contexts")
        for one in contexts if isinstance(contexts, list) else ():
            if isinstance(one, dict) and one.get("name"):
                names.setdefault(str(one["name"]))
    if not names and environment.get(SERVICE_HOST):
        return (ContextConfig(IN_CLUSTER, context=IN_CLUSTER),), IN_CLUSTER
    return tuple(ContextConfig(name, context=name) for name in names), current


def _files(environment: Mapping[str, str], user_home: Path) -> Iterable[Path]:
    """As kubectl has it: the first that says something counts."""
    given = [one for one in environment.get(VARIABLE, "").split(os.pathsep) if one]
    return [Path(one) for one in given] or [user_home / FILE]


def _read(path: Path) -> dict[str, Any]:
    try:
        said = yaml.load(
            path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        )
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return said if isinstance(said, dict) else {}

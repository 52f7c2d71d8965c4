"""YAML text to GroupSpec: pure, offline, with every error at once."""

from __future__ import annotations

from typing import Any

from argosy.spec.overrides import Overrides, interpret_env_file, interpret_pairs
from argosy.spec.parse import Parsed, parse
from argosy.spec.report import render
from argosy.spec.source.notes import Warning_


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one document of a task file."""
    from argosy.spec.schema import schema as made  # imported when asked for

    return made()


__all__ = [
    "Overrides",
    "Parsed",
    "Warning_",
    "interpret_env_file",
    "interpret_pairs",
    "parse",
    "render",
    "schema",
]

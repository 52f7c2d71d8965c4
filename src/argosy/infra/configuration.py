"""`config.yaml` as a whole: its sections, everything that is wrong with it, its schema.

Each section is declared by who reads it: a `SCHEMA`, and `shown`, which reads it with all defaults.
A name from outside (an entry point `argosy.infra`) and one that begins with `x-` are let alone.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

import yaml

from argosy.errors import InputError, InputErrors
from argosy.infra.config_file import Reading, text_of

FILE: Final = "config.yaml"  # in $ARGOSY_HOME
DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
OURS_NOT: Final = "x-"  # what begins so is for others
GROUP: Final = "argosy.infra"  # of entry points
ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]{0,252}):([0-9]{1,5})")
SERVER: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "The server itself.",
    "additionalProperties": False,
    "properties": {
        "advertise": {
            "type": "string",
            "description": "HOST:PORT at which agents in pods reach this server.",
        }
    },
}


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the file. `shown(text, file)` gives what it says, with defaults."""

    name: str
    schema: Mapping[str, Any]
    shown: Callable[[str, str], dict[str, Any]]
    inside: str = ""  # the key under which it lists things by name


def sections() -> tuple[Section, ...]:
    """Every section, in the order in which they are shown. Imports their readers."""
    from argosy.infra.kubernetes import schema as kubernetes
    from argosy.infra.local import pools as local
    from argosy.infra.ssh import config as ssh

    return (
        Section("server", SERVER, _server),
        Section("local", local.SCHEMA, local.shown, "pools"),
        Section("ssh", ssh.SCHEMA, ssh.shown, "pools"),
        Section("kubernetes", kubernetes.SCHEMA, kubernetes.shown, "contexts"),
    )


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the file."""
    return {
        "$schema": DRAFT,
        "title": "Argosy configuration",
        "description": "$ARGOSY_HOME/config.yaml",
        "type": "object",
        "additionalProperties": False,
        "patternProperties": {f"^{OURS_NOT}": {}},
        "properties": {one.name: one.schema for one in sections()},
    }


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Every section that says something, with defaults. Raises InputError, InputErrors."""
    return parse(text_of(path), str(path))


def parse(text: str, file: str) -> dict[str, dict[str, Any]]:
    """The same, of a text. Raises InputErrors with everything that is wrong, in its order."""
    top = Reading(file, text)
    root = top.root()
    given = top.entries(root, "the file")
    known = [one.name for one in sections()]
    others = [entry.name for entry in entry_points(group=GROUP)]
    for name, (key, _) in given.items():
        if name not in (*known, *others) and not name.startswith(OURS_NOT):
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"
            top.wrong(key, f"`{name}` is no section of this file", "unknown-section", hint)
    errors = list(top.errors)
    found: dict[str, dict[str, Any]] = {}
    for one in sections():
        try:
            shown = one.shown(text, file)
        except InputErrors as wrong:
            errors += wrong.errors
            continue
        if shown:
            found[one.name] = {one.inside: shown} if one.inside else shown
    if errors:
        raise InputErrors(_in_order(errors))
    return found


def places(text: str, file: str) -> dict[tuple[str, str], str]:
    """(section, name) -> `FILE:LINE` of everything that a section lists by name."""
    reading = Reading(file, text)
    root = reading.root()
    found = {}
    for one in sections():
        listed = reading.section(reading.section(root, "", one.name), "", one.inside)
        for name, (key, _) in reading.entries(listed, "").items():
            found[one.name, name] = f"{file}:{key.start_mark.line + 1}"
    return found


def sky_pools(user_home: Path) -> dict[str, tuple[str, Any]]:
    """Pools that SkyPilot's file brings: name -> (`FILE:LINE`, the pool). Raises InputErrors."""
    from argosy.infra.ssh import config as ssh

    path, text, pools = ssh.sky_shown(user_home)
    reading = Reading(str(path), text)
    lines = {
        name: key.start_mark.line + 1
        for name, (key, _) in reading.entries(reading.root(), "").items()
    }
    return {name: (f"{path}:{lines[name]}", pool) for name, pool in pools.items()}


def _in_order(errors: list[InputError]) -> tuple[InputError, ...]:
    """Each error once, by its place: of the file at large every reader tells the same."""
    told: dict[tuple[int, int, str], InputError] = {}
    for error in errors:
        line, column = (error.place.line, error.place.column) if error.place else (0, 0)
        told.setdefault((line, column, error.text), error)
    return tuple(told[key] for key in sorted(told))


def _server(text: str, file: str) -> dict[str, Any]:
    """The section `server`. Raises InputErrors."""
    reading = Reading(file, text)
    section = reading.section(reading.root(), "the file", "server")
    given = reading.entries(section, "`server`", tuple(SERVER["properties"]))
    found = {name: _address(reading, value) for name, (_, value) in given.items()}
    reading.settle()
    return found


def _address(reading: Reading, node: yaml.Node) -> str:
    text = str(node.value).strip() if isinstance(node, yaml.ScalarNode) else ""
    match = ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match[2]) < 65536:
        hint = "such as `10.0.0.5:7443`: what pods can reach"
        reading.wrong(node, "`advertise` must be HOST:PORT", hint=hint)
    return text

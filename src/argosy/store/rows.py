"""A group as a row and back. The spec stands in a column of its own and is written once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from argosy.model import codec
from argosy.model.action import Event
from argosy.model.group import Group
from argosy.model.spec import GroupSpec

NO_SPEC: Final = GroupSpec("", ())


def row(group: Group) -> dict[str, Any]:
    """What changes of a group: all columns but those of `first`."""
    data = codec.encode(replace(group, spec=NO_SPEC))
    del data["spec"]
    final = group.phase.final
    return {
        "live": not final,
        "unfinished": not (final and group.clean),
        "ended_at": group.ended_at,
        "version": group.version,
        "record": codec.dumps(data),
    }


def first(group: Group, source: str) -> dict[str, Any]:
    """What never changes of a group, with its secrets."""
    return {
        "id": group.id,
        "name": group.spec.name,
        "submitted_at": group.submitted_at,
        "spec": codec.dumps(codec.encode(group.spec, with_secrets=True)),
        "source": source,
    }


def group_of(columns: Mapping[str, Any]) -> Group:
    """The group of a row that has `record` and `spec`. Raises Broken."""
    record = {**json.loads(columns["record"]), "spec": json.loads(columns["spec"])}
    return codec.decode(Group, record)


def event_row(group: Group, event: Event) -> dict[str, Any]:
    """One event as a row; `seq` is the table's to give."""
    return {
        "group_id": group.id,
        "at": event.at,
        "code": event.code,
        "about": event.about,
        "attempt": event.attempt,
        "text": event.text,
    }

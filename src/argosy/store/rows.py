"""A group as a row and back. The spec stands in a column of its own and is written once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from argosy.model import codec
from argosy.model.action import Event
from argosy.model.group import Book, Group
from argosy.model.ids import GroupId
from argosy.model.spec import GroupSpec

NO_SPEC: Final = GroupSpec("", ())
NO_BOOK: Final = Book()
LISTS: Final = ("nodes", "attempts", "leases")  # of a record: one entry a node, or more
NO_LISTS: Final[Mapping[str, Any]] = dict.fromkeys(LISTS, ())

Texts = dict[int, tuple[object, str]]
"""The identity of a value -> the value, so that it stays its identity, and its JSON text."""


class Records:
    """Makes rows of groups as they change. A decision leaves most values of a record as they were:
    the texts of those are kept from one row to the next. For one thread."""

    def __init__(self) -> None:
        self._texts: dict[GroupId, Texts] = {}

    def row(self, group: Group) -> dict[str, Any]:
        """What changes of a group: all columns but those of `first`."""
        final = group.phase.final
        return {
            "live": not final,
            "unfinished": not (final and group.clean),
            "ended_at": group.ended_at,
            "version": group.version,
            "record": self._record(group),
        }

    def forget(self, group: GroupId) -> None:
        """There will be no more rows of that group."""
        self._texts.pop(group, None)

    def _record(self, group: Group) -> str:
        known, kept = self._texts.get(group.id, {}), {}

        def text(value: object) -> str:
            found = known.get(id(value)) or (value, codec.text(value))
            kept[id(value)] = found
            return found[1]

        parts = [f'"book":{text(group.book)}']
        for name in LISTS:
            parts.append(f'"{name}":[{",".join(map(text, getattr(group, name)))}]')
        self._texts[group.id] = kept
        rest = codec.encode(replace(group, spec=NO_SPEC, book=NO_BOOK, **NO_LISTS))
        for name in ("spec", "book", *LISTS):
            del rest[name]
        return f"{codec.dumps(rest)[:-1]},{','.join(parts)}}}"


def row(group: Group) -> dict[str, Any]:
    """What changes of a group: all columns but those of `first`."""
    return Records().row(group)


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

"""Groups on one line each, made anew only when a record has changed: lists are asked for often."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from argosy.model import codec
from argosy.model.group import Group
from argosy.model.ids import GroupId
from argosy.views.overview import row

KEPT_MOST: Final = 20_000


class Rows:
    """The lines of groups as JSON data, kept by version."""

    def __init__(self) -> None:
        self._kept: dict[GroupId, tuple[int, dict[str, Any]]] = {}

    def of(self, groups: Iterable[Group], now: float) -> list[dict[str, Any]]:
        """One line for each group, in their order, with its age at `now`."""
        if len(self._kept) > KEPT_MOST:
            self._kept.clear()
        return [self._one(group, now) for group in groups]

    def _one(self, group: Group, now: float) -> dict[str, Any]:
        version, data = self._kept.get(group.id, (-1, {}))
        if version != group.version:
            data = codec.encode(row(group, now))
            self._kept[group.id] = (group.version, data)
        age = max(0.0, (group.ended_at or now) - group.submitted_at)
        return {**data, "age": age}

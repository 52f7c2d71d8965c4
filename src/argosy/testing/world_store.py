"""A simulated store: records with versions, turns that belong to one group, lives, backups."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from argosy.errors import Conflict
from argosy.model.codec import decode, dumps, encode
from argosy.model.group import Group, Intent
from argosy.model.ids import GroupId, InfraName, LeaseId, NodeId
from argosy.model.spec import GroupSpec, TaskSpec

if TYPE_CHECKING:
    from argosy.testing.world import World

THROUGH_CODEC_EVERY = 16  # so many saves apart, the record goes through the codec and back


class Backup:
    """All records as they were."""

    def __init__(self, store: SimStore) -> None:
        self.records = dict(store.records)
        self.last_life, self.newest_at = store.last_life, store.newest_at
        self.issued = set(store.issued)


class SimStore:
    """What a real store promises: a record is saved whole or not at all, over its version only."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.records: dict[GroupId, Group] = {}
        self.last_life = 0
        self.newest_at = 0.0  # of all that was saved
        self.saves = 0
        self.issued: set[LeaseId] = set()  # leases that this store knows that it issued
        self.specs: dict[GroupId, GroupSpec] = {}
        self.needed_to_succeed: dict[GroupId, set[str]] = {}

    def create(self, group: Group) -> None:
        """Write a new group."""
        self.records[group.id] = group
        self.specs[group.id] = group.spec
        self.world.story.name_group(group)
        self.world.say("user", "submits {}", group.id)
        self.world.truth.created(group)

    def load(self, group: GroupId) -> Group:
        """The record as it is now."""
        return self.records[group]

    def save(self, before: Group, after: Group, now: float) -> Group:
        """Write `after` over `before`; the saved record. Raises Conflict when it may not be."""
        stored = self.records[before.id]
        if stored.version != before.version:
            raise Conflict("another decision was saved meanwhile")
        if after.placing.turns != stored.placing.turns:
            taken = self.turns(except_for=after.id)
            if any(infra in taken for infra in after.placing.turns):
                raise Conflict("another group has the turn")
        saved = replace(after, version=before.version + 1)
        self.saves += 1
        if self.saves % THROUGH_CODEC_EVERY == 0:
            data = dumps(encode(saved, with_secrets=True))
            again = decode(Group, json.loads(data))
            assert again == saved, "the codec changes a record"
        self.records[saved.id] = saved
        self.newest_at = max(self.newest_at, now)
        self.issued.update(lease.id for lease in saved.leases)
        return saved

    def turns(self, *, except_for: GroupId | None = None) -> dict[InfraName, GroupId]:
        """Who has the turn on each infra."""
        return {
            infra: group.id
            for group in self.records.values()
            if group.id != except_for
            for infra in group.placing.turns
        }

    def intend(self, group: GroupId, intent: Intent) -> None:
        """Write a wish of the user into the record."""
        record = self.records[group]
        if record.phase.final:
            return
        self.records[group] = replace(
            record, intents=(*record.intents, intent), version=record.version + 1
        )
        self.world.truth.intended(group, intent)

    def new_life(self, wall: float) -> int:
        """A server starts: durably, a life that was never used."""
        self.last_life = max(self.last_life + 1, int(wall))
        return self.last_life

    def restore(self, backup: Backup) -> None:
        """Put an older version of everything back."""
        lost = [one for one in self.records if one not in backup.records]
        assert not lost, "worlds take backups after every group was submitted"
        versions = {one.id: one.version for one in self.records.values()}
        self.records = {
            key: replace(one, version=max(one.version, versions[key]) + 1)
            for key, one in backup.records.items()
        }
        self.last_life, self.newest_at = backup.last_life, backup.newest_at
        self.issued = set(backup.issued)

    # --- answers ---------------------------------------------------------------------------------

    def task(self, group: GroupId, node: NodeId) -> TaskSpec:
        """The task of a node."""
        return self.specs[group].task(node.task)

    def grace(self, group: GroupId, node: NodeId) -> float:
        """Seconds from SIGTERM to SIGKILL."""
        record = self.records[group]
        return 0.0 if record.grace_zero else self.task(group, node).grace

    def endless(self, group: GroupId, node: NodeId) -> bool:
        """A service that serves until it is stopped."""
        task = self.task(group, node)
        return not task.primary and task.name not in self.needed_to_succeed.get(group, ())

    def all_clean(self) -> bool:
        """Every group is over, and nothing with its mark was seen after."""
        return all(one.phase.final and one.clean for one in self.records.values())

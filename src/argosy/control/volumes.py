"""Volumes: made under a name, found for groups, bound to the host that uses them first, deleted.

What is kept of them is in the store; the bytes are where the infras have them. A delete first says
in the store that nothing new may mount it, then has the bytes removed, then forgets it; one that
was interrupted is finished by the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from argosy.clock import Clock
from argosy.errors import CapacityError, Conflict, InfraError, NotFound
from argosy.infra.api import Infra, Volumes
from argosy.model.ids import InfraName
from argosy.model.plan import Placement
from argosy.model.spec import GroupSpec, VolumeMount
from argosy.model.volumes import Volume, VolumeKind, VolumeSpec, VolumeUse
from argosy.plan.candidates import named
from argosy.storage import volumes as wording
from argosy.store.store import Store

PINNED_ON: Final = "ssh/"  # where a `local` volume is on one host of several
ELSEWHERE_RETRY: Final = 1.0  # seconds until a plan that came too early is made anew


class Change(StrEnum):
    """What `apply` did."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class KeptVolume:
    """A volume and who uses it."""

    volume: Volume
    used_by: tuple[str, ...]  # names of groups


class KeptVolumes:
    """The volumes of one server."""

    def __init__(self, store: Store, infras: Mapping[InfraName, Infra], clock: Clock) -> None:
        self._store, self._infras, self._clock = store, infras, clock
        self._lock = asyncio.Lock()  # one change at a time

    def every(self) -> list[KeptVolume]:
        """All, by name."""
        users = self._store.volume_users()
        return [
            KeptVolume(one, tuple(dict.fromkeys(users.get(one.id, ()))))
            for one in self._store.volumes()
        ]

    # For groups

    def resolved(self, spec: GroupSpec) -> GroupSpec:
        """The spec with the volumes that it names. Raises NotFound, Conflict, InputError."""
        if not any(task.volumes for task in spec.tasks):
            return spec
        return wording.resolved(spec, {one.spec.name: one for one in self._store.volumes()})

    def placed(self, spec: GroupSpec) -> GroupSpec:
        """The spec with where the bytes of its volumes are, of those for which that is decided."""
        if not any(mount.id for task in spec.tasks for mount in task.volumes):
            return spec
        known = {one.id: one for one in self._store.volumes() if one.infra}
        return replace(spec, tasks=tuple(
            replace(task, volumes=tuple(_placed(mount, known) for mount in task.volumes))
            for task in spec.tasks
        ))  # fmt: skip

    async def bind(self, uses: tuple[VolumeUse, ...], placement: Placement) -> None:
        """Before a node is acquired: say where the bytes of its `local` volumes are from now on.
        Raises CapacityError where they are elsewhere already, InfraError where they are gone.
        """
        for use in uses:
            if use.ephemeral or use.spec.kind is not VolumeKind.LOCAL or not use.spec.name:
                continue
            host = placement.host or "" if placement.infra.startswith(PINNED_ON) else ""
            try:
                await self._store.pin_volume(use.id, placement.infra, host)
            except Conflict as error:
                raise CapacityError(
                    error.text, code=error.code, hint=error.hints, retry=ELSEWHERE_RETRY
                ) from error
            except NotFound as error:
                raise InfraError(error.text, code=error.code) from error

    # For people

    async def apply(self, spec: VolumeSpec) -> tuple[Volume, Change]:
        """Make a volume, or change what may change of one. Raises InputError, Conflict, NotFound,
        InfraError.
        """
        async with self._lock:
            there = {one.spec.name: one for one in self._store.volumes()}
            before = there.get(spec.name)
            if before is not None:
                after = wording.changed(before, spec)
                if after == before:
                    return before, Change.UNCHANGED
                change = Change.CHANGED
            else:
                self._refuse_unknown_infra(spec)
                now = self._clock.now()
                id_ = f"{spec.name}-{int(now * 1000):x}"  # one of that name at a time
                after = Volume(id_, spec, now, *_decided(spec))
                change = Change.CREATED
            for infra in self._of(after):
                await infra.ensure_volume(after)
            await self._store.put_volume(after)
            return after, change

    async def delete(self, name: str) -> Volume:
        """Forget a volume; the bytes go where they are ours. Raises NotFound, Conflict while groups
        use it, Unreachable while a host that has them does not answer.
        """
        async with self._lock:
            volume = await self._store.begin_delete_volume(name)
            for infra in self._of(volume):
                await infra.delete_volume(volume)
            await self._store.strike_volume(volume.id)
            return volume

    def _refuse_unknown_infra(self, spec: VolumeSpec) -> None:
        if spec.infra and not named(spec.infra, self._infras):
            known = ", ".join(sorted(self._infras))
            raise NotFound(
                f"no infra {spec.infra!r} is known here",
                code="infra/unknown",
                hint=f"there is {known}",
            )

    def _of(self, volume: Volume) -> Iterator[Volumes]:
        """The infras that have something to do with it."""
        pattern = volume.infra or volume.spec.infra
        for name in sorted(named(pattern or None, self._infras)):
            infra = self._infras[name]
            if isinstance(infra, Volumes):
                yield infra


def _decided(spec: VolumeSpec) -> tuple[InfraName, str]:
    """Where its bytes are, if the user said so."""
    exact = spec.kind is VolumeKind.LOCAL and "*" not in spec.infra and spec.infra != "ssh"
    if not exact or (spec.infra.startswith(PINNED_ON) and not spec.host):
        return "", ""
    return spec.infra, spec.host


def _placed(mount: VolumeMount, known: Mapping[str, Volume]) -> VolumeMount:
    volume = known.get(mount.id)
    if volume is None or mount.volume is None:
        return mount
    spec = replace(mount.volume, infra=volume.infra, host=volume.host)
    return replace(mount, volume=spec)

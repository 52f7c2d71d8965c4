"""Volumes: made under a name, found for groups, bound to the host that uses them first, deleted.

What is kept of them is in the store; the bytes are where the infras have them. A delete first says
in the store that nothing new may mount it, then has the bytes removed, then forgets it; one that
was interrupted is finished by the next. A new one is kept so from before it is made until it is
whole: so what an interrupted `apply` has left is removed by a delete, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from argosy.clock import Clock
from argosy.errors import ArgosyError, CapacityError, Conflict, InfraError, NotFound, Unreachable
from argosy.infra.api import Infra, Volumes
from argosy.model.ids import InfraName
from argosy.model.plan import Placement
from argosy.model.spec import GroupSpec, VolumeMount
from argosy.model.volumes import Volume, VolumeKind, VolumeSpec, VolumeUse
from argosy.plan.candidates import named
from argosy.storage import volumes as wording
from argosy.store.store import Store
from argosy.views.near import unknown_infra

PINNED_ON: Final = "ssh/"  # where a `local` volume is on one host of several
ELSEWHERE_RETRY: Final = 1.0  # seconds until a plan that came too early is made anew
AGAIN: Final = "something of it may be there: the same command again goes on with it"
FORGET: Final = "`argosy volumes delete {name} --forget` gives up what is in it"


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

    def check(self, spec: VolumeSpec, *, new: bool = False) -> None:
        """What can be said before any is made; `new`: and none is changed. Raises Conflict,
        NotFound.
        """
        spec = self._as_called_here(spec)
        before = {one.spec.name: one for one in self._store.volumes()}.get(spec.name)
        if before is None:
            self._refuse_unknown_infra(spec)
        elif before.whole or before.spec != spec:
            _judged(new)(before, spec)

    async def apply(self, spec: VolumeSpec, *, new: bool = False) -> tuple[Volume, Change]:
        """Make a volume, or change what may change of one; `new`: change none. Raises InputError,
        Conflict, NotFound, InfraError.
        """
        async with self._lock:
            spec = self._as_called_here(spec)
            there = {one.spec.name: one for one in self._store.volumes()}
            before = there.get(spec.name)
            if before is None:
                return await self._created(spec, self._new_id(spec)), Change.CREATED
            if not before.whole and before.spec == spec:  # goes on with what was interrupted
                return await self._created(spec, before.id), Change.CREATED
            after = _judged(new)(before, spec)
            if after == before:
                return before, Change.UNCHANGED
            await self._ensure(after)
            await self._store.put_volume(after)
            return after, Change.CHANGED

    async def delete(self, name: str, *, forget: bool = False) -> tuple[Volume, str]:
        """Forget a volume; the bytes go where they are ours. The volume, and why bytes of it may
        have stayed: only with `forget`, which passes over whoever does not answer.

        Raises NotFound, Conflict while groups use it, and without `forget` Unreachable while a host
        that has the bytes does not answer, or its infra is not known any more.
        """
        async with self._lock:
            volume = await self._store.begin_delete_volume(name)
            why = ""
            try:
                await self._remove(volume)
            except ArgosyError as error:
                if not forget:
                    raise
                why = error.text
            await self._store.strike_volume(volume.id)
            return volume, why

    def _new_id(self, spec: VolumeSpec) -> str:
        return f"{spec.name}-{int(self._clock.now() * 1000):x}"  # one of that name at a time

    async def _created(self, spec: VolumeSpec, id_: str) -> Volume:
        """Make a new one; of one that cannot be made whole what there is is removed again."""
        self._refuse_unknown_infra(spec)
        infra, host = _decided(spec)
        unfinished = Volume(id_, spec, infra=infra, host=host, deleting=True)
        await self._store.put_volume(unfinished)
        try:
            await self._ensure(unfinished)
        except ArgosyError as error:
            if not await self._undone(unfinished, error):
                error.hints = (*error.hints, AGAIN, FORGET.format(name=spec.name))
            raise
        volume = replace(unfinished, created_at=self._clock.now(), deleting=False)
        await self._store.put_volume(volume)
        return volume

    def _refuse_unknown_infra(self, spec: VolumeSpec) -> None:
        if spec.infra and not named(spec.infra, self._infras):
            text, hints = unknown_infra(spec.infra, self._infras)
            raise NotFound(f"volume {spec.name!r}: {text}", code="infra/unknown", hint=hints)

    async def _undone(self, volume: Volume, why: ArgosyError) -> bool:
        """Remove what there is of one that could not be made whole; False: it may be left."""
        if isinstance(why, Unreachable):  # then it cannot be asked to remove anything, either
            return False
        try:
            await self._remove(volume)
        except ArgosyError:
            return False
        await self._store.strike_volume(volume.id)
        return True

    async def _ensure(self, volume: Volume) -> None:
        for infra in self._of(volume):
            await infra.ensure_volume(volume)

    async def _remove(self, volume: Volume) -> None:
        # One of type `local` has no bytes before its first use has decided where they are.
        where = volume.infra if volume.spec.kind is VolumeKind.LOCAL else volume.spec.infra
        if volume.spec.ours and where and not named(where, self._infras):
            raise Unreachable(
                f"the volume {volume.spec.name!r} is on {where}, which is not known here any more",
                code="volumes/infra-gone",
                hint=(
                    "put it back into config.yaml, `argosy server stop`, and delete it again",
                    FORGET.format(name=volume.spec.name),
                ),
            )
        for infra in self._of(volume):
            try:
                await infra.delete_volume(volume)
            except Unreachable as error:
                error.hints = (*error.hints, FORGET.format(name=volume.spec.name))
                raise

    def _as_called_here(self, spec: VolumeSpec) -> VolumeSpec:
        """The spec with the name of its infra as that writes it: `ssh/LAB` may mean `ssh/lab`."""
        alike = [name for name in self._infras if name.lower() == spec.infra.lower()]
        known = spec.infra in self._infras or len(alike) != 1
        return spec if known else replace(spec, infra=alike[0])

    def _of(self, volume: Volume) -> Iterator[Volumes]:
        """The infras that have something to do with it."""
        pattern = volume.infra or volume.spec.infra
        for name in sorted(named(pattern or None, self._infras)):
            infra = self._infras[name]
            if isinstance(infra, Volumes):
                yield infra


def _judged(new: bool) -> Callable[[Volume, VolumeSpec], Volume]:
    """What becomes of a volume that is there; raises Conflict."""
    return wording.same if new else wording.changed


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

"""Performs actions. It returns nothing: whatever an action did is seen by the next look.

Every action is an idempotent "ensure" that `decide` repeats until its effect is seen. One that is
under way, or was done a moment ago, is not done again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, assert_never, runtime_checkable

from argosy.clock import Clock
from argosy.control import planning
from argosy.control.balancing import Balancing, addresses
from argosy.control.entry import Entry
from argosy.control.links import AgentLink
from argosy.control.lost_hosts import LostHosts
from argosy.control.volumes import KeptVolumes
from argosy.discovery.assignment import (
    book_fields,
    compose,
    lease_of,
    on_one_host,
    on_several_hosts,
)
from argosy.errors import NEVER, AccessError, ArgosyError, CapacityError, InfraError
from argosy.infra.api import Infra
from argosy.model.action import (
    Acquire,
    Action,
    Assign,
    Release,
    Replan,
    lease_request,
)
from argosy.model.group import Book, Group
from argosy.model.ids import GroupId, InfraName, LeaseId
from argosy.model.observed import Refusal

log = logging.getLogger("argosy.control.actuator")

REFUSED_RETRY = 10.0  # seconds, for an error that does not say when to try again
VERB_TIMEOUT = 120.0  # seconds for one verb of an infra: none of them waits for capacity
AGAIN_AFTER = 1.5  # an effect that was not seen is asked for again, not sooner than this


@runtime_checkable
class HoldsCards(Protocol):
    """An infra that knows which cards of a host a lease holds."""

    def gpu_indices(self, lease: LeaseId) -> tuple[int, ...]:
        """Their indices; () when it holds none."""


@runtime_checkable
class HostsApart(Protocol):
    """An infra that says whether its hosts reach into each other's isolated networks."""

    @property
    def hosts_apart(self) -> bool:
        """They do not."""


@runtime_checkable
class OwnAddresses(Protocol):
    """An infra each of whose leases is a host of its own, at whose address all others reach it."""

    @property
    def own_addresses(self) -> bool:
        """It is so."""


class Rim(Protocol):
    """What the actuator needs of the controller."""

    lost_hosts: LostHosts
    volumes: KeptVolumes

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> object:
        """Start a task and keep it."""

    def link(self, infra: InfraName, host: str) -> AgentLink:
        """The control stream to that host's agent, opened if need be."""

    def look(self, infra: InfraName) -> None:
        """Look at that infra soon."""

    def news(self, entry: Entry) -> None:
        """Decide about that group again."""


class Actuator:
    """Does what decisions say."""

    def __init__(self, infras: Mapping[InfraName, Infra], clock: Clock, rim: Rim) -> None:
        self._infras, self._clock, self._rim = infras, clock, rim
        self._under_way: set[str] = set()
        self._done_at: dict[str, float] = {}
        self._balancing = Balancing(clock, rim.spawn)
        self._one_host: tuple[Group | None, bool] = (None, True)
        self._several_hosts: tuple[Group | None, InfraName, bool] = (None, "", False)
        self._book: tuple[Book | None, GroupId, InfraName, dict[str, Any]]
        self._book = (None, GroupId(""), "", {})

    def perform(self, entry: Entry, action: Action) -> None:
        """Begin an action, unless it is under way or was just done."""
        match action:
            case Acquire():
                self._once(f"acquire {action.lease}", lambda: self._acquire(entry, action))
            case Release():
                self.release(action)
            case Replan():
                self._once(
                    f"plan {entry.group.id} {action.request}", lambda: self._plan(entry, action)
                )
            case Assign():
                self._assign(entry.group, action)
            case _:
                assert_never(action)

    def release(self, action: Release) -> None:
        """Release a lease, of a group that is known or not."""
        self._once(f"release {action.lease} {action.infra}", lambda: self._release(action))

    def balance(self, group: Group) -> None:
        """Say again whom connections are balanced to: an earlier life may not have come to it."""
        for name in group.infras:
            if name in self._infras:
                self._balancing.tell(self._infras[name], group, group.book)

    def forget(self, group: GroupId) -> None:
        """The group is over."""
        self._balancing.forget(group)

    def _once(self, key: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        now = self._clock.now()
        if key in self._under_way or now - self._done_at.get(key, 0.0) < AGAIN_AFTER:
            return
        self._under_way.add(key)
        if len(self._done_at) > 10_000:
            self._done_at = {k: at for k, at in self._done_at.items() if now - at < AGAIN_AFTER}

        async def tracked() -> None:
            try:
                await work()
            finally:
                self._under_way.discard(key)
                self._done_at[key] = self._clock.now()

        self._rim.spawn(key, tracked())

    async def _acquire(self, entry: Entry, action: Acquire) -> None:
        placement = action.placement
        request = lease_request(entry.group.id, entry.group.spec, action.lease, placement)
        try:
            async with asyncio.timeout(VERB_TIMEOUT):
                await self._rim.volumes.bind(request.volumes, placement)
                await self._infra(placement.infra).acquire(request)
        except Exception as error:  # ours to mend too: the group waits, and `explain` says for what
            if not isinstance(error, ArgosyError | OSError):
                log.exception("acquire-failed", extra={"lease": action.lease})
            entry.refusals[action.lease] = self._refusal(action.lease, error)
            self._rim.news(entry)
            return
        entry.refusals.pop(action.lease, None)
        self._rim.look(placement.infra)

    def _refusal(self, lease: LeaseId, error: Exception) -> Refusal:
        now = self._clock.now()
        if not isinstance(error, ArgosyError):
            text = str(error) if isinstance(error, OSError) else repr(error)
            text = text or "the infra did not answer in time"
            return Refusal(lease, "infra", text, "", now, now + REFUSED_RETRY)
        retry = error.retry
        if retry == NEVER and not isinstance(error, CapacityError | AccessError | InfraError):
            retry = REFUSED_RETRY
        hint = error.hints[0] if error.hints else ""
        return Refusal(lease, error.code, error.text, hint, now, now + retry)

    def _infra(self, name: InfraName) -> Infra:
        if name not in self._infras:
            raise InfraError(
                f"infra {name!r} is no longer configured",
                hint="put it back into config.yaml and restart the server",
                retry=REFUSED_RETRY,
            )
        return self._infras[name]

    async def _release(self, action: Release) -> None:
        try:
            async with asyncio.timeout(VERB_TIMEOUT):
                await self._infra(action.infra).release(action.lease)
        except (ArgosyError, OSError) as error:
            log.warning("release-failed", extra={"lease": action.lease, "why": str(error)})
        self._rim.look(action.infra)

    async def _plan(self, entry: Entry, action: Replan) -> None:
        lost = self._rim.lost_hosts
        spec = self._rim.volumes.placed(entry.group.spec)
        entry.answer = await planning.answer(action, spec, self._infras, self._clock, lost.offered)
        self._rim.news(entry)

    def _assign(self, group: Group, action: Assign) -> None:
        infra = self._infras.get(action.infra)
        if infra is None or not action.host:
            return
        link = self._rim.link(action.infra, action.host)
        key = f"assign {action.lease} {action.serial}"
        if not link.has(action.lease, action.serial):
            holds = lease_of(group, action.lease).placement.accelerator is not None
            cards = (
                infra.gpu_indices(action.lease) if holds and isinstance(infra, HoldsCards) else ()
            )
            book = self._book_fields(group, action.book, infra)
            self._balancing.tell(infra, group, action.book)
            own = isinstance(infra, OwnAddresses) and infra.own_addresses
            apart = isinstance(infra, HostsApart) and infra.hosts_apart
            # Isolated on several hosts is planned only where the nodes need not reach each other.
            mixed = group.spec.network != "isolated" and self._on_several_hosts(group, infra)
            spread = own or (apart and mixed)
            message = compose(
                group,
                action,
                gpu_indices=cards,
                book=book,
                spread=spread,
                shared=self._shares(group),
            )
            link.post(action.lease, action.serial, message)
        elif self._clock.now() - self._done_at.get(key, 0.0) > AGAIN_AFTER:
            link.repeat(action.lease)
        else:
            return
        self._done_at[key] = self._clock.now()

    def _on_several_hosts(self, group: Group, infra: Infra) -> bool:
        """Whether its nodes there are on several hosts; asked once for a decision."""
        if self._several_hosts[0] is not group or self._several_hosts[1] != infra.name:
            several = on_several_hosts(group, infra.name)
            self._several_hosts = (group, infra.name, several)
        return self._several_hosts[2]

    def _shares(self, group: Group) -> bool:
        """Whether a folder on its host is one for the whole group; asked once for a decision."""
        if self._one_host[0] is not group:
            self._one_host = (group, on_one_host(group))
        return self._one_host[1]

    def _book_fields(self, group: Group, book: Book, infra: Infra) -> dict[str, Any]:
        """The book for the agents; one object for all assignments of a decision, which share it."""
        if self._book[0] is not book or self._book[1:3] != (group.id, infra.name):
            fields = book_fields(group.spec, book, addresses(infra, group.id))
            self._book = (book, group.id, infra.name, fields)
        return self._book[3]

"""Tells infras that balance connections themselves which leases are healthy.

Elsewhere a proxy on each host does it (agent/net/proxy), and reads the address book.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, runtime_checkable

from argosy.clock import Clock
from argosy.errors import ArgosyError
from argosy.infra.api import Infra
from argosy.model.group import Book, Group
from argosy.model.ids import GroupId, InfraName, LeaseId, TaskName

log = logging.getLogger("argosy.control.balancing")

RETRY: Final = 2.0  # seconds


@runtime_checkable
class Balances(Protocol):
    """An infra that has an address for all nodes of a task."""

    def balanced_addresses(self, group: GroupId) -> Mapping[TaskName, str]:
        """The addresses that it has for the group's balanced tasks, as far as it knows."""

    async def balance(self, healthy: Mapping[LeaseId, bool]) -> None:
        """Ensure that new connections go to those that are healthy, and to no other of these.

        Raises InfraError, AccessError, Unreachable.
        """


class Balancing:
    """What each infra was told last, by group."""

    def __init__(self, clock: Clock, spawn: Callable[[str, Coroutine[Any, Any, None]], object]):
        self._clock, self._spawn = clock, spawn
        self._wanted: dict[tuple[InfraName, GroupId], dict[LeaseId, bool]] = {}
        self._telling: set[tuple[InfraName, GroupId]] = set()

    def tell(self, infra: Infra, group: Group, book: Book) -> None:
        """Say what the book says of the group's balanced tasks, unless that was said last."""
        if not isinstance(infra, Balances):
            return
        balanced = {task.name for task in group.spec.tasks if task.balance}
        leases = {node.id: node.lease for node in group.nodes if node.lease is not None}
        healthy = {
            leases[peer.node]: peer.live and peer.healthy
            for peer in book.peers
            if peer.node.task in balanced and peer.node in leases
        }
        key = (infra.name, group.id)
        if healthy and self._wanted.get(key) != healthy:
            self._wanted[key] = healthy
            if key not in self._telling:
                self._telling.add(key)
                self._spawn(f"balance {group.id}", self._told(infra, key))

    def forget(self, group: GroupId) -> None:
        """The group is over."""
        for key in [one for one in self._wanted if one[1] == group]:
            del self._wanted[key]

    async def _told(self, infra: Balances, key: tuple[InfraName, GroupId]) -> None:
        """Until the infra has taken the newest."""
        said: dict[LeaseId, bool] | None = None
        try:
            while (wanted := self._wanted.get(key)) is not None and wanted != said:
                try:
                    await infra.balance(wanted)
                    said = wanted
                except (ArgosyError, OSError) as error:
                    log.warning("balance-failed", extra={"group": key[1], "why": str(error)})
                    await self._clock.sleep(RETRY)
        finally:
            self._telling.discard(key)


def addresses(infra: Infra, group: GroupId) -> Mapping[TaskName, str]:
    """The addresses of the group's balanced tasks that are the infra's; {}: proxies have them."""
    return infra.balanced_addresses(group) if isinstance(infra, Balances) else {}

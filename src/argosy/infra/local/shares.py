"""Who has what of the hosts of a local infra: what is free, and taking a part under the lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from argosy.errors import ArgosyError, CapacityError
from argosy.infra.local.cards import CardBook
from argosy.infra.local.hosts import LocalHost
from argosy.infra.local.leases import Held, LeaseFiles
from argosy.model.action import LeaseRequest
from argosy.model.ids import InfraName, LeaseId, group_lease, group_of
from argosy.model.needs import Accelerator, Capacity, fits

RETRY_SECONDS: Final = 5.0  # until a refused lease is worth another try


@dataclass(frozen=True, slots=True)
class Shares:
    """The hosts of one infra, its leases, the machine's reservations. Everything blocks."""

    infra: InfraName
    hosts: tuple[LocalHost, ...]
    files: LeaseFiles
    cards: CardBook

    def free(self, host: LocalHost, others: set[int]) -> Capacity:
        """What is left of a host. `others`: real cards that other servers and users hold."""
        mine = [one for one in self.files.all() if one.host == host.name and not one.gone]
        cards: dict[str, int] = {}
        for held in mine:
            if held.card:
                cards[held.card] = cards.get(held.card, 0) + len(held.indices)
        used = Capacity(
            sum(held.cpus for held in mine),
            sum(held.memory_gib for held in mine),
            tuple(Accelerator(name, count) for name, count in cards.items()),
        )
        free = host.total.minus(used)
        for one in host.cards if host.real else ():
            elsewhere = len(others & set(one.indices))
            free = free.minus(Capacity(0.0, 0.0, (Accelerator(one.name, elsewhere),)))
        return free

    def cards_of_others(self) -> set[int]:
        """Real cards that other servers and users hold; our own are written down on the way."""
        if not any(host.real and host.cards for host in self.hosts):
            return set()
        with self.cards.locked(self._real_cards()) as taken:
            return set(taken)

    def _real_cards(self) -> dict[int, LeaseId]:
        real = {host.name for host in self.hosts if host.real and host.cards}
        mine = [held for held in self.files.all() if held.host in real and not held.gone]
        return {index: held.lease for held in mine for index in held.indices}

    def take(
        self, requests: Sequence[LeaseRequest], broken: Callable[[str], str]
    ) -> list[Held | ArgosyError]:
        """Each lease, made unless it is there, or why it cannot be: CapacityError when it does not
        fit, InfraError when it cannot be written. `broken`: what ails a host, or "".

        Raises InfraError when nobody can lease anything.
        """
        with self.files.locked():
            return [self._taken_or_why(request, broken) for request in requests]

    def _taken_or_why(
        self, request: LeaseRequest, broken: Callable[[str], str]
    ) -> Held | ArgosyError:
        try:
            return self._take(request, broken)
        except ArgosyError as error:
            return error

    def _take(self, request: LeaseRequest, broken: Callable[[str], str]) -> Held:
        held = self.files.find(request.lease)
        if held is not None:
            return held
        host = self._host(request.placement.host, broken)
        if host.real and host.cards and request.placement.accelerator:
            with self.cards.locked(self._real_cards()) as taken:
                held = self._held(request, host, set(taken))
                taken.update(held.indices)
        else:
            held = self._held(request, host, set())
        self._keep(held)
        return held

    def _host(self, name: str | None, broken: Callable[[str], str]) -> LocalHost:
        for host in self.hosts:
            if host.name == name:
                if state := broken(host.name):
                    raise self._refusal(f"host {name} is {state}")
                return host
        raise CapacityError(
            f"{self.infra} has no host {name!r}",
            code="local/no-such-host",
            hint="`argosy infra check` lists its hosts",
        )

    def _keep(self, held: Held) -> None:
        """Write the lease; that of what is group-wide comes first, so it is never missing."""
        zero = group_lease(group_of(held.lease))
        group_wide = self.files.find(zero)
        if group_wide is None or group_wide.released:
            self.files.put(Held(zero, group_name=held.group_name))
        self.files.put(held)

    def _held(self, request: LeaseRequest, host: LocalHost, others: set[int]) -> Held:
        """What the lease takes of the host. Raises CapacityError when it is not free."""
        card = request.placement.accelerator
        need = replace(request.placement.need, accelerators=(card,) if card else ())
        free = self.free(host, others)
        if not fits(need, free, elastic_cpus=host.elastic):
            wanted = f"{need.describe()} wanted for {request.node}, {host.name} has"
            if fits(need, host.total, elastic_cpus=host.elastic):
                raise self._refusal(f"{wanted} {words(free)} free")
            raise CapacityError(
                f"{self.infra}: {wanted} {words(host.total)} in all",
                code="local/too-large",
                hint="ask for less, or make the hosts of the pool larger in config.yaml",
            )
        return Held(
            lease=request.lease,
            host=host.name,
            node=str(request.node),
            group_name=request.group_name,
            cpus=0.0 if host.elastic else need.cpus or 0.0,
            memory_gib=0.0 if host.elastic else need.memory_gib or 0.0,
            card=card.name if card else "",
            indices=self._indices(host, card, others) if card else (),
        )

    def _indices(self, host: LocalHost, card: Accelerator, others: set[int]) -> tuple[int, ...]:
        """The lowest free indices."""
        leases = [one for one in self.files.all() if one.host == host.name and not one.gone]
        held = {index for one in leases for index in one.indices} | others
        free = [index for index in host.indices_of(card.name) if index not in held]
        assert len(free) >= card.count, (host.name, card, held)
        return tuple(free[: card.count])

    def _refusal(self, text: str) -> CapacityError:
        return CapacityError(
            f"{self.infra}: {text}",
            code="local/full",
            hint="`argosy infra check` shows who holds what",
            retry=RETRY_SECONDS,
        )


def words(capacity: Capacity) -> str:
    """`4 cpus, 16 GiB, 0 H100`."""
    cards = [f"{max(one.count, 0)} {one.name}" for one in capacity.accelerators]
    return ", ".join([f"{capacity.cpus:.4g} cpus", f"{capacity.memory_gib:.4g} GiB", *cards])

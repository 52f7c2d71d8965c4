"""What could take what: the choices of a task, and the rooms that offers open.

A choice is one alternative of a task's needs with one accelerator of its list. A room is one host
of a fixed pool with what is free there, or an infra that makes hosts of one kind when asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from argosy.model.ids import InfraName
from argosy.model.needs import Accelerator, Capacity, Need
from argosy.model.plan import Offer, Placement
from argosy.model.spec import TaskSpec

SLACK = 1e-6  # sums of cores and gibibytes are floats


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to satisfy a task; a smaller rank is preferred by the user."""

    need: Need
    accelerator: Accelerator | None
    rank: tuple[int, int]


def choices(task: TaskSpec) -> tuple[Choice, ...]:
    """Every way to satisfy one node of the task, in the order of the file."""
    found = []
    for first, need in enumerate(task.needs):
        for second, accelerator in enumerate(need.accelerators or (None,)):
            rank = (
                first if task.needs_ordered else 0,
                second if need.accelerators_ordered else 0,
            )
            found.append(Choice(need, accelerator, rank))
    return tuple(found)


def named(pattern: str | None, infras: Iterable[InfraName]) -> frozenset[InfraName]:
    """The infras that a user's words mean: that very name, a `*` pattern, or all below a prefix.

    `local` is this machine alone where there is one of that name, and `ssh` is every `ssh/POOL`.
    """
    known = frozenset(infras)
    if pattern is None:
        return known
    if pattern in known:
        return frozenset((pattern,))
    matching = (name for name in known if fnmatchcase(name.lower(), pattern.lower()))
    below = (name for name in known if name.lower().startswith(pattern.lower() + "/"))
    return frozenset(matching) | frozenset(below)


class Room:
    """Capacity that is being filled; the only mutable thing of the planner."""

    __slots__ = (
        "cards", "cpus", "disk", "elastic", "hosts", "index", "memory", "offer", "price", "total",
    )  # fmt: skip

    def __init__(self, offer: Offer, index: int, *, empty: bool) -> None:
        free = offer.total if empty else offer.free
        self.offer = offer
        self.index = index
        self.price = offer.price_per_hour_usd
        self.elastic = offer.elastic_cpus
        self.total = offer.total
        # A host of a fixed pool that is away (count 0) would be there in the empty infra.
        self.hosts = max(offer.count, 1) if empty and offer.host is not None else offer.count
        self.cpus = free.cpus
        self.memory = free.memory_gib
        self.disk = free.disk_gib  # None: nobody counts it
        self.cards = {one.name.lower(): one.count for one in free.accelerators}

    @property
    def fixed(self) -> bool:
        """A host that several nodes may share; else each node gets a host of its own."""
        return self.offer.host is not None

    def state(self) -> tuple[object, ...]:
        """Rooms of equal state are interchangeable."""
        cards = tuple(sorted(self.cards.items()))
        what = (self.cpus, self.memory, self.disk, cards, self.elastic)
        return (self.offer.infra, self.fixed, self.hosts, self.price, self.offer.ready_after, *what)

    def card(self, wanted: Accelerator) -> Accelerator | None:
        """The cards that `wanted` would take here, by the host's own name; None: not enough."""
        for mine in self.total.accelerators:
            name = mine.name.lower()
            meant = (
                name == wanted.name.lower() if wanted.name else mine.memory_gib >= wanted.memory_gib
            )
            if meant and self.cards.get(name, 0) >= wanted.count:
                return Accelerator(mine.name, wanted.count, mine.memory_gib)
        return None

    def takes(self, choice: Choice) -> bool:
        """Whether one more node fits."""
        if self.hosts < 1:
            return False
        if choice.accelerator is not None and self.card(choice.accelerator) is None:
            return False
        if self.elastic:
            return True
        need = choice.need
        enough_cpus = (need.cpus or 0.0) <= self.cpus + SLACK
        enough_memory = (need.memory_gib or 0.0) <= self.memory + SLACK
        return enough_cpus and enough_memory and self.has_disk(need)

    def has_disk(self, need: Need) -> bool:
        """Whether there is disk for one more node, or nobody counts it."""
        return not need.disk_gib or self.disk is None or need.disk_gib <= self.disk + SLACK

    def share_price(self, choice: Choice) -> float:
        """Dollars per hour for one node: of a shared host, the largest part that it takes of it."""
        if not self.price or not self.fixed:
            return self.price
        need, total = choice.need, self.total
        parts = [0.0]
        if total.cpus:
            parts.append((need.cpus or 0.0) / total.cpus)
        if total.memory_gib:
            parts.append((need.memory_gib or 0.0) / total.memory_gib)
        card = self.card(choice.accelerator) if choice.accelerator else None
        if card is not None:
            parts.append(card.count / max(total.count_of(card.name), 1))
        return self.price * min(max(parts), 1.0)

    def take(self, choice: Choice, sign: int = 1) -> Accelerator | None:
        """Take one node's worth (`sign` -1: `give` it back with the cards that it took)."""
        card = self.card(choice.accelerator) if choice.accelerator else None
        self.move(choice.need, card, sign)
        return card

    def move(self, need: Need, card: Accelerator | None, sign: int) -> None:
        """Subtract (1) or add (-1) what a node of `need` uses here."""
        if not self.fixed:
            self.hosts -= sign
            return
        self.cpus -= sign * (need.cpus or 0.0)
        self.memory -= sign * (need.memory_gib or 0.0)
        if self.disk is not None:
            self.disk -= sign * (need.disk_gib or 0.0)
        if card is not None:
            self.cards[card.name.lower()] = self.cards.get(card.name.lower(), 0) - sign * card.count


def rooms(
    offers: Sequence[Offer], kept: Sequence[Placement] = (), *, empty: bool = False
) -> list[Room]:
    """The rooms of the offers, each host once. `empty`: as if nobody held anything but `kept`."""
    found: list[Room] = []
    seen: set[object] = set()
    for offer in offers:
        key: object = (offer.infra, offer.host) if offer.host is not None else offer
        if key not in seen:
            seen.add(key)
            found.append(Room(offer, len(found), empty=empty))
    if empty:
        by_host = {(room.offer.infra, room.offer.host): room for room in found if room.fixed}
        for placement in kept:
            room = by_host.get((placement.infra, placement.host))
            if room is not None:
                room.move(placement.need, placement.accelerator, 1)
    return found


def cards_of(capacity: Capacity) -> int:
    """How many cards of any name."""
    return sum(one.count for one in capacity.accelerators)

"""Which room is better: packing a gang into rooms, the best way that a bounded search finds.

First greedily, hardest node first, each into the room with the best score. When that fails and the
sums would fit, a search goes back and tries other rooms, for a bounded number of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from argosy.model.ids import InfraName, NodeId
from argosy.model.needs import Accelerator
from argosy.model.plan import Placement
from argosy.model.volumes import VolumeUse
from argosy.plan.candidates import Choice, Room, cards_of, named
from argosy.plan.volumes import allowed, pinned

SEARCH_NODES_MAX = 64  # larger gangs are packed greedily only
STEPS_FREE = 400  # steps of the search for what is free now: it is repeated often
STEPS_EMPTY = 20_000  # for the empty infra: a wrong answer would give up a group

Score = tuple[tuple[int, int], float, float, int, float, float, int]


@dataclass(frozen=True, slots=True)
class Item:
    """A node to place, and the ways to satisfy it."""

    node: NodeId
    choices: tuple[Choice, ...]
    volumes: tuple[VolumeUse, ...] = ()

    def hardness(self) -> tuple[int, float, float]:
        """The larger, the earlier it is placed: by its easiest choice."""
        cards = min(one.accelerator.count if one.accelerator else 0 for one in self.choices)
        cpus = min(one.need.cpus or 0.0 for one in self.choices)
        return cards, cpus, min(one.need.memory_gib or 0.0 for one in self.choices)


@dataclass(frozen=True, slots=True)
class Packing:
    """Every node in a room, and how good that is (smaller is better)."""

    placements: tuple[Placement, ...]
    cost: tuple[tuple[int, int], float, float]


class Packer:
    """Fills rooms with items; used once."""

    def __init__(self, items: Sequence[Item], rooms: Sequence[Room], steps: int) -> None:
        self._items = sorted(
            items,
            key=lambda item: (not pinned(item.volumes), *(-part for part in item.hardness())),
        )  # stable: equal ones stay in the order of the file
        self._pinned = frozenset(host for item in items for host in pinned(item.volumes))
        self._rooms = list(rooms)
        self._steps = steps
        self._names = {room.offer.infra for room in rooms}
        self._meant: dict[str | None, frozenset[InfraName]] = {}

    def pack(self, infras: Sequence[InfraName]) -> Packing | None:
        """All items, or None. `infras`: every known one, for what the user's words mean."""
        for item in self._items:
            for choice in item.choices:
                if choice.need.infra not in self._meant:
                    self._meant[choice.need.infra] = named(choice.need.infra, infras)
        taken = self._greedy()
        if taken is None and len(self._items) <= SEARCH_NODES_MAX and self._sums_fit():
            taken = self._search(0)
        return self._packing(taken) if taken is not None else None

    def _scored(self, item: Item) -> Iterator[tuple[Score, Choice, Room]]:
        """Everywhere the item could go now."""
        for choice in item.choices:
            meant = self._meant[choice.need.infra]
            limit = choice.need.max_price_per_hour_usd
            for room in self._rooms:
                if room.offer.infra not in meant or not room.takes(choice):
                    continue
                if item.volumes and not allowed(item.volumes, room.offer):
                    continue
                price = room.share_price(choice)
                if limit is None or price <= limit:
                    yield self._score(choice, room, price), choice, room

    def _ways(self, item: Item) -> list[tuple[Score, Choice, Room]]:
        """Where the item could go now, one of each kind of room, the best first."""
        best: dict[object, tuple[Score, Choice, Room]] = {}
        for way in self._scored(item):
            host = way[2].offer.host  # one that others must have is like no other
            key = (id(way[1]), way[2].state(), host if host in self._pinned else None)
            if key not in best or way[0] < best[key][0]:
                best[key] = way
        return sorted(best.values(), key=_score_of)

    @staticmethod
    def _score(choice: Choice, room: Room, price: float) -> Score:
        """Wanted first, then cheap, then soon; then the tightest room: large ones stay whole."""
        cards = sum(room.cards.values())
        return (
            choice.rank,
            price,
            room.offer.ready_after,
            cards,
            room.cpus,
            room.memory,
            room.index,
        )

    def _greedy(self) -> list[Taken] | None:
        taken: list[Taken] = []
        for item in self._items:
            way = min(self._scored(item), key=_score_of, default=None)
            if way is None:
                self._give_back(taken)
                return None
            taken.append(_take(item, way[1], way[2]))
        return taken

    def _search(self, depth: int) -> list[Taken] | None:
        if depth == len(self._items):
            return []
        item = self._items[depth]
        for _, choice, room in self._ways(item):
            if self._steps <= 0:
                return None
            self._steps -= 1
            one = _take(item, choice, room)
            rest = self._search(depth + 1)
            if rest is not None:
                return [one, *rest]
            self._give_back([one])
        return None

    def _sums_fit(self) -> bool:
        """A quick no: more cards or cores are wanted in sum than all rooms have."""
        cards = sum(item.hardness()[0] for item in self._items)
        if cards > sum(_all_cards(room) for room in self._rooms):
            return False
        if any(room.elastic or not room.fixed for room in self._rooms):
            return True
        cpus = sum(item.hardness()[1] for item in self._items)
        return cpus <= sum(room.cpus for room in self._rooms) + 1e-3

    @staticmethod
    def _give_back(taken: Sequence[Taken]) -> None:
        for one in reversed(taken):
            one.room.move(one.choice.need, one.card, -1)

    @staticmethod
    def _packing(taken: Sequence[Taken]) -> Packing:
        rank = (sum(one.choice.rank[0] for one in taken), sum(one.choice.rank[1] for one in taken))
        price = sum(one.price for one in taken)
        ready = max((one.room.offer.ready_after for one in taken), default=0.0)
        placed = tuple(
            Placement(
                node=one.item.node,
                infra=one.room.offer.infra,
                host=one.room.offer.host,
                need=one.choice.need,
                accelerator=one.card,
                price_per_hour_usd=one.price,
            )
            for one in taken
        )
        return Packing(placed, (rank, price, ready))


@dataclass(frozen=True, slots=True)
class Taken:
    """One node in its room."""

    item: Item
    choice: Choice
    room: Room
    card: Accelerator | None
    price: float


def _score_of(way: tuple[Score, Choice, Room]) -> Score:
    return way[0]


def _take(item: Item, choice: Choice, room: Room) -> Taken:
    price = room.share_price(choice)
    return Taken(item, choice, room, room.take(choice), price)


def _all_cards(room: Room) -> int:
    return sum(room.cards.values()) if room.fixed else cards_of(room.total) * max(room.hosts, 0)


def cheapest(packings: Mapping[InfraName, Packing]) -> Packing | None:
    """The best of several; of equal ones the first."""
    return min(packings.values(), key=lambda one: one.cost) if packings else None

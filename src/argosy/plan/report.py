"""The plan in sentences: what was chosen, and what is short of what."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import assert_never

from argosy.model.ids import InfraName, NodeId
from argosy.model.needs import Accelerator, Need
from argosy.model.plan import Offer, Placement
from argosy.model.spec import GroupSpec, TaskSpec
from argosy.plan.candidates import Choice, Room, choices, named, rooms

NO_ACCELERATORS = "`--no-accelerators` runs it without"


def chosen(spec: GroupSpec, placements: Sequence[Placement]) -> tuple[str, ...]:
    """One line a node, and the price of it all."""
    lines = []
    for placement in placements:
        where = placement.infra if placement.host is None else f"{placement.infra} {placement.host}"
        what = str(placement.accelerator) if placement.accelerator else placement.need.describe()
        price = placement.price_per_hour_usd
        lines.append(f"{placement.node}: {where}, {what}" + (f", ${price:.2f}/h" if price else ""))
    total = sum(placement.price_per_hour_usd for placement in placements)
    if total:
        lines.append(f"in all: ${total:.2f} per hour")
    return tuple(lines)


def shortages(
    spec: GroupSpec,
    wanted: Sequence[NodeId],
    kept: Sequence[Placement],
    offers: Sequence[Offer],
    *,
    never: bool,
) -> tuple[str, ...]:
    """For each task that does not fit, what it wants and what there is; for people.

    Tasks are tried one after another, as the gang would be: what fitted takes its room first.
    """
    lines = []
    infras = tuple(dict.fromkeys(offer.infra for offer in offers))
    space = rooms(offers, kept, empty=never)
    for task in spec.tasks:
        count = sum(1 for node in wanted if node.task == task.name)
        taken = _fill(task, count, space, infras)
        if len(taken) < count:
            lines.append(_short(task, count, space, taken, never=never))
    if not lines:
        lines.append(_together(spec, wanted, space, never=never))
    return tuple(lines)


Taking = tuple[Choice, Room, Accelerator | None]


def _fill(
    task: TaskSpec, count: int, space: list[Room], infras: tuple[InfraName, ...]
) -> list[Taking]:
    """The nodes of the task that fit beside those before it; they take their room."""
    ways = [
        (choice, room)
        for choice in choices(task)
        for room in space
        if room.offer.infra in named(choice.need.infra, infras)
    ]
    taken: list[Taking] = []
    while len(taken) < count:
        way = next(((choice, room) for choice, room in ways if _takes(choice, room)), None)
        if way is None:
            break
        taken.append((*way, way[1].take(way[0])))
    return taken


def _takes(choice: Choice, room: Room) -> bool:
    limit = choice.need.max_price_per_hour_usd
    return room.takes(choice) and (limit is None or room.share_price(choice) <= limit)


def _short(
    task: TaskSpec, count: int, space: list[Room], taken: list[Taking], *, never: bool
) -> str:
    """One task's line. What is missing shows when it is full; the figures are those before."""
    infras = tuple(dict.fromkeys(room.offer.infra for room in space))
    wanted = " or ".join(dict.fromkeys(_words(need) for need in task.needs))
    head = f'task "{task.name}": {count} x {wanted} wanted'
    meant = frozenset(infra for need in task.needs for infra in named(need.infra, infras))
    places = {
        infra: [room for room in space if room.offer.infra == infra]
        for infra in infras
        if infra in meant
    }
    missing = {infra: _missing(task, mine) for infra, mine in places.items()}
    for choice, room, card in taken:
        room.move(choice.need, card, -1)
    if not places:
        asked = ", ".join(sorted({need.infra or "any" for need in task.needs}))
        there = ", ".join(infras) or "none"
        return (
            f"{head}, no infra here is `{asked}` (there is: {there}): `--infra local` runs it here"
        )
    lines = [_figures(task, infra, mine, missing[infra], never) for infra, mine in places.items()]
    return f"{head}, {'; '.join(dict.fromkeys(lines))}"


def _words(need: Need) -> str:
    """The need as a fixed pool counts it."""
    if need.accelerators:
        text = " or ".join(str(one) for one in need.accelerators)
        return f"({text})" if len(need.accelerators) > 1 else text
    return need.describe()


class Missing(Enum):
    """The first thing that the rooms of an infra lack for one more node."""

    CARDS = auto()
    CPUS = auto()
    MEMORY = auto()
    DISK = auto()
    PRICE = auto()
    HOSTS = auto()


def _missing(task: TaskSpec, mine: list[Room]) -> Missing:
    """What one more node would lack, asked in the order of what is usually scarce."""
    ways = choices(task)
    there = [room for room in mine if room.hosts > 0]
    if not there:
        return Missing.HOSTS
    cards = [
        (choice, room)
        for choice in ways
        for room in there
        if choice.accelerator is None or room.card(choice.accelerator) is not None
    ]
    if not cards:
        return Missing.CARDS
    if any(room.takes(choice) for choice, room in cards):
        return Missing.PRICE
    if all((choice.need.cpus or 0.0) > room.cpus for choice, room in cards):
        return Missing.CPUS
    if all(room.has_disk(choice.need) for choice, room in cards):
        return Missing.MEMORY
    enough = ((choice.need.memory_gib or 0.0) <= room.memory for choice, room in cards)
    return Missing.DISK if any(enough) else Missing.MEMORY


def _figures(
    task: TaskSpec, infra: InfraName, mine: list[Room], missing: Missing, never: bool
) -> str:
    """What one infra has of what is missing there."""
    match missing:
        case Missing.CARDS:
            return _cards(task, infra, mine, never)
        case Missing.CPUS:
            amounts = [(room.cpus, room.total.cpus) for room in mine]
            return _amount(infra, amounts, "cpus", never)
        case Missing.MEMORY:
            amounts = [(room.memory, room.total.memory_gib) for room in mine]
            return _amount(infra, amounts, "GiB", never)
        case Missing.DISK:
            amounts = [(room.disk or 0.0, room.total.disk_gib or 0.0) for room in mine]
            wanted = min(need.disk_gib or 0.0 for need in task.needs)
            return f"{_amount(infra, amounts, 'GiB of disk', never)}, of {wanted:g} wanted"
        case Missing.PRICE:
            limit = max(need.max_price_per_hour_usd or 0.0 for need in task.needs)
            return f"{infra} costs more than ${limit:g} per hour: raise `max_hourly_cost`"
        case Missing.HOSTS:
            return f"{infra} has no host now"
        case _:
            assert_never(missing)


def _cards(task: TaskSpec, infra: InfraName, mine: list[Room], never: bool) -> str:
    wanted = [one for need in task.needs for one in need.accelerators]
    totals = [_of(room, wanted) for room in mine]
    if not sum(totals):
        has = sorted({one.name for room in mine for one in room.total.accelerators})
        what = f"has {', '.join(has)} only" if has else "has no accelerators"
        return f"{infra} {what}: {NO_ACCELERATORS}"
    return _amount(
        infra, list(zip([_free_cards(room, wanted) for room in mine], totals)), "cards", never
    )


def _amount(
    infra: InfraName, amounts: Sequence[tuple[float, float]], unit: str, never: bool
) -> str:
    """`8 of 16 cards free on local/rack`. `amounts`: of each host, what is free and what it has."""
    total = sum(whole for _, whole in amounts)
    which = [whole if never else max(left, 0.0) for left, whole in amounts]
    most = f", {max(which):.4g} on one host at most" if len(amounts) > 1 else ""
    if never:
        return f"{infra} has {total:.4g} {unit} in all{most}"
    return f"{sum(which):.4g} of {total:.4g} {unit} free on {infra}{most}"


def _of(room: Room, wanted: list[Accelerator]) -> int:
    """How many cards of the wanted names the room has when empty."""
    return sum(mine.count for mine in room.total.accelerators if _meant(mine, wanted))


def _free_cards(room: Room, wanted: list[Accelerator]) -> int:
    if room.hosts < 1:
        return 0
    cards = (one for one in room.total.accelerators if _meant(one, wanted))
    return sum(room.cards.get(one.name.lower(), 0) for one in cards)


def _meant(mine: Accelerator, wanted: list[Accelerator]) -> bool:
    return any(
        mine.name.lower() == one.name.lower() if one.name else mine.memory_gib >= one.memory_gib
        for one in wanted
    )


def _together(spec: GroupSpec, wanted: Sequence[NodeId], space: list[Room], *, never: bool) -> str:
    """Each task fits somewhere, and all at once do not: on one infra, or at all."""
    count = len(wanted)
    infras = sorted({room.offer.infra for room in space})
    when = "even when empty" if never else "now"
    if len(infras) > 1 and spec.inter_connection is not False:
        return (
            f"all {count} nodes want one infra, and none of {', '.join(infras)} takes them {when}"
        )
    return f"{count} nodes do not fit {', '.join(infras) or 'no infra'} together {when}"

"""What one decision looks at, joined from looks at infras and the words of agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from argosy.control.entry import Entry, Word
from argosy.control.links import AgentLink
from argosy.model.group import Attempt, Group, LeaseState, Outcome, Stage
from argosy.model.ids import AttemptId, GroupId, InfraName, LeaseId, Serial, group_lease, group_of
from argosy.model.observed import Look, Observed, Queue, SeenAttempt, SeenLease
from argosy.model.secrets import masked, secret_values


@dataclass(frozen=True, slots=True)
class Sight:
    """The newest look at one infra, and its leases by their group."""

    look: Look
    by_group: Mapping[GroupId, tuple[SeenLease, ...]]


def observed(
    entry: Entry,
    sights: Mapping[InfraName, Sight],
    queue: Queue,
    *,
    life: int,
    looking_since: float,
) -> Observed:
    """Everything that is seen of one group."""
    group = entry.group
    mine = {}
    for infra, sight in sights.items():
        look, leases = sight.look, sight.by_group.get(group.id, ())
        if leases or infra in group.infras:
            blind = frozenset(one for one in look.blind if group_of(one) == group.id)
            mine[infra] = Look(infra, look.began_at, leases, blind, look.blind_all)
    return Observed(
        life=life,
        looking_since=looking_since,
        looks=mine,
        reports={lease: word.report(lease) for lease, word in entry.words.items()},
        refusals=entry.refusals,
        answer=entry.answer,
        queue=queue,
    )


def sight(look: Look) -> Sight:
    """The look with its leases by group, in one pass."""
    found: dict[GroupId, list[SeenLease]] = {}
    for one in look.leases:
        found.setdefault(group_of(one.lease), []).append(one)
    return Sight(look, {group: tuple(leases) for group, leases in found.items()})


def waits_for_absence(group: Group, sight: Sight) -> bool:
    """Whether a look that shows the same as before is still news to the group.

    It is when something is to be gone; also when something that was seen is absent, since the look
    that missed it first may have begun before it was seen.
    """
    infra = sight.look.infra
    if sight.look.blind_all:
        return False
    if group.phase.final:
        return infra in group.infras
    seen = {one.lease for one in sight.by_group.get(group.id, ())}
    return any(
        one.state is LeaseState.RELEASING or (one.held_at > 0 and one.id not in seen)
        for one in group.leases
        if one.placement.infra == infra
    )


def left_behind(
    old: tuple[SeenLease, ...], new: tuple[SeenLease, ...], group: Group | None
) -> bool:
    """Whether something is gone that no record counts any more, so that no decision tells of it:
    of a group that is forgotten or over, or a lease that had been given up.
    """
    if group is None or group.phase.final:
        known: set[LeaseId] = set()
    else:
        known = {one.id for one in group.leases} | {group_lease(group.id)}
    there = {one.lease for one in new}
    return any(one.lease not in there and one.lease not in known for one in old)


def reported(entry: Entry, fact: Mapping[str, Any]) -> tuple[Serial, tuple[SeenAttempt, ...]]:
    """One lease of a report: the serial that the agent has taken, and its attempts."""
    life, count = fact.get("serial") or (0, 0)
    attempts = tuple(
        _attempt(entry, one)
        for one in fact.get("attempts", ())
        if one["node"] in entry.node_by_name
    )
    return Serial(int(life), int(count)), attempts


def _attempt(entry: Entry, fact: Mapping[str, Any]) -> SeenAttempt:
    outcome = fact.get("outcome")
    return SeenAttempt(
        id=AttemptId(fact["attempt"]),
        node=entry.node_by_name[fact["node"]],
        number=int(fact["number"]),
        incarnation=int(fact["incarnation"]),
        stage=Stage(int(fact["stage"])),
        outcome=Outcome(outcome) if outcome else None,
        exit_code=fact.get("exit_code"),
        signal=fact.get("signal"),
        cause=str(fact.get("cause") or ""),
        text=told(entry.group, str(fact.get("text") or "")),
        address=str(fact.get("address") or ""),
        healthy=bool(fact.get("healthy")),
        at=float(fact.get("at") or 0.0),
    )


def told(group: Group, text: str) -> str:
    """What an agent says of a group, without secret values: a path of the file may hold one."""
    return masked(text, secret_values(group.spec)) if text else ""


def forget_unknown(entry: Entry, link: AgentLink, leases: Mapping[str, Any]) -> bool:
    """Take in what a full report does not show; whether anything changed.

    An agent that was seen with an attempt, and in a full report knows nothing of its lease, has
    lost it: that stands as a report that acknowledges the assignment and lists nothing.
    """
    changed = False
    for lease in entry.group.leases:
        here = (lease.placement.infra, lease.host) == (link.ref.infra, link.ref.host)
        if not here or lease.id in leases or lease.state is not LeaseState.HELD:
            continue
        orders = {order.attempt for order in lease.orders}
        seen = any(one.seen and one.live and one.id in orders for one in entry.group.attempts)
        if seen:
            entry.words[lease.id] = Word(link, lease.serial, ())
            link.drop(lease.id)  # what it was told before is not said again
        elif entry.words.pop(lease.id, None) is None:
            continue
        changed = True
    return changed


def attempt_of(group: Group, attempt: str) -> Attempt | None:
    """The attempt of that id; None when the record has none."""
    return next((one for one in group.attempts if one.id == attempt), None)

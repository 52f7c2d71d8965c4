"""What every agent is told: the orders of its lease, and the address book once something starts.

An assignment gets a new serial when what it says changed; it is sent again until the agent has
taken that serial. The book travels only to leases on which something may run, so that a hundred
nodes that become ready one by one do not cause ten thousand messages.
"""

from __future__ import annotations

from argosy.decide.draft import Draft
from argosy.model.action import Action, Assign, make_assign
from argosy.model.group import (
    ENDED,
    HELD,
    RUNNING,
    Attempt,
    Book,
    Lease,
    Order,
    Peer,
    make_order,
    make_peer,
)
from argosy.model.ids import LeaseId


def assign(draft: Draft) -> tuple[Action, ...]:
    """Bring assignments up to date, and repeat those that were not taken yet."""
    if draft.moved:
        _write_book(draft)
    stale = _stale(draft)
    live_by_lease = draft.live_by_lease() if stale else {}
    grace = 0.0 if draft.get("grace_zero") else None
    book: Book = draft.get("book")
    actions: list[Action] = []
    reports = draft.observed.reports
    for lease in list(draft.leases.values()):
        if lease.state is HELD and not lease.lost:
            current = lease
            if lease.id in stale:
                live = live_by_lease.get(lease.id, [])
                orders = tuple([_order(attempt, grace) for attempt in live])
                current = _current(draft, lease, orders, book)
            # Also an empty assignment: that an agent answers is how it is found there.
            report = reports.get(lease.id)
            if report is None or report.serial < current.serial:
                actions.append(_assign(current, book))
    if actions:
        draft.wake(draft.now + draft.limits.ask_again)
    return tuple(actions)


def _stale(draft: Draft) -> set[LeaseId]:
    """The leases whose assignment may say something old: all, when the address book is new."""
    everyone = "book" in draft.changes or "grace_zero" in draft.changes
    return set(draft.leases) if everyone else draft.moved


def _current(draft: Draft, lease: Lease, orders: tuple[Order, ...], book: Book) -> Lease:
    runs = RUNNING in [order.goal for order in orders]
    version = book.version if runs else 0
    if orders == lease.orders and (version == lease.book or not runs):
        return lease
    return draft.set_lease(lease.id, orders=orders, book=version, serial=draft.issue())


def _order(attempt: Attempt, grace: float | None) -> Order:
    return make_order(
        attempt=attempt.id,
        node=attempt.node,
        number=attempt.number,
        incarnation=attempt.incarnation,
        goal=attempt.goal,
        restart_reason=attempt.restart_reason,
        grace=grace,
    )


def _assign(lease: Lease, book: Book) -> Assign:
    infra = lease.placement.infra
    return make_assign(infra, lease.id, lease.host, lease.serial, lease.orders, book)


def _write_book(draft: Draft) -> None:
    book: Book = draft.get("book")
    peers = tuple(_peer(draft, attempt) for attempt in _book_attempts(draft))
    if peers != book.peers:
        draft.set(book=Book(book.version + 1, peers))


def _book_attempts(draft: Draft) -> list[Attempt]:
    newest = (draft.newest(node) for node in draft.nodes.values())
    return [one for one in newest if one is not None and one.address]


def _peer(draft: Draft, attempt: Attempt) -> Peer:
    """Health is only in the book where something acts on it: in tasks that are balanced."""
    balanced = bool(draft.tasks[attempt.node.task].balance)
    return make_peer(
        node=attempt.node,
        attempt=attempt.number,
        address=attempt.address,
        live=attempt.live and attempt.goal is not ENDED,
        healthy=attempt.healthy and balanced,
    )

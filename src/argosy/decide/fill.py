"""An attempt for every node that wants one and has capacity for it."""

from __future__ import annotations

from argosy.decide.draft import Draft
from argosy.model.group import HELD, Attempt, Lease, Node, make_attempt
from argosy.model.ids import attempt_id

ATTEMPTS_KEPT = 20  # ended ones per node that stay in the record; events tell of all


def fill(draft: Draft) -> None:
    """Make the attempts that are missing."""
    if draft.ending:
        return
    for task in draft.gang:
        for node in draft.nodes_of(task):
            if node.settled is None:
                lease = _vacancy(draft, node)
                if lease is not None:
                    _attempt(draft, node, lease)


def _vacancy(draft: Draft, node: Node) -> Lease | None:
    """The capacity of a node, when it is there, nothing lives on it, and the back-off is over."""
    lease = draft.leases.get(node.lease) if node.lease is not None else None
    if lease is None or lease.state is not HELD or lease.lost:
        return None
    if lease.asked_at < draft.observed.looking_since and draft.report(lease.id) is None:
        # This record may be older than what runs there: a restored backup.
        draft.wait("agent", node.id, f"the agent on {lease.host} was not heard yet")
        return None
    attempt = draft.newest(node)
    if attempt is not None and not _gives_way(draft, attempt, lease):
        return None
    if draft.now < node.not_before:
        draft.wake(node.not_before)
        text = f"starts again in {node.not_before - draft.now:.0f} s"
        draft.wait("back-off", node.id, text, since=attempt.ended_at if attempt else 0.0)
        return None
    return lease


def _gives_way(draft: Draft, attempt: Attempt, lease: Lease) -> bool:
    """It has ended and that was dealt with; or it lives on a host that goes away, not here."""
    if attempt.live:
        old = draft.leases.get(attempt.lease)
        return old is not None and old.leaving and old.id != lease.id
    return attempt.judged


def _attempt(draft: Draft, node: Node, lease: Lease) -> None:
    first = draft.get("gang_barrier")
    if not first:
        first = draft.issue_barrier()
        draft.set(gang_barrier=first)
    barrier = node.barrier or first
    attempt = make_attempt(
        id=attempt_id(draft.group.id, draft.issue()),
        node=node.id,
        number=node.number + 1,
        incarnation=draft.get("incarnation"),
        lease=lease.id,
        barrier=barrier,
        created_at=draft.now,
        infra=lease.placement.infra,
        host=lease.host,
        restart_reason=node.restart_reason,
    )
    if node.number >= ATTEMPTS_KEPT:
        _forget_oldest(draft, node)
    draft.add_attempt(attempt)
    draft.set_node(
        node.id,
        number=attempt.number,
        attempt=attempt.id,
        barrier=barrier,
        replace=False,
        restart_reason="",
    )
    draft.tell("attempt-created", node.id, f"on {lease.host}", attempt=attempt.number)


def _forget_oldest(draft: Draft, node: Node) -> None:
    ended = [one for one in draft.attempts.values() if one.node == node.id and not one.live]
    for one in ended[: max(0, len(ended) - ATTEMPTS_KEPT)]:
        del draft.attempts[one.id]

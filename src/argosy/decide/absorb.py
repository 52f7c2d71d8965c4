"""What was seen moves stages forward, and evidence makes hosts lost.

Silence is no evidence. Absence is, of what was seen before: a lease, in a later look that was not
blind there; an attempt, in a report that acknowledges the assignment that lists it. What was
never seen is asked for again under the same id. An attempt that has ended never changes.
"""

from __future__ import annotations

from typing import Any

from argosy.decide.draft import Draft, ending
from argosy.model.group import (
    ASKED,
    ENDED,
    GONE,
    HELD,
    READY,
    RELEASING,
    RUNNING,
    STOPPING,
    Attempt,
    Lease,
    Outcome,
    Stage,
)
from argosy.model.ids import LeaseId
from argosy.model.observed import Report, SeenAttempt, SeenLease, SeenState

ENDS_OF_PROGRAMS = ("exit", "signal", "oom", "")  # causes that only a program that ran can have
CODE_BY_STAGE = {stage: f"attempt-{stage.name.lower()}" for stage in Stage}  # of its event


def sightings(draft: Draft) -> None:
    """Take in the newest looks and reports."""
    for lease in list(draft.leases.values()):
        seen = draft.seen.get(lease.id)
        if seen is None:
            _unseen(draft, lease)
        else:
            _seen(draft, lease, seen)
    now, patience = draft.now, draft.limits.suspect_after
    for report in draft.observed.reports.values():
        reported = draft.leases.get(report.lease)
        if reported is not None and not reported.lost:
            _report(draft, reported, report)
            if now - report.heard_at > patience:
                text = f"{reported.host} is silent: a doubt, nothing is done about it"
                draft.wait("agent-suspect", reported.node, text, since=report.heard_at)


def _seen(draft: Draft, lease: Lease, seen: SeenLease) -> None:
    if seen.state is SeenState.GONE:
        if lease.state < RELEASING and not lease.lost:
            _lose(draft, lease, seen.text or "the infra says that it is gone")
    elif lease.state is ASKED and seen.state is SeenState.UP:
        held_at = lease.held_at or draft.now
        draft.set_lease(lease.id, state=HELD, held_at=held_at, host=seen.host)
        draft.tell("lease-held", lease.node, f"capacity on {seen.host or lease.placement.infra}")
    elif not lease.held_at:
        draft.set_lease(lease.id, held_at=draft.now, host=seen.host)
    if seen.leaving and not lease.leaving and seen.state is SeenState.UP:
        _leave(draft, draft.leases[lease.id], seen.leaving)


def _leave(draft: Draft, lease: Lease, text: str) -> None:
    """The infra is about to take it back."""
    if lease.state is HELD and not lease.lost:
        draft.set_lease(lease.id, leaving=True)
        draft.tell("host-leaving", lease.node, f"{lease.host or lease.placement.infra}: {text}")


def _unseen(draft: Draft, lease: Lease) -> None:
    look = draft.look(lease)
    if look is None:
        return
    if lease.state is RELEASING:
        if look.began_at > lease.released_at:
            draft.set_lease(lease.id, state=GONE)
            _end_what_was_on(draft, lease.id, "released", "its capacity was released")
    elif lease.held_at and look.began_at > lease.held_at and not lease.lost:
        _lose(draft, lease, "the infra no longer shows it")


def _lose(draft: Draft, lease: Lease, text: str) -> None:
    draft.set_lease(lease.id, lost=True)
    draft.tell("host-lost", lease.node, f"{lease.host or lease.placement.infra}: {text}")
    _end_what_was_on(draft, lease.id, "host-lost", text)


def _end_what_was_on(draft: Draft, lease: LeaseId, cause: str, text: str) -> None:
    for attempt in draft.live_on(lease):
        outcome = Outcome.LOST
        if cause == "released" and attempt.stage < RUNNING:
            outcome = Outcome.STOPPED  # goals stop at READY until a start is decided: it never ran
        _end(draft, attempt, outcome, {"cause": cause, "text": text})


def _end(draft: Draft, attempt: Attempt, outcome: Outcome, facts: dict[str, Any]) -> None:
    facts |= {"stage": ENDED, "outcome": outcome, "ended_at": draft.now, "healthy": False}
    ended = draft.set_attempt(attempt.id, **facts)
    draft.tell("attempt-ended", attempt.node, ending(ended), attempt=attempt.number)


def _report(draft: Draft, lease: Lease, report: Report) -> None:
    shown = []
    for seen in report.attempts:
        shown.append(seen.id)
        attempt = draft.attempts.get(seen.id)
        if attempt is None:
            _adopt(draft, lease, seen)
        elif attempt.live:
            _merge(draft, attempt, seen)
    if report.serial < lease.serial:
        return  # it may not know yet what it should show
    for order in lease.orders:
        attempt = None if order.attempt in shown else draft.attempts.get(order.attempt)
        if attempt is not None and attempt.live and attempt.seen:
            facts = {"cause": "forgotten", "text": "the agent no longer knows it"}
            _end(draft, attempt, Outcome.LOST, facts)


def _merge(draft: Draft, attempt: Attempt, seen: SeenAttempt) -> None:
    if (
        seen.stage == attempt.stage
        and seen.healthy == attempt.healthy
        and seen.address == attempt.address
        and attempt.seen
    ):
        return
    stage = seen.stage
    facts: dict[str, Any] = {"seen": True}
    if seen.address:
        facts["address"] = seen.address
    runs = stage is RUNNING or stage is STOPPING
    ran = runs or (stage is ENDED and seen.cause in ENDS_OF_PROGRAMS)
    if ran and not attempt.started_at:
        facts["started_at"] = draft.now
    if (ran or stage is READY) and not attempt.ready_at:
        facts["ready_at"] = draft.now
    if stage is not ENDED:
        _advance(draft, attempt, seen, facts)
        return
    facts |= {
        "exit_code": seen.exit_code,
        "signal": seen.signal,
        "cause": seen.cause,
        "text": seen.text,
    }
    _end(draft, attempt, seen.outcome or Outcome.LOST, facts)


def _advance(draft: Draft, attempt: Attempt, seen: SeenAttempt, facts: dict[str, Any]) -> None:
    if seen.stage > attempt.stage:
        facts["stage"] = seen.stage
        if seen.stage is not STOPPING:  # that was told when it was decided
            text = seen.text or _words(seen)
            draft.tell(CODE_BY_STAGE[seen.stage], attempt.node, text, attempt=attempt.number)
    stage = max(seen.stage, attempt.stage)
    healthy = seen.healthy and stage is RUNNING
    if seen.stage >= attempt.stage and healthy != attempt.healthy:
        facts["healthy"] = healthy
        if draft.tasks[attempt.node.task].ready is not None and stage is RUNNING:
            code = "attempt-healthy" if healthy else "attempt-unhealthy"
            draft.tell(code, attempt.node, seen.text, attempt=attempt.number)
    if any(getattr(attempt, field) != value for field, value in facts.items()):
        draft.set_attempt(attempt.id, **facts)


def _words(seen: SeenAttempt) -> str:
    return f"at {seen.address}" if seen.address and seen.stage is READY else ""


def _adopt(draft: Draft, lease: Lease, seen: SeenAttempt) -> None:
    """Take in an attempt that the record does not know, on a lease that it knows.

    That happens when the store is older than the world (a restored backup): what runs is taken as
    it stands. One that is no newer than the record's is left out of the next assignment, so ends.
    """
    node = draft.nodes.get(seen.node)
    if node is None or node.lease != lease.id or seen.number <= node.number:
        return
    if seen.incarnation < draft.get("incarnation"):
        return
    _catch_up(draft, seen)
    if not draft.get("gang_barrier"):
        draft.set(gang_barrier=draft.issue_barrier())
    node = draft.nodes[seen.node]
    if not node.barrier:
        node = draft.set_node(node.id, barrier=draft.get("gang_barrier"))
    before = draft.newest(node)
    if before is not None and before.live:
        facts = {"cause": "superseded", "text": f"attempt {seen.number} is here"}
        _end(draft, before, Outcome.LOST, facts)
        draft.set_attempt(before.id, judged=True)
    attempt = Attempt(
        id=seen.id,
        node=seen.node,
        number=seen.number,
        incarnation=seen.incarnation,
        lease=lease.id,
        barrier=node.barrier,
        created_at=draft.now,
        infra=lease.placement.infra,
        host=lease.host,
        goal=max(READY, min(seen.stage, RUNNING)),
        seen=True,
    )
    draft.add_attempt(attempt)
    draft.set_node(seen.node, number=seen.number, attempt=seen.id, replace=False)
    if not draft.ending:
        draft.set_node(seen.node, settled=None, cause="")  # an older attempt had settled it
    if attempt.goal is RUNNING and node.barrier not in draft.get("started"):
        barrier = draft.issue_barrier()
        draft.set(started=(*draft.get("started"), barrier))
        draft.set_node(seen.node, barrier=barrier, asked=True)
    draft.tell("attempt-adopted", seen.node, "found running", attempt=seen.number)
    _merge(draft, attempt, seen)


def _catch_up(draft: Draft, seen: SeenAttempt) -> None:
    """The world is an incarnation ahead: what the record knows of older ones is to be replaced."""
    if seen.incarnation == draft.get("incarnation"):
        return
    barrier = draft.issue_barrier()
    draft.set(incarnation=seen.incarnation, gang_barrier=barrier)
    for node in list(draft.nodes.values()):
        attempt = draft.newest(node)
        live = attempt is not None and attempt.live
        again = {} if draft.ending else {"settled": None, "cause": "", "asked": False}
        draft.set_node(node.id, barrier=barrier, replace=live or node.replace, **again)

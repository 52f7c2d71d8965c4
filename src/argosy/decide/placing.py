"""Capacity for the gang: a plan is asked for, acquired as a whole, and given up as a whole.

Before the gang's first start two clocks run while a node lacks a reporting agent:
`start_timeout`, and `hold_timeout` while a refusal stands beside what is held. When one runs out,
everything is given back and the gang waits with a reason and a back-off. Later replacements wait
without a deadline, and the group's other leases are kept.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

from argosy.decide import queue
from argosy.decide.draft import NEVER, Draft
from argosy.model.group import ASKED, GONE, HELD, RELEASING, Lease, Node, Placing, make_lease
from argosy.model.ids import ZERO, LeaseId, lease_id
from argosy.model.observed import Refusal, SeenState
from argosy.model.plan import NoPlan, Plan

CANNOT_START = "mend the image or name another one; it is tried again by itself"
NAMED_MOST = 3  # groups ahead, or reasons of a refusal, that are named


def place(draft: Draft) -> None:
    """Take the next step towards capacity for every node that lacks it."""
    if draft.ending:
        return
    if draft.placing.acquired_at or draft.gang_begun:
        _watch(draft)
    if draft.placing.acquired_at:
        return  # what was acquired is complete first, or given up
    needy = _needy(draft)
    if not needy:
        draft.set(placing=Placing())  # it waits for nothing: its place in the queue is free
        return
    _answer(draft, needy)
    if not draft.placing.acquired_at:
        _hold(draft)
        _ask(draft)


def _hold(draft: Draft) -> None:
    """A gang that never began and lost a part of its capacity keeps the rest only for a while."""
    mine = [one for one in draft.leases.values() if _open(draft, one)]
    if draft.gang_begun or not mine:
        return
    since = draft.placing.hold_since or draft.now
    if since != draft.placing.hold_since:
        _change(draft, hold_since=since)
    if draft.due(since + draft.spec.hold_timeout):
        _give_up(draft, {}, f"a lost part was not replaced in {draft.spec.hold_timeout:g} s")


def _change(draft: Draft, **changes: Any) -> None:
    draft.set(placing=replace(draft.placing, **changes))


def _needy(draft: Draft) -> list[Node]:
    """The nodes of the gang that are wanted and have no capacity."""
    return [
        node
        for task in draft.gang
        for node in draft.nodes_of(task)
        if node.settled is None and (node.lease is None or not _kept(draft.leases[node.lease]))
    ]


# Asking for a plan


def _ask(draft: Draft) -> None:
    placing = draft.placing
    answer_by = placing.requested_at + draft.limits.replan_timeout
    if placing.request != ZERO and draft.now < answer_by:
        draft.wake(answer_by)
        draft.wait("planning", "", "a plan is being made", since=placing.requested_at)
    elif placing.request != ZERO or _may_try(draft):
        _change(draft, request=draft.issue(), requested_at=draft.now)
        draft.wake(draft.now + draft.limits.replan_timeout)


def _may_try(draft: Draft) -> bool:
    """Its back-off is over, or something was freed; and nobody is ahead of it in the queue."""
    if draft.placing.tries and _got_back(draft):
        _change(draft, failed_at=draft.now)  # what it gave back itself is not news to it
    placing = draft.placing
    freed = queue.freed_since(placing, draft.observed.queue.freed_at)
    if draft.now < placing.retry_at and not freed:
        draft.wake(placing.retry_at)
        code = "refused" if placing.refused else "no-capacity"
        for line in placing.report or ("no capacity",):
            draft.wait(code, "", line, since=placing.failed_at, hint=placing.hint)
        _say_place(draft)
        _note_passing(draft)
        return False
    return not (placing.infras and _blocked(draft, placing.infras))


def _got_back(draft: Draft) -> bool:
    """The infra has back, since the last decision, a part of what this gang gave up."""
    gone = (one for one in draft.leases.values() if one.state is GONE)
    return not draft.gang_begun and any(draft.tasks[one.node.task] in draft.gang for one in gone)


def _blocked(draft: Draft, infras: tuple[str, ...]) -> bool:
    me = queue.waiting_of(
        replace(draft.group, placing=replace(draft.placing, infras=infras)),
        draft.observed.queue.freed_at,
    )
    if me is None:
        return False
    limit = draft.limits.pass_limit
    who = queue.ahead(draft.observed.queue, me, infras, draft.now, limit)
    if who:
        text = f"{who}; place {queue.place(draft.observed.queue, me)} in the queue"
        draft.wait("queue", "", text, since=draft.group.submitted_at)
    return bool(who)


def _say_place(draft: Draft) -> None:
    """Who will be asked before this gang once there is room; it waits for room first."""
    group = replace(draft.group, placing=draft.placing)
    me = queue.waiting_of(group, draft.observed.queue.freed_at)
    names = queue.before(draft.observed.queue, me) if me is not None else []
    if names:
        more = f" and {len(names) - NAMED_MOST} more" if len(names) > NAMED_MOST else ""
        who = f"{', '.join(names[:NAMED_MOST])}{more} {'is' if len(names) == 1 else 'are'} ahead"
        text = f"{who}; place {len(names) + 1} in the queue"
        draft.wait("queue", "", text, since=draft.group.submitted_at)


def _note_passing(draft: Draft) -> None:
    """Note since when others, behind in the queue, were placed where this gang would go."""
    placing = draft.placing
    turns = draft.observed.queue.turns
    passing = any(turns.get(infra, draft.group.id) != draft.group.id for infra in placing.infras)
    if passing and not placing.passed_since:
        _change(draft, passed_since=draft.now)
    if placing.passed_since and draft.now < placing.passed_since + draft.limits.pass_limit:
        draft.wake(placing.passed_since + draft.limits.pass_limit)


def _answer(draft: Draft, needy: list[Node]) -> None:
    placing = draft.placing
    answer = draft.observed.answer
    if placing.request == ZERO or answer is None or answer.request != placing.request:
        return
    _change(draft, request=ZERO)
    if isinstance(answer, NoPlan):
        _no_plan(draft, answer)
    elif not {node.id for node in needy} <= {one.node for one in answer.placements}:
        draft.tell("plan-stale", "", "what is needed changed meanwhile")
    elif _blocked(draft, answer.infras()):
        _change(draft, infras=answer.infras())
    else:
        _acquire(draft, answer, needy)


def _no_plan(draft: Draft, answer: NoPlan) -> None:
    placing = draft.placing
    lines = answer.report.refused or ("it does not fit now",)
    soonest = draft.now + _backoff(draft, placing.tries + 1)
    latest = draft.now + draft.limits.backoff_most  # hosts may come, or come back, untold
    retry_at = max(soonest, min(answer.retry_at, latest))
    if lines != placing.report:
        draft.tell("no-capacity", "", "; ".join(lines))
    _change(
        draft,
        tries=placing.tries + 1,
        retry_at=retry_at,
        failed_at=draft.now,
        report=lines,
        hint="",
        refused=(),
        infras=answer.infras,
        passed_since=0.0 if answer.never else placing.passed_since,
    )


def _backoff(draft: Draft, tries: int) -> float:
    """Doubles up to a limit; up to half of it is jitter that the group's id decides."""
    limits = draft.limits
    whole: float = min(limits.backoff_most, limits.backoff_first * 2.0 ** min(tries - 1, 16))
    chance = zlib.crc32(f"{draft.group.id}:{tries}".encode()) / 2**32
    return whole * (1.0 - chance / 2)


def _acquire(draft: Draft, plan: Plan, needy: list[Node]) -> None:
    """Ask for all of it; what the plan repeats of kept leases stays as it is."""
    where = plan.infras()
    lacking = {node.id: node.id for node in needy}
    for placement in [one for one in plan.placements if one.node in lacking]:
        node = lacking[placement.node]  # the very object: it is found without being compared
        lease = make_lease(
            id=lease_id(draft.group.id, draft.issue()),
            node=node,
            placement=placement,
            state=ASKED,
            asked_at=draft.now,
        )
        draft.leases[lease.id] = lease
        draft.set_node(node, lease=lease.id)
    _change(
        draft, acquired_at=draft.now, turns=where, infras=where, hold_since=0.0, passed_since=0.0
    )
    draft.set(infras=tuple(sorted({*draft.get("infras"), *where})))
    draft.tell("plan-acquired", "", f"{len(lacking)} nodes on {', '.join(where)}")


# While it is being acquired


def _watch(draft: Draft) -> None:
    acquiring = bool(draft.placing.acquired_at)
    reports = draft.observed.reports
    lacking = [
        one
        for one in draft.leases.values()
        if (one.state is ASKED or (acquiring and one.id not in reports)) and _open(draft, one)
    ]
    if not lacking:
        if acquiring:
            draft.set(placing=Placing())  # complete: the turns are free for the next gang
        return
    if draft.placing.turns and all(_has_room(draft, one) for one in lacking):
        _change(draft, turns=())  # nothing of it can be taken from others any more
    refused = {one.id: why for one in lacking if (why := _refusal(draft, one))}
    if draft.gang_begun:
        _replace_refused(draft, refused)
    else:
        _clocks(draft, refused)
    if acquiring and not draft.placing.acquired_at:
        return  # it was given up: what is said of a failed try says why
    for lease_id_, why in refused.items():
        draft.wait("refused", draft.leases[lease_id_].node, why.text, since=why.at, hint=why.hint)
    for lease in lacking:
        if lease.id not in refused:
            text = _pending_words(draft, lease)
            draft.wait("capacity", lease.node, text, since=lease.asked_at)
    if acquiring and draft.placing.refused and not refused:
        text = f"the try before: {'; '.join(draft.placing.report)}"
        draft.wait("tried-before", "", text, since=draft.placing.failed_at, hint=draft.placing.hint)


def _has_room(draft: Draft, lease: Lease) -> bool:
    """Its capacity is its own, whether or not anything is there yet."""
    seen = draft.seen.get(lease.id)
    return lease.state is HELD or (seen is not None and seen.placed)


def _open(draft: Draft, lease: Lease) -> bool:
    """It was not given up, and its node lives there or is to."""
    return _kept(lease) and draft.nodes[lease.node].lease == lease.id


def _kept(lease: Lease) -> bool:
    return lease.state < RELEASING and not lease.lost


def _pending_words(draft: Draft, lease: Lease) -> str:
    if lease.state is HELD:
        return f"waits for the agent on {lease.host or lease.placement.infra}"
    seen = draft.seen.get(lease.id)
    return (seen.text if seen else "") or f"asked {lease.placement.infra} for it"


def _refusal(draft: Draft, lease: Lease) -> Refusal | None:
    seen = draft.seen.get(lease.id)
    if seen is not None and seen.state is SeenState.PENDING and seen.unschedulable:
        at = lease.held_at or draft.now
        hint = CANNOT_START if seen.placed else ""
        return Refusal(lease.id, "unschedulable", seen.text, hint, at, at)
    return draft.observed.refusals.get(lease.id) if lease.state is not HELD else None


def _clocks(draft: Draft, refused: dict[LeaseId, Refusal]) -> None:
    placing = draft.placing
    hold_since = (placing.hold_since or draft.now) if refused else 0.0
    if hold_since != placing.hold_since:
        _change(draft, hold_since=hold_since)
    start_by = placing.acquired_at + draft.spec.start_timeout
    hold_by = hold_since + draft.spec.hold_timeout
    if any(why.retry_at == NEVER for why in refused.values()):
        _give_up(draft, refused, "a part was refused, and to wait would not help")
    elif refused and not _others(draft, refused):
        _give_up(draft, refused, "all of it was refused")
    elif refused and draft.due(hold_by):
        _give_up(draft, refused, f"a part was refused for {draft.spec.hold_timeout:g} s")
    elif draft.due(start_by):
        _give_up(draft, refused, f"not all was there after {draft.spec.start_timeout:g} s")


def _others(draft: Draft, refused: dict[LeaseId, Refusal]) -> bool:
    """Something else is held, or was asked for and not refused."""
    return any(_open(draft, one) for one in draft.leases.values() if one.id not in refused)


def _give_up(draft: Draft, refused: dict[LeaseId, Refusal], text: str) -> None:
    """Give everything back: nothing of a gang holds capacity while another part has none."""
    for task in draft.gang:
        for node in draft.nodes_of(task):
            if node.lease is not None:
                draft.set_node(node.id, lease=None, replace=node.attempt is not None)
    reasons = _reasons(refused)
    more = f"; and {len(reasons) - NAMED_MOST} more" if len(reasons) > NAMED_MOST else ""
    why = f"{text} ({'; '.join(reasons[:NAMED_MOST])}{more})" if reasons else text
    _back_off(draft, refused, [why])
    draft.tell("placing-given-up", "", f"{why}: everything is given back and tried again")


def _reasons(refused: dict[LeaseId, Refusal]) -> list[str]:
    """What the infras said, each once."""
    return list(dict.fromkeys(why.text for why in refused.values() if why.text))


def _replace_refused(draft: Draft, refused: dict[LeaseId, Refusal]) -> None:
    """A replacement that was refused is planned anew; what the group holds is kept."""
    if not refused:
        return
    for lease in refused:
        draft.set_node(draft.leases[lease].node, lease=None)
    _back_off(draft, refused, _reasons(refused))
    draft.tell("replacement-refused", "", next(iter(refused.values())).text)


def _back_off(draft: Draft, refused: dict[LeaseId, Refusal], lines: list[str]) -> None:
    """The try failed: the turns are free, and the next plan avoids the hosts that refused."""
    placing = draft.placing
    tries = placing.tries + 1
    where = {draft.leases[lease].placement for lease in refused}
    _change(
        draft,
        request=ZERO,
        acquired_at=0.0,
        turns=(),
        tries=tries,
        retry_at=draft.now + _backoff(draft, tries),
        failed_at=draft.now,
        hold_since=0.0,
        report=tuple(lines),
        hint=next((why.hint for why in refused.values() if why.hint), ""),
        refused=tuple(sorted({(one.infra, one.host or "") for one in where})),
    )
    draft.wake(draft.placing.retry_at)

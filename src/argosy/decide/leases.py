"""What is held is needed; what is seen with our mark and not needed is released.

Releases are derived from what is *seen*, not only from the record: something that was acquired
after it had been given up would stay for ever otherwise. A finished group stays here until looks
that were not blind show nothing with its mark.
"""

from __future__ import annotations

from argosy.decide.draft import Draft
from argosy.model.action import Action, Replan, make_acquire, make_release
from argosy.model.group import ASKED, GONE, RELEASING, WAITING, Attempt, Lease
from argosy.model.ids import ZERO, InfraName, group_lease
from argosy.model.observed import Look, SeenState


def settle(draft: Draft) -> tuple[Action, ...]:
    """Let go of what is not needed, and say what is to be acquired, released and planned."""
    held = [one for one in draft.leases.values() if one.state < RELEASING]
    idle = held if draft.final else [lease for lease in held if not _wanted(draft, lease)]
    live_by_lease = draft.live_by_lease() if idle else {}
    for lease in idle:
        if not _needed(draft, lease, live_by_lease.get(lease.id, [])):
            _let_go(draft, lease)
    actions = [*_acquires(draft), *_releases(draft), *_replan(draft)]
    if draft.final and not draft.get("clean"):
        _clean(draft)
    return tuple(actions)


def _wanted(draft: Draft, lease: Lease) -> bool:
    """A node lives there that is to run: nothing else has to be asked."""
    node = draft.nodes[lease.node]
    return node.lease == lease.id and node.settled is None and not lease.lost


def _needed(draft: Draft, lease: Lease, live: list[Attempt]) -> bool:
    node = draft.nodes[lease.node]
    if lease.lost:
        return False
    unwanted = node.lease != lease.id or node.settled is not None
    if unwanted and live and any(_may_still_end(draft, one) for one in live):
        return not _cannot_start(draft, lease)
    if node.lease != lease.id:
        return False
    if node.settled is None:
        return not draft.final
    # a rank that has ended keeps its place as long as a restart of its task may want it
    return not draft.ending and draft.verdict(draft.tasks[node.id.task]) is None


def _cannot_start(draft: Draft, lease: Lease) -> bool:
    """The infra says that nothing has ever run there."""
    seen = draft.seen.get(lease.id)
    return seen is not None and seen.state is SeenState.PENDING and seen.unschedulable


def _may_still_end(draft: Draft, attempt: Attempt) -> bool:
    """An attempt that was told to end gets its grace, and a margin, before its capacity goes."""
    if attempt.stage is WAITING and not attempt.stop_at:
        return False  # no agent was told of it yet
    grace = 0.0 if draft.get("grace_zero") else draft.tasks[attempt.node.task].grace
    until = (attempt.stop_at or draft.now) + grace + draft.limits.release_margin
    return not draft.due(until)


def _let_go(draft: Draft, lease: Lease) -> None:
    draft.set_lease(lease.id, state=RELEASING, released_at=draft.now)
    node = draft.nodes[lease.node]
    if node.lease == lease.id:
        draft.set_node(node.id, lease=None)
    draft.tell("lease-released", lease.node, lease.host or lease.placement.infra)


def _acquires(draft: Draft) -> list[Action]:
    actions: list[Action] = []
    for lease in draft.leases.values():
        if lease.state is not ASKED or lease.held_at:
            continue
        refusal = draft.observed.refusals.get(lease.id)
        if refusal is not None and draft.now < refusal.retry_at:
            draft.wake(refusal.retry_at)
            continue
        actions.append(make_acquire(lease.id, lease.placement))
    if actions:
        draft.wake(draft.now + draft.limits.ask_again)
    return actions


def _releases(draft: Draft) -> list[Action]:
    actions: list[Action] = []
    for lease in draft.leases.values():
        if lease.state is RELEASING:
            actions.append(make_release(lease.placement.infra, lease.id))
    for infra, look in draft.observed.looks.items():
        actions += _strays(draft, infra, look)
        if _needless(draft, infra, look):
            actions.append(make_release(infra, group_lease(draft.group.id)))
    if actions:
        draft.wake(draft.now + draft.limits.ask_again)
    return actions


def _strays(draft: Draft, infra: InfraName, look: Look) -> list[Action]:
    """Releases of what is seen there with our mark, and is not in the record as something of that
    infra.
    """
    zero, leases = group_lease(draft.group.id), draft.leases
    actions: list[Action] = []
    for seen in look.leases:
        lease = leases.get(seen.lease)
        if lease is not None and lease.state <= RELEASING and lease.placement.infra == infra:
            continue  # needed, or its release was asked for
        if seen.lease == zero:
            continue
        if draft.issued(seen.lease):
            actions.append(make_release(infra, seen.lease))
        else:
            text = f"{seen.host or infra} has something that this store does not know"
            hint = "the store is older than it (a restored backup): end it by hand"
            draft.wait("stranger", "", text, hint=hint)
    return actions


def _needless(draft: Draft, infra: InfraName, look: Look) -> bool:
    """What is group-wide is seen there, and nothing of the group needs it any more."""
    zero = group_lease(draft.group.id)
    if look.blind_all or look.blind or all(one.lease != zero for one in look.leases):
        return False
    held = (one for one in draft.leases.values() if one.state < RELEASING)
    if any(one.placement.infra == infra for one in held) or _keeps_volumes(draft):
        return False
    others = [one for one in look.leases if one.lease != zero]
    # what a group that is over has there is silent: it keeps nothing that is group-wide
    return not others or (draft.final and all(one.lease in draft.leases for one in others))


def _keeps_volumes(draft: Draft) -> bool:
    """Between two tasks of a serial group its own volumes stay: they go with what is group-wide."""
    if draft.ending:
        return False
    return any(mount.ephemeral for task in draft.group.spec.tasks for mount in task.volumes)


def _replan(draft: Draft) -> list[Action]:
    placing = draft.get("placing")
    if draft.ending or placing.request == ZERO:
        return []
    gang = [node for task in draft.gang for node in draft.nodes_of(task) if node.settled is None]
    needy = tuple(node.id for node in gang if node.lease is None)
    kept = tuple(draft.leases[n.lease].placement for n in gang if n.lease is not None)
    return [Replan(placing.request, needy, kept, placing.refused)]


def _clean(draft: Draft) -> None:
    """After the end: whether anything with the group's mark is left where it ever was."""
    draft.wake(draft.now + draft.limits.ask_again)  # until looks show nothing
    for infra in draft.get("infras"):
        look = draft.observed.looks.get(infra)
        if look is None or look.blind_all or look.blind or look.leases:
            return
        if look.began_at <= draft.get("ended_at"):
            return
    if all(one.state is GONE for one in draft.leases.values()):
        draft.set(clean=True)

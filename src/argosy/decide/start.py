"""How far each attempt may go: wanted and seen stages share one scale, so to start and to stop is
to raise one number.

Nothing of a barrier starts before one decision saw the live attempt of each of its nodes READY and
each agent heard lately. Then a node's goal becomes RUNNING when its `depends_on` holds.
"""

from __future__ import annotations

from argosy.decide import depends
from argosy.decide.draft import Draft
from argosy.model.group import ENDED, GONE, READY, RUNNING, Attempt, Node, Phase
from argosy.model.spec import TaskSpec


def set_goals(draft: Draft) -> None:
    """Raise goals; they never fall."""
    _stop(draft)
    if not draft.ending:
        _open_barriers(draft)
        for task in draft.gang:
            _start(draft, task)
    draft.set(phase=_phase(draft))


def _stop(draft: Draft) -> None:
    for attempt in list(draft.attempts.values()):
        if not attempt.live or attempt.goal is ENDED:
            continue
        node = draft.nodes[attempt.node]
        if node.settled is not None or node.replace or node.attempt != attempt.id:
            draft.set_attempt(attempt.id, goal=ENDED, stop_at=draft.now)
            why = node.cause if node.settled is not None else "is to be replaced"
            draft.tell("attempt-stopping", attempt.node, why, attempt=attempt.number)


def _open_barriers(draft: Draft) -> None:
    waiting: dict[int, list[Node]] = {}
    started = draft.get("started")
    first: int = draft.get("gang_barrier")
    for task in draft.gang:
        for node in draft.nodes_of(task):
            if node.barrier not in started and node.settled is None:
                waiting.setdefault(node.barrier or first, []).append(node)
    opened = [b for b, nodes in sorted(waiting.items()) if b and _all_ready(draft, b, nodes)]
    if not opened or _older_lives(draft):
        return
    opened = [b for b in opened if not _has_predecessor(draft, waiting[b])]
    if not opened:
        return
    used = {node.barrier for node in draft.nodes.values()}
    kept = [b for b in started if b in used or b == first]
    draft.set(started=(*kept, *opened))
    if not draft.get("started_at"):
        draft.set(started_at=draft.now)
    for barrier in opened:
        text = "all are ready: start" if barrier == first else "restarted ones start"
        draft.tell("barrier-open", "", text)


def _older_lives(draft: Draft) -> bool:
    """Something of an older incarnation has not ended: two never run at once.

    A serial group that starts anew begins with its first task, while a later one may still stop.
    """
    incarnation = draft.get("incarnation")
    for attempt in draft.attempts.values():
        if attempt.live and attempt.incarnation != incarnation:
            text = f"{attempt.node} of the incarnation before has not ended"
            draft.wait("older-incarnation", attempt.node, text, since=attempt.stop_at)
            return True
    return False


def _has_predecessor(draft: Draft, nodes: list[Node]) -> bool:
    """An attempt of one of them has not ended on a host that goes away: two never run at once."""
    ids = {node.id for node in nodes}
    for attempt in draft.attempts.values():
        if not attempt.live or draft.nodes[attempt.node].attempt == attempt.id:
            continue
        if attempt.node in ids:
            text = f"{attempt.node} has not ended on {attempt.host}, which goes away"
            draft.wait("older-attempt", attempt.node, text, since=attempt.stop_at)
            return True
    return False


def _all_ready(draft: Draft, barrier: int, nodes: list[Node]) -> bool:
    for node in nodes:
        attempt = draft.newest(node)
        if attempt is None or node.replace or not attempt.live or attempt.stage < READY:
            _say_unready(draft, node, attempt, alone=len(nodes) == 1)
            return False
        if not draft.heard(attempt.lease):
            text = f"{attempt.host or attempt.lease} was not heard lately"
            draft.wait("agent-suspect", node.id, text)
            draft.wake(draft.now + draft.limits.ask_again)  # a heartbeat alone is no news
            return False
    return True


def _say_unready(draft: Draft, node: Node, attempt: Attempt | None, *, alone: bool) -> None:
    if attempt is not None and attempt.live and not node.replace:
        told = draft.told(attempt) or ("" if alone else "the others wait for it")
        text = f"{node.id} is {attempt.stage.name.lower()}{': ' if told else ''}{told}"
        draft.wait("not-ready", node.id, text, since=attempt.created_at)


def _start(draft: Draft, task: TaskSpec) -> None:
    started = draft.get("started")
    unmet: str | None = None  # asked once per task, and only when a node needs the answer
    for node in draft.nodes_of(task):
        attempt = draft.newest(node)
        if (
            attempt is None
            or not attempt.live
            or attempt.goal is not READY
            or node.barrier not in started
        ):
            continue
        if not node.asked:
            unmet = depends.unmet(draft, task) if unmet is None else unmet
            if unmet:
                draft.wait("depends-on", node.id, unmet, since=attempt.ready_at)
                continue
            draft.set_node(node.id, asked=True)
        draft.set_attempt(attempt.id, goal=RUNNING)


def _phase(draft: Draft) -> Phase:
    phase = draft.phase
    if draft.ending:
        return phase
    if not draft.gang_started:
        held = any(lease.state is not GONE for lease in draft.leases.values())
        return Phase.STARTING if held else Phase.PENDING
    for task in draft.gang:
        if draft.verdict(task) is not None:
            continue
        if not all(_well(draft, node) for node in draft.nodes_of(task)):
            return Phase.RECOVERING
    return Phase.RUNNING


def _well(draft: Draft, node: Node) -> bool:
    """It runs, or is done, or still waits for what it depends on."""
    attempt = draft.newest(node)
    if node.settled is not None:
        return True
    if attempt is None or node.replace or not attempt.live:
        return False
    return attempt.goal is RUNNING or not node.asked

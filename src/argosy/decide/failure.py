"""What the end of an attempt means: success, a restart, or a failed node.

A restart replaces attempts: of a node, of a task, or of the group. A lost host and a restart by
hand are free; a failure spends the budget of its unit. In a task whose nodes work as one, a
failure is judged once every sibling's agent was heard after it: a lost sibling is the root cause
then.
"""

from __future__ import annotations

from dataclasses import dataclass

from argosy.decide.draft import Draft, ending
from argosy.model.group import HELD, READY, Attempt, Intent, Node, Outcome, Verb
from argosy.model.ids import NodeId
from argosy.model.spec import Restart, Scope, TaskSpec


def judge(draft: Draft) -> None:
    """Deal with every end that was not dealt with, lost ones first, and with restarts by hand."""
    _by_hand(draft)
    _leave_hosts(draft)
    ends = []
    for node in draft.nodes.values():
        attempt = draft.newest(node)
        if attempt is not None and not attempt.live and not attempt.judged:
            ends.append(attempt)
    for attempt in sorted(ends, key=_innocence):
        _judge(draft, draft.nodes[attempt.node], draft.attempts[attempt.id])


def _leave_hosts(draft: Draft) -> None:
    """What runs on hosts that the infra takes back is prepared elsewhere, as far as a lost host
    would be replaced. The old attempt has its grace; the new one starts when it has ended.
    """
    for lease in [one for one in draft.leases.values() if one.leaving]:
        node, task = draft.nodes[lease.node], draft.tasks[lease.node.task]
        if node.lease != lease.id or lease.state is not HELD or draft.ending:
            continue
        if node.settled is not None or draft.verdict(task) is not None or task not in draft.gang:
            continue
        attempt = draft.newest(node)
        if attempt is not None and attempt.lease == lease.id:
            if not task.restart.on_lost:
                continue
            if attempt.live and not node.replace:
                renewal = Renewal(task.restart.scope, "lost", f"{node.id} loses its host")
                _renew(draft, task, node, renewal)
        ends = draft.nodes[node.id].replace or (attempt is not None and attempt.live)
        draft.set_node(node.id, lease=None, replace=ends)


def _innocence(attempt: Attempt) -> int:
    """Lost hosts come first: what a sibling did afterwards is their doing, and spends nothing."""
    if attempt.outcome is not Outcome.LOST:
        return 2
    return 1 if attempt.cause == "wrapper-vanished" else 0


def _judge(draft: Draft, node: Node, attempt: Attempt) -> None:
    if attempt.judged:
        return
    task = draft.tasks[node.id.task]
    if node.replace or node.settled is not None or draft.ending or draft.verdict(task) is not None:
        draft.set_attempt(attempt.id, judged=True)
        if node.settled is None and not node.replace:
            draft.settle(node.id, attempt.outcome or Outcome.LOST, attempt.cause)
    elif attempt.outcome is Outcome.SUCCEEDED:
        draft.set_attempt(attempt.id, judged=True)
        draft.settle(node.id, Outcome.SUCCEEDED, "exit")
    else:
        _bad_end(draft, task, node, attempt)


def _bad_end(draft: Draft, task: TaskSpec, node: Node, attempt: Attempt) -> None:
    together = task.num_nodes > 1 and task.restart.scope is not Scope.NODE
    failed = attempt.outcome is Outcome.FAILED
    if together and failed:
        silent = _unheard_sibling(draft, task, node, attempt)
        if silent is not None:
            text = f"whether {silent} was lost is not known yet: its agent was not heard since"
            draft.wait("peer-suspect", node.id, text, since=attempt.ended_at)
            draft.wake(draft.now + draft.limits.ask_again)  # a heartbeat alone is no news
            return
    if attempt.cause == "wrapper-vanished":
        failed = failed or _vanished_too_often(draft, node)
    draft.set_attempt(attempt.id, judged=True)
    restart = _restart_for(draft, task, attempt, failed=failed)
    if restart is None:
        _fail(draft, task, node, attempt)
    else:
        _renew(draft, task, draft.nodes[node.id], restart)


def _unheard_sibling(draft: Draft, task: TaskSpec, node: Node, attempt: Attempt) -> NodeId | None:
    for sibling in draft.nodes_of(task):
        other = draft.newest(sibling)
        if sibling.id == node.id or other is None or not other.live:
            continue
        if (other.infra, other.host) == (attempt.infra, attempt.host):
            continue  # its agent is the one that spoke
        report = draft.report(other.lease)
        if report is None or report.heard_at <= attempt.ended_at:
            return sibling.id
    return None


def _vanished_too_often(draft: Draft, node: Node) -> bool:
    since = draft.now - draft.limits.vanished_within
    vanished = (*(at for at in node.vanished if at > since), draft.now)
    draft.set_node(node.id, vanished=vanished)
    return len(vanished) >= draft.limits.vanished_max


@dataclass(frozen=True, slots=True)
class Renewal:
    """How a restart is done."""

    scope: Scope
    reason: str  # code for the programs: "failure", "lost", "by-hand"
    text: str
    backoff: float = 0.0
    unit: str = ""  # whose budget it spends; "" when it is free


def _restart_for(draft: Draft, task: TaskSpec, attempt: Attempt, *, failed: bool) -> Renewal | None:
    """The restart that covers this end; None when none does."""
    policy = task.restart
    text = f"{attempt.node} {ending(attempt)}"
    if not failed and not policy.on_lost:
        return None
    if not failed:
        vanished = len(draft.nodes[attempt.node].vanished)
        here = attempt.cause == "wrapper-vanished"
        backoff = _backoff(policy, vanished) if here else 0.0
        return Renewal(policy.scope, "lost", text, backoff)
    if not (policy.on_failure or attempt.exit_code in policy.on_codes):
        return None
    unit, limit = _budget(draft, task, attempt.node)
    spent = _spent(draft, unit, attempt.node)
    if limit is not None and spent >= limit:
        return None
    return Renewal(policy.scope, "failure", text, _backoff(policy, spent + 1), unit)


def _budget(draft: Draft, task: TaskSpec, node: NodeId) -> tuple[str, int | None]:
    """The unit that a failure is counted for, and how many restarts it has."""
    match task.restart.scope:
        case Scope.NODE:
            return node.path, task.restart.max
        case Scope.TASK:
            return task.name, task.restart.max
        case Scope.GROUP:
            if task.restart.max is not None:
                return f"*{task.name}", task.restart.max
            return "*", draft.spec.restarts


def _spent(draft: Draft, unit: str, node: NodeId) -> int:
    """How many restarts a unit has spent. Older records call a node's unit `trainer-1`."""
    spent: dict[str, int] = dict(draft.get("restarts"))
    older = str(node) if unit == node.path and str(node) not in draft.tasks else unit
    return spent.get(unit, spent.get(older, 0))


def _backoff(policy: Restart, times: int) -> float:
    doubled: float = policy.backoff_first * 2.0 ** min(max(0, times - 1), 30)
    return min(doubled, policy.backoff_most)


def _fail(draft: Draft, task: TaskSpec, node: Node, attempt: Attempt) -> None:
    draft.settle(node.id, Outcome.FAILED, attempt.cause)
    if draft.get("root") is None:
        draft.set(root=node.id)
    text = f"{ending(attempt)}; no restart is left or asked for"
    draft.tell("node-failed", node.id, text)
    draft.stop(task, "sibling-failed")


def _renew(draft: Draft, task: TaskSpec, node: Node, renewal: Renewal) -> None:
    """Mark what a restart replaces; new attempts follow when the old ones have ended."""
    whole = renewal.scope is Scope.GROUP
    nodes = _in_scope(draft, task, node, renewal.scope)
    if whole:
        incarnation = draft.get("incarnation") + 1
        draft.set(incarnation=incarnation, gang=0, gang_barrier=draft.issue_barrier())
        barrier = draft.get("gang_barrier")
    elif not draft.gang_started:
        barrier = draft.get("gang_barrier")  # the gang's first start waits for them too
    else:
        barrier = _open_barrier(draft, nodes) or draft.issue_barrier()
    for one in nodes:
        _renew_node(draft, one, barrier, renewal=renewal, whole=whole)
    draft.set_node(node.id, not_before=draft.now + renewal.backoff)
    if renewal.unit:
        spent = {renewal.unit: _spent(draft, renewal.unit, node.id) + 1}
        draft.set(restarts=tuple(sorted({**dict(draft.get("restarts")), **spent}.items())))
    about = "" if whole else task.name if len(nodes) > 1 else node.id
    wait = f", after {renewal.backoff:g} s" if renewal.backoff else ""
    draft.tell(f"restart-{renewal.scope.value}", about, f"{renewal.text}{wait}")


def _in_scope(draft: Draft, task: TaskSpec, node: Node, scope: Scope) -> list[NodeId]:
    if scope is Scope.GROUP:
        return list(draft.nodes)
    nodes = [node.id] if scope is Scope.NODE else list(task.nodes())
    for name in task.restart.along:
        other = draft.tasks[name]
        if draft.verdict(other) is None and other in draft.gang:
            nodes += [one for one in other.nodes() if draft.nodes[one].settled is None]
    return nodes


def _open_barrier(draft: Draft, nodes: list[NodeId]) -> int:
    """The newest barrier of these nodes that has not started: they stay in it, or join it."""
    started = draft.get("started")
    return max((b for n in nodes if (b := draft.nodes[n].barrier) not in started), default=0)


def _renew_node(
    draft: Draft, node_id: NodeId, barrier: int, *, renewal: Renewal, whole: bool
) -> None:
    node = draft.nodes[node_id]
    attempt = draft.newest(node)
    begun = attempt is not None and (not attempt.live or attempt.goal > READY)
    changes = {"barrier": barrier, "settled": None, "cause": ""}
    if whole:
        changes["asked"] = False
        if draft.tasks[node_id.task] not in draft.gang:  # a later task of a serial group
            changes |= {"barrier": 0, "lease": None}  # it gets both when it is its turn again
    if attempt is not None and (begun or whole):
        changes |= {"replace": True, "restart_reason": renewal.reason}
    draft.set_node(node_id, **changes)


def _by_hand(draft: Draft) -> None:
    wishes = [one for one in draft.group.intents if one.verb is Verb.RESTART]
    if not wishes:
        return
    kept = tuple(one for one in draft.group.intents if one.verb is not Verb.RESTART)
    draft.set(intents=kept)
    for wish in wishes:
        refusal = _refusal(draft, wish)
        if refusal:
            draft.tell("restart-refused", wish.task, refusal)
            continue
        task = draft.tasks[wish.task] if wish.task else draft.spec.tasks[0]
        scope = Scope.TASK if wish.task else Scope.GROUP
        if wish.index is not None and task.restart.scope is Scope.NODE:
            scope = Scope.NODE
        node = draft.nodes[NodeId(task.name, wish.index or 0)]
        _renew(draft, task, node, Renewal(scope, "by-hand", "asked for by hand"))


def _refusal(draft: Draft, wish: Intent) -> str:
    """Why a restart by hand can't be done; "" when it can."""
    if draft.ending:
        return "the group is over"
    if not wish.task:
        return ""
    task = draft.tasks.get(wish.task)
    if task is None or NodeId(task.name, wish.index or 0) not in draft.nodes:
        return "there is no such node"
    if draft.verdict(task) is not None:
        return "the task is over"
    return "" if task in draft.gang else "it is not its turn yet"

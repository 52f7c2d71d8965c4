"""Whether tasks and the group are over, and how.

The group ends when its last primary has; SUCCEEDED if all primaries did. With success each
auxiliary gets its `termination_delay`, with failure none. Once the group is ENDING nothing is
restarted, replaced or acquired. Its phase is final when all that can be reached has ended and was
released.
"""

from __future__ import annotations

from argosy.decide import depends
from argosy.decide.draft import Draft
from argosy.model.group import GONE, RELEASING, Lease, Outcome, Phase, Placing, Verb
from argosy.model.spec import EndsWith, Execution, OnFailure, TaskSpec

UNPREPARED = ("setup-failed", "files-failed", "volume-failed", "network-failed")


def judge(draft: Draft) -> None:
    """Settle what is over."""
    for judgement in (_cancel, _deadline, _dead_dependencies, _unprepared, _heads, _verdict):
        if not draft.ending:  # the first that ends the group is its cause
            judgement(draft)
    if draft.phase is Phase.ENDING:
        _hurry(draft)
        _auxiliaries(draft)
        _over(draft)


def _cancel(draft: Draft) -> None:
    wishes = [one for one in draft.group.intents if one.verb is not Verb.RESTART]
    if wishes:
        by = f" by {wishes[0].by}" if wishes[0].by else ""
        _end(draft, Phase.CANCELLED, "cancelled", f"cancelled{by}")


def _hurry(draft: Draft) -> None:
    """`cancel --now`, also of a group that is ending already."""
    intents = draft.get("intents")
    if any(one.verb is Verb.CANCEL_NOW for one in intents):
        draft.set(grace_zero=True)
    if any(one.verb is not Verb.RESTART for one in intents):
        draft.set(intents=())
        _stop_everything(draft, "cancelled")


def _deadline(draft: Draft) -> None:
    limit, started_at = draft.spec.max_duration, draft.get("started_at")
    if limit is None or not started_at:
        return
    if draft.due(started_at + limit):
        _end(draft, Phase.FAILED, "deadline", f"it ran longer than {limit:g} s (max_duration)")


def _dead_dependencies(draft: Draft) -> None:
    """Whose dependency can no longer come true fails unstarted, and then its own dependants."""
    waiting = [task for task in draft.gang if task.depends_on]
    while any(_dead_dependency(draft, task) for task in waiting):  # each at most once
        pass


def _dead_dependency(draft: Draft, task: TaskSpec) -> bool:
    if draft.verdict(task) is not None or all(node.asked for node in draft.nodes_of(task)):
        return False
    why = depends.impossible(draft, task)
    if not why:
        return False
    draft.tell("dependency-ended", task.name, why)
    for node in draft.nodes_of(task):
        if node.settled is None:
            draft.settle(node.id, Outcome.FAILED, "dependency-ended")
    return True


def _unprepared(draft: Draft) -> None:
    """What could not be prepared, and is not tried again, ends the group, auxiliary or not."""
    for node in draft.nodes.values():
        if node.cause in UNPREPARED and node.settled is Outcome.FAILED:
            attempt = draft.newest(node)
            text = (attempt.text if attempt else "") or node.cause
            _end(draft, Phase.FAILED, node.cause, f"{node.id}: {text}")
            return


def _heads(draft: Draft) -> None:
    """A task that ends with its head: the rest is stopped as planned."""
    for task in draft.gang:
        if task.ends_with is EndsWith.HEAD and draft.verdict(task) is not None:
            draft.stop(task, "head-ended")


def _verdict(draft: Draft) -> None:
    if draft.spec.execution is Execution.SERIAL:
        _serial(draft)
    else:
        _primaries(draft)


def _serial(draft: Draft) -> None:
    (task,) = draft.gang
    verdict = draft.verdict(task)
    if verdict is None:
        return
    if verdict is not Outcome.SUCCEEDED:
        _end(draft, Phase.FAILED, "task-failed", f"{task.name} {verdict.value}")
    elif draft.get("gang") + 1 == len(draft.spec.tasks):
        _end(draft, Phase.SUCCEEDED, "done", "every task succeeded")
    else:
        gang = draft.get("gang") + 1
        draft.set(gang=gang, gang_barrier=0, placing=Placing())
        draft.tell("task-turn", draft.spec.tasks[gang].name, f"{task.name} succeeded: its turn")


def _primaries(draft: Draft) -> None:
    primaries = [task for task in draft.spec.tasks if task.primary]
    verdicts = [draft.verdict(task) for task in primaries]
    failed = [t.name for t, v in zip(primaries, verdicts) if v not in (None, Outcome.SUCCEEDED)]
    if failed and draft.spec.on_failure is OnFailure.STOP:
        _end(draft, Phase.FAILED, "primary-failed", f"{failed[0]} failed")
    elif None in verdicts:
        return
    elif failed:
        _end(draft, Phase.FAILED, "primary-failed", f"{', '.join(failed)} failed")
    else:
        _end(draft, Phase.SUCCEEDED, "done", "every primary task succeeded")


def _end(draft: Draft, verdict: Phase, cause: str, text: str) -> None:
    draft.set(phase=Phase.ENDING, verdict=verdict, cause=cause, text=text, ending_at=draft.now)
    draft.set(placing=Placing())
    draft.tell("group-ending", "", f"{verdict.value}: {text}")
    if verdict is not Phase.SUCCEEDED:
        _stop_everything(draft, cause)


def _stop_everything(draft: Draft, cause: str) -> None:
    for task in draft.spec.tasks:
        draft.stop(task, cause)


def _auxiliaries(draft: Draft) -> None:
    """After success every auxiliary gets its own delay, then it is ended as planned."""
    for task in draft.spec.tasks:
        if all(node.settled is not None for node in draft.nodes_of(task)):
            continue
        at = draft.get("ending_at") + task.termination_delay
        if draft.now >= at:
            draft.stop(task, "primaries-ended")
        else:
            draft.wake(at)
            draft.wait("termination-delay", task.name, "ends after its termination_delay", since=at)


def _over(draft: Draft) -> None:
    left = [one for one in draft.leases.values() if one.state is not GONE]
    if any(node.settled is None for node in draft.nodes.values()):
        return
    if not all(_unreachable(draft, lease) for lease in left):
        for lease in left:
            where = lease.host or lease.placement.infra
            draft.wait("ending", lease.node, f"{where} still holds it", since=lease.released_at)
        return
    hosts = tuple(sorted({one.host or one.placement.infra for one in left}))
    verdict = draft.get("verdict") or Phase.FAILED
    draft.set(phase=verdict, ended_at=draft.now, unreachable=hosts)
    held = (
        f"; {', '.join(hosts)} could not be reached and may still hold something" if hosts else ""
    )
    draft.tell("group-ended", "", f"{verdict.value}: {draft.get('text')}{held}")


def _unreachable(draft: Draft, lease: Lease) -> bool:
    """Its release was asked for long enough ago, and its agent is silent.

    Whether the infra can be seen says nothing of that: it shows a frozen host as well as any, and
    may be blind for one look while the agent ends what is there.
    """
    if lease.state is not RELEASING:
        return False
    if not draft.due(lease.released_at + draft.limits.release_margin):
        return False
    return not draft.heard(lease.id)

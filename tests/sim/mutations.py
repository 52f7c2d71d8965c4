# ruff: noqa: E501  (the texts are lines of the source)
"""Deliberate mistakes in `decide`: each is a few words of the source replaced by others.

They were chosen by reading `decide`, before seeds and stories were tuned against them. Every one
must be caught by `run_mutations.py`, except those whose `explained` says why nothing can notice it.
"""

from __future__ import annotations

from tests.sim.leaving import LEAVING
from tests.sim.mutation import Mutation

MUTATIONS: tuple[Mutation, ...] = (
    # --- absorb ----------------------------------------------------------------------------------
    Mutation(
        "a blind look proves absence",
        "draft",
        "if look is None or look.blind_all or lease.id in look.blind:",
        "if look is None:",
    ),
    Mutation(
        "an old look proves absence",
        "absorb",
        "elif lease.held_at and look.began_at > lease.held_at and not lease.lost:",
        "elif lease.held_at and not lease.lost:",
    ),
    Mutation(
        "what was never seen is lost when it is absent",
        "absorb",
        "elif lease.held_at and look.began_at > lease.held_at and not lease.lost:",
        "elif look.began_at > lease.held_at and not lease.lost:",
    ),
    Mutation(
        "a lost host's attempts live on",
        "absorb",
        '    _end_what_was_on(draft, lease.id, "host-lost", text)\n',
        "",
    ),
    Mutation(
        "a report that lags proves absence",
        "absorb",
        "    if report.serial < lease.serial:\n        return",
        "    if False:\n        return",
    ),
    Mutation(
        "a late report takes a stage back",
        "absorb",
        '    if seen.stage > attempt.stage:\n        facts["stage"] = seen.stage\n',
        '    if seen.stage != attempt.stage:\n        facts["stage"] = seen.stage\n',
    ),
    Mutation(
        "an ended attempt may change",
        "absorb",
        "        elif attempt.live:\n            _merge(draft, attempt, seen)",
        "        else:\n            _merge(draft, attempt, seen)",
        explained="a second guard: `_merge` finds nothing newer in what has ended but a late address",
    ),
    Mutation(
        "silence for a minute is loss",
        "absorb",
        "    look = draft.look(lease)\n    if look is None:\n        return\n    if lease.state",
        "    look = draft.look(lease)\n"
        "    word = draft.report(lease.id)\n"
        "    if word is not None and draft.now - word.heard_at > 60.0 and not lease.lost:\n"
        '        _lose(draft, lease, "it is silent")\n'
        "        return\n"
        "    if look is None:\n        return\n    if lease.state",
    ),
    Mutation(
        "a release is believed before a look shows it",
        "absorb",
        "        if look.began_at > lease.released_at:\n",
        "        if True:\n",
    ),
    Mutation(
        "health of a stopping attempt counts",
        "absorb",
        "healthy = seen.healthy and stage is RUNNING",
        "healthy = seen.healthy",
        explained="a stopping attempt is out of the book by its goal: only the display differs",
    ),
    # --- failure ---------------------------------------------------------------------------------
    Mutation(
        "one restart too many",
        "failure",
        "if limit is not None and spent >= limit:",
        "if limit is not None and spent > limit:",
    ),
    Mutation(
        "a budget is never spent",
        "failure",
        "spent = {renewal.unit: _spent(draft, renewal.unit, node.id) + 1}",
        "spent = {renewal.unit: _spent(draft, renewal.unit, node.id)}",
    ),
    Mutation(
        "a failure is restarted without a policy",
        "failure",
        "if not (policy.on_failure or attempt.exit_code in policy.on_codes):\n        return None",
        "if False:\n        return None",
    ),
    Mutation(
        "a lost host spends the budget and is refused",
        "failure",
        "    if not failed:\n        vanished",
        "    if False:\n        vanished",
    ),
    Mutation(
        "siblings of a failed node are left alone",
        "failure",
        '    draft.stop(task, "sibling-failed")\n',
        "",
    ),
    Mutation(
        "an end is judged again and again",
        "failure",
        "    draft.set_attempt(attempt.id, judged=True)\n    restart = ",
        "    restart = ",
    ),
    Mutation(
        "success of an attempt that is to be replaced settles the node",
        "failure",
        "    if node.replace or node.settled is not None or draft.ending",
        "    if node.settled is not None or draft.ending",
    ),
    Mutation(
        "a group restart keeps the incarnation",
        "failure",
        'incarnation = draft.get("incarnation") + 1',
        'incarnation = draft.get("incarnation")',
    ),
    Mutation(
        "restarted nodes skip the barrier",
        "failure",
        "barrier = _open_barrier(draft, nodes) or draft.issue_barrier()",
        'barrier = draft.get("gang_barrier")',
    ),
    Mutation(
        "a restart before the first start gets a barrier of its own",
        "failure",
        "    elif not draft.gang_started:\n"
        '        barrier = draft.get("gang_barrier")  # the gang\'s first start waits for them too\n',
        "",
    ),
    Mutation(
        "nobody waits for the siblings' agents",
        "failure",
        "    if together and failed:\n",
        "    if False:\n",
    ),
    Mutation(
        "a wait for a sibling's agent is forgotten",
        "failure",
        "            draft.wake(draft.now + draft.limits.ask_again)  # a heartbeat alone is no news\n",
        "",
    ),
    Mutation(
        "wrappers may vanish for ever",
        "failure",
        "        failed = failed or _vanished_too_often(draft, node)",
        "        _vanished_too_often(draft, node)",
    ),
    # --- finish ----------------------------------------------------------------------------------
    Mutation(
        "a failed primary does not fail the group",
        "finish",
        "if v not in (None, Outcome.SUCCEEDED)]",
        "if v not in (None, Outcome.SUCCEEDED, Outcome.FAILED)]",
    ),
    Mutation(
        "the group ends with its first primary",
        "finish",
        "    elif None in verdicts:\n        return\n",
        "    elif set(verdicts) == {None}:\n        return\n",
    ),
    Mutation(
        "with failure, auxiliaries get their delay too",
        "finish",
        "    if verdict is not Phase.SUCCEEDED:\n        _stop_everything(draft, cause)\n",
        "",
    ),
    Mutation(
        "auxiliaries are never ended",
        "finish",
        '            draft.stop(task, "primaries-ended")',
        "            pass",
    ),
    Mutation(
        "the rest of an auxiliary with a failed node is forgotten",
        "finish",
        "        if all(node.settled is not None for node in draft.nodes_of(task)):\n"
        "            continue\n        at = ",
        "        if draft.verdict(task) is not None:\n            continue\n        at = ",
    ),
    Mutation(
        "over before everything was released",
        "finish",
        "    if not all(_unreachable(draft, lease) for lease in left):",
        "    if False:",
    ),
    Mutation(
        "a host that answers is given up",
        "finish",
        "    return not draft.heard(lease.id)\n",
        "    return True\n",
    ),
    Mutation(
        "a dead dependency is waited for",
        "finish",
        "_dead_dependencies, _unprepared",
        "_unprepared",
    ),
    Mutation(
        "the next serial task starts after a failure",
        "finish",
        '    if verdict is not Outcome.SUCCEEDED:\n        _end(draft, Phase.FAILED, "task-failed"',
        '    if verdict is Outcome.LOST:\n        _end(draft, Phase.FAILED, "task-failed"',
    ),
    Mutation(
        "a deadline wakes nobody",
        "draft",
        "            self.wake(at)\n",
        "            pass\n",
    ),
    Mutation(
        "how many nodes are settled is counted once",
        "draft",
        "            settled[was.settled] -= 1\n            settled[becomes.settled] += 1\n",
        "            pass\n",
    ),
    # --- fill ------------------------------------------------------------------------------------
    Mutation(
        "a new attempt beside a live one",
        "fill",
        "    if attempt is not None and not _gives_way(draft, attempt, lease):",
        "    if attempt and not node.replace and not _gives_way(draft, attempt, lease):",
    ),
    Mutation(
        "an attempt on a lease that is lost",
        "fill",
        "or lease.state is not HELD or lease.lost:",
        "or lease.state is not HELD:",
    ),
    Mutation(
        "an attempt on a lease that was never seen",
        "fill",
        "if lease is None or lease.state is not HELD or lease.lost:",
        "if lease is None or lease.lost:",
    ),
    Mutation(
        "a back-off without an end",
        "fill",
        "        draft.wake(node.not_before)\n",
        "",
    ),
    Mutation(
        "an attempt for what is settled",
        "fill",
        "            if node.settled is None:\n                lease",
        "            if True:\n                lease",
    ),
    Mutation(
        "an attempt number is used twice",
        "fill",
        "        number=node.number + 1,\n",
        "        number=max(1, node.number),\n",
    ),
    Mutation(
        "new attempts carry the first incarnation",
        "fill",
        '        incarnation=draft.get("incarnation"),\n',
        "        incarnation=1,\n",
    ),
    Mutation(
        "an old record fills before it was told what runs",
        "fill",
        "    if lease.asked_at < draft.observed.looking_since and draft.report(lease.id) is None:",
        "    if False:",
    ),
    # --- start -----------------------------------------------------------------------------------
    Mutation(
        "no barrier",
        "start",
        "            or node.barrier not in started\n        ):",
        "        ):",
    ),
    Mutation(
        "a barrier opens for those that are only preparing",
        "start",
        "or not attempt.live or attempt.stage < READY:",
        "or not attempt.live or attempt.stage < PREPARING:",
    ),
    Mutation(
        "a barrier opens without its missing node",
        "start",
        "        if attempt is None or node.replace or not attempt.live",
        "        if attempt is None:\n            continue\n        if node.replace or not attempt.live",
    ),
    Mutation(
        "a barrier opens over a silent agent",
        "start",
        "        if not draft.heard(attempt.lease):",
        "        if False:",
    ),
    Mutation(
        "dependants do not wait",
        "start",
        "            if unmet:\n",
        "            if False:\n",
    ),
    Mutation(
        "what is settled is not stopped",
        "start",
        "        if node.settled is not None or node.replace or node.attempt != attempt.id:",
        "        if node.replace or node.attempt != attempt.id:",
    ),
    Mutation(
        "what is to be replaced is not stopped",
        "start",
        "        if node.settled is not None or node.replace or node.attempt != attempt.id:",
        "        if node.settled is not None or node.attempt != attempt.id:",
    ),
    Mutation(
        "a silent agent is forgotten at a barrier",
        "start",
        "            draft.wake(draft.now + draft.limits.ask_again)  # a heartbeat alone is no news\n",
        "",
    ),
    # --- leases ----------------------------------------------------------------------------------
    Mutation(
        "leases are never released",
        "leases",
        "        if not _needed(draft, lease, live_by_lease.get(lease.id, [])):\n",
        "        if False:\n",
    ),
    Mutation(
        "only what the record holds is released",
        "leases",
        "        if draft.issued(seen.lease):\n",
        "        if False:\n",
    ),
    Mutation(
        "what this store never issued is released",
        "leases",
        "        if draft.issued(seen.lease):\n",
        "        if True:\n",
    ),
    Mutation(
        "a release is asked for once",
        "leases",
        "        draft.wake(draft.now + draft.limits.ask_again)\n    return actions\n\n\ndef _strays",
        "        pass\n    return actions\n\n\ndef _strays",
    ),
    Mutation(
        "an acquire is asked for once",
        "leases",
        "        actions.append(make_acquire(lease.id, lease.placement))\n"
        "    if actions:\n        draft.wake(draft.now + draft.limits.ask_again)\n",
        "        if lease.asked_at == draft.now:\n"
        "            actions.append(make_acquire(lease.id, lease.placement))\n",
    ),
    Mutation(
        "capacity goes before the grace is over",
        "leases",
        "    until = (attempt.stop_at or draft.now) + grace + draft.limits.release_margin\n",
        "    until = attempt.stop_at or draft.now\n",
    ),
    Mutation(
        "a lost lease is kept",
        "leases",
        "    if lease.lost:\n        return False\n    unwanted",
        "    unwanted",
    ),
    Mutation(
        "clean at once",
        "leases",
        "        if look is None or look.blind_all or look.blind or look.leases:\n            return\n",
        "",
    ),
    # --- placing, queue, orders, depends ----------------------------------------------------------
    Mutation(
        "no turns",
        "placing",
        "draft, acquired_at=draft.now, turns=where,",
        "draft, acquired_at=draft.now, turns=(),",
    ),
    Mutation(
        "a gang that lost a part keeps the rest for ever",
        "placing",
        "        _hold(draft)\n",
        "",
    ),
    Mutation(
        "a part is held while another is refused",
        "placing",
        "    elif refused and draft.due(hold_by):",
        "    elif False:",
    ),
    Mutation(
        "no start timeout",
        "placing",
        "    elif draft.due(start_by):",
        "    elif False:",
    ),
    Mutation(
        "a planner that never answers is waited for",
        "placing",
        "    if placing.request != ZERO and draft.now < answer_by:",
        "    if placing.request != ZERO:",
    ),
    Mutation(
        "a stale plan is taken",
        "placing",
        "answer is None or answer.request != placing.request:",
        "answer is None:",
    ),
    Mutation(
        "replacements wait their turn in the queue",
        "queue",
        "priority=REPLACEMENT if started else group.spec.priority,",
        "priority=group.spec.priority,",
    ),
    Mutation(
        "assignments are sent once",
        "orders",
        "    if actions:\n        draft.wake(draft.now + draft.limits.ask_again)\n",
        "",
    ),
    Mutation(
        "a change is assigned under the old serial",
        "orders",
        "return draft.set_lease(lease.id, orders=orders, book=version, serial=draft.issue())",
        "return draft.set_lease(lease.id, orders=orders, book=version)",
    ),
    Mutation(
        "healthy is the same as started",
        "depends",
        "            here = attempt is not None and attempt.stage is RUNNING and attempt.healthy\n",
        "            here = attempt is not None and attempt.stage is RUNNING\n",
    ),
    *LEAVING,
)
"""All of them; at least five for each step of `decide`."""

"""The phase of a node and of a task, read off the record.

A node, by the first line that is true:

  settled SUCCEEDED                                  SUCCEEDED
  settled FAILED or LOST                             FAILED
  settled STOPPED                                    CANCELLED when the group is, else STOPPED
  its attempt is to end, or its group is ENDING      ENDING
  its attempt runs                                   RUNNING
  its attempt ended with success, not yet judged     SUCCEEDED
  an attempt came before                             RECOVERING
  it has no host yet                                 PENDING
  else                                               STARTING

A task, by its nodes (with `ends_with: head` and all final: by its head alone):

  all final     FAILED if any failed, SUCCEEDED if all did, CANCELLED if any was, else STOPPED
  else          RECOVERING, PENDING, STARTING, ENDING: the first that any node is; else RUNNING

The phase of a group stands in its record: `decide` says it.
"""

from __future__ import annotations

from argosy.model.group import Attempt, Group, Lease, LeaseState, Node, Outcome, Phase, Stage
from argosy.model.spec import EndsWith, TaskSpec

UP = (Phase.RUNNING, Phase.SUCCEEDED)
_UNEASY = (Phase.RECOVERING, Phase.PENDING, Phase.STARTING, Phase.ENDING)


def node_phase(group: Group, node: Node, attempt: Attempt | None, lease: Lease | None) -> Phase:
    """The phase of one node; `attempt` is its newest, `lease` the one it lives on."""
    if node.settled is not None:
        return _settled(group, node.settled)
    if group.phase is Phase.ENDING:
        return Phase.ENDING
    if attempt is not None and attempt.live:
        if attempt.goal >= Stage.ENDED:
            return Phase.ENDING
        if attempt.stage >= Stage.RUNNING:
            return Phase.RUNNING
    elif attempt is not None and attempt.outcome is Outcome.SUCCEEDED:
        return Phase.SUCCEEDED
    if node.number > 1 or (attempt is not None and not attempt.live) or node.restart_reason:
        return Phase.RECOVERING
    has_host = lease is not None and lease.state is LeaseState.HELD
    return Phase.STARTING if has_host else Phase.PENDING


def task_phase(task: TaskSpec, phases: tuple[Phase, ...]) -> Phase:
    """The phase of a task; `phases` are its nodes', in rank order."""
    if all(phase.final for phase in phases):
        counted = phases[:1] if task.ends_with is EndsWith.HEAD else phases
        if Phase.FAILED in counted:
            return Phase.FAILED
        if set(counted) <= {Phase.SUCCEEDED}:
            return Phase.SUCCEEDED
        return Phase.CANCELLED if Phase.CANCELLED in counted else Phase.STOPPED
    return next((phase for phase in _UNEASY if phase in phases), Phase.RUNNING)


def _settled(group: Group, outcome: Outcome) -> Phase:
    if outcome is Outcome.SUCCEEDED:
        return Phase.SUCCEEDED
    if outcome is Outcome.STOPPED:
        cancelled = Phase.CANCELLED in (group.phase, group.verdict)
        return Phase.CANCELLED if cancelled else Phase.STOPPED
    return Phase.FAILED

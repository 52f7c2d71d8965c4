"""The heart: one group, what was seen of it, and the time, to what is to be done.

No clock, no chance, no I/O. The order of the steps is decided here and nowhere else. The decision
is saved before its first action is tried; every action may be repeated; what an action did is seen
by a later look, and never comes back from the action itself.
"""

from __future__ import annotations

from argosy.decide import absorb, failure, fill, finish, leases, orders, placing, start
from argosy.decide.draft import Draft
from argosy.model.action import Decision, Limits
from argosy.model.group import Group
from argosy.model.observed import Observed


def decide(group: Group, observed: Observed, now: float, limits: Limits) -> Decision:
    """What to do about `group` at `now` (seconds since the epoch).

    The same input gives the same decision. `decision.group` is `group` itself when nothing changed.
    """
    draft = Draft(group, observed, now, limits)
    absorb.sightings(draft)  # what was seen moves stages forward; evidence makes hosts lost
    if not draft.final:
        failure.judge(draft)  # what an end means: success, a restart, or a failed node
        finish.judge(draft)  # whether tasks and the group are over, and how
        placing.place(draft)  # capacity for the gang, all of it or none
        fill.fill(draft)  # an attempt for every node that wants one
        start.set_goals(draft)  # how far each attempt may go
    actions = (*leases.settle(draft), *orders.assign(draft))
    return draft.decision(actions)

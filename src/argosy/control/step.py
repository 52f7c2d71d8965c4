"""One step of one group, synchronously: decide, and check what was decided."""

from __future__ import annotations

from argosy.decide import checks
from argosy.decide.decide import decide
from argosy.errors import Broken
from argosy.model.action import Decision, Limits
from argosy.model.group import Group
from argosy.model.observed import Observed


def step(group: Group, observed: Observed, now: float, limits: Limits) -> Decision:
    """The decision. Raises Broken when it breaks what must hold; nothing was saved then."""
    decision = decide(group, observed, now, limits)
    wrong = checks.check(group, decision.group)
    if wrong:
        raise Broken(
            f"group {group.spec.name!r}: {'; '.join(wrong)}",
            code="control/check-failed",
            hint="the group is left as it was saved last; `argosy doctor` says where its story is",
        )
    return decision

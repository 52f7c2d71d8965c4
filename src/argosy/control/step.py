"""One step of one group, synchronously: decide, and check what was decided."""

from __future__ import annotations

from argosy.decide import checks
from argosy.decide.decide import decide
from argosy.errors import Broken
from argosy.model.action import Decision, Limits
from argosy.model.group import Group
from argosy.model.observed import Observed


def step(group: Group, observed: Observed, now: float, limits: Limits) -> Decision:
    """The decision. Raises Broken when there is none, or it breaks what must hold."""
    try:
        decision = decide(group, observed, now, limits)
    except Exception as error:
        raise _broken(group, f"{type(error).__name__}: {error}") from error
    wrong = checks.check(group, decision.group)
    if wrong:
        raise _broken(group, "; ".join(wrong))
    return decision


def _broken(group: Group, text: str) -> Broken:
    return Broken(
        f"group {group.spec.name!r}: {text}",
        code="control/check-failed",
        hint="the group is left as it was saved last; `argosy server logs` has `check-failed`",
    )

"""One decision in a test: made, checked, and taken apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from argosy.decide.checks import check
from argosy.decide.decide import decide
from argosy.model.action import Action, Decision
from argosy.model.group import Group, Placing
from argosy.model.observed import Observed
from argosy.model.spec import TaskSpec
from argosy.testing.builders import LIMITS, NOW, Seen, a_running_group, well

A = TypeVar("A", bound=Action)
LATER = NOW + 3600.0


def running(*tasks: TaskSpec, **changes: Any) -> Group:
    """A group that runs and waits for nothing."""
    return a_running_group(*tasks, **{"placing": Placing(), **changes})


def decided(
    group: Group, seen: Seen | Observed | None = None, *, now: float = NOW, **observed: Any
) -> Decision:
    """The decision on what is seen (by default: what agrees with the record), checked."""
    seen = well(group, now=now) if seen is None else seen
    looked = seen.observed(**observed) if isinstance(seen, Seen) else replace(seen, **observed)
    decision = decide(group, looked, now, LIMITS)
    assert check(group, decision.group) == []
    return decision


def codes(decision: Decision) -> list[str]:
    """The codes of what happened."""
    return [event.code for event in decision.events]


def said(decision: Decision) -> dict[str, str]:
    """The reasons: code -> text."""
    return {reason.code: reason.text for reason in decision.reasons}


def actions(decision: Decision, kind: type[A]) -> list[A]:
    """The actions of one kind."""
    return [action for action in decision.actions if isinstance(action, kind)]

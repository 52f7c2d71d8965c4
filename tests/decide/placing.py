"""A gang on its way to capacity, as tests of placing need it."""

from __future__ import annotations

from argosy.model.group import Group
from argosy.model.observed import Look, Observed, Refusal
from argosy.testing.builders import (
    NOW,
    a_group,
    a_plan,
    a_refusal,
    a_report,
    a_spec,
    a_task,
    an_observed,
    seen_lease,
)
from tests.decide.deciding import decided

NEVER = float("inf")
TWO = (a_task("trainer", 2),)


def asked(*tasks, **changes) -> Group:
    """A group that has asked for a plan."""
    spec = a_spec(*(tasks or TWO), **changes)
    return decided(a_group(spec=spec), an_observed()).group


def acquired(*tasks, now: float = NOW, **changes) -> Group:
    """A group that has acquired what its plan says."""
    group = asked(*tasks, **changes)
    return decided(group, an_observed(answer=a_plan(group)), now=now).group


def held(group: Group, *nodes: str, reporting: bool = True, **changes) -> Observed:
    """The leases of `nodes` are up, and their agents report."""
    mine = [one for one in group.leases if str(one.node) in nodes]
    look = Look("local", NOW - 0.05, tuple(seen_lease(one, host="h1") for one in mine))
    reports = [a_report(one) for one in mine] if reporting else []
    return an_observed(looks=[look], reports=reports, **changes)


def refusals(group: Group, *nodes: str, **changes) -> list[Refusal]:
    return [a_refusal(one, **changes) for one in group.leases if str(one.node) in nodes]

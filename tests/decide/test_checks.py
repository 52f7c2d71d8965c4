"""Each check finds the one thing that it is for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from argosy.decide.checks import check
from argosy.model.group import Attempt, Group, LeaseState, Node, Outcome, Phase, Stage
from argosy.model.ids import Serial
from argosy.testing.builders import a_task
from tests.decide.deciding import running

GROUP = running(a_task("trainer", 2))
OVER = {"stage": Stage.ENDED, "goal": Stage.ENDED, "outcome": Outcome.FAILED, "ended_at": 5.0}


def attempt(group: Group, **changes: Any) -> Group:
    """The first attempt changed."""
    first: Attempt = replace(group.attempts[0], **changes)
    return replace(group, attempts=(first, *group.attempts[1:]))


def node(group: Group, **changes: Any) -> Group:
    """The first node changed."""
    first: Node = replace(group.nodes[0], **changes)
    return replace(group, nodes=(first, *group.nodes[1:]))


def second_attempt() -> Group:
    """Two attempts of one node may run."""
    twin = replace(GROUP.attempts[0], id="g1-1.1-1")
    return replace(GROUP, attempts=(twin, *GROUP.attempts))


def test_nothing_is_wrong_with_what_did_not_change() -> None:
    assert check(GROUP, GROUP) == []
    assert check(GROUP, replace(GROUP, version=11)) == []


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (GROUP, attempt(GROUP, stage=Stage.READY), "fell from RUNNING to READY"),
        (attempt(GROUP, goal=Stage.ENDED), GROUP, "the goal of trainer-0@1 fell"),
        (
            attempt(GROUP, **OVER),
            attempt(GROUP, **{**OVER, "outcome": Outcome.SUCCEEDED}),
            "had ended and changed",
        ),
        (GROUP, attempt(GROUP, outcome=Outcome.FAILED), "has an outcome and has not ended"),
        (GROUP, attempt(GROUP, stage=Stage.ENDED), "or the reverse"),
        (GROUP, second_attempt(), "more than one attempt that may run"),
        (GROUP, node(GROUP, barrier=9), "may run before its barrier opened"),
        (GROUP, replace(GROUP, incarnation=2), "an attempt of another incarnation"),
        (GROUP, replace(GROUP, leases=GROUP.leases[1:]), "a lease that the record does not hold"),
        (
            replace(GROUP, phase=Phase.FAILED),
            replace(GROUP, phase=Phase.RUNNING),
            "the group was FAILED and became RUNNING",
        ),
        (GROUP, replace(GROUP, serial=Serial(1, 1)), "a serial fell"),
        (replace(GROUP, incarnation=2), GROUP, "the incarnation fell"),
        (GROUP, replace(GROUP, phase=Phase.FAILED), "a node is not settled"),
        (replace(GROUP, restarts=(("trainer", 2),)), GROUP, "a restart budget was reset"),
        (GROUP, replace(GROUP, leases=(*GROUP.leases, GROUP.leases[0])), "stands twice"),
        (
            GROUP,
            replace(GROUP, leases=(replace(GROUP.leases[0], state=LeaseState.GONE),
                                   GROUP.leases[1])),
            "of which nothing is left stayed",
        ),
    ],
)  # fmt: skip
def test_a_broken_rule_is_named(before: Group, after: Group, words: str) -> None:
    assert any(words in line for line in check(before, after)), check(before, after)

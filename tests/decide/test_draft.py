"""What a draft keeps between two edits says the same as one that is made anew."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.decide.draft import Draft
from argosy.model.edit import edited
from argosy.model.group import Group, Outcome
from argosy.model.spec import EndsWith
from argosy.testing.builders import LIMITS, NOW, a_task, node_of, well
from tests.decide.deciding import running

TASKS = (a_task("ranks", 3), a_task("head", 2, ends_with=EndsWith.HEAD))
NODES = ("ranks-0", "ranks-1", "ranks-2", "head-0", "head-1")
EDITS = st.lists(
    st.tuples(st.sampled_from(NODES), st.sampled_from([None, *Outcome]), st.booleans()),
    max_size=12,
)


def draft_of(group: Group) -> Draft:
    return Draft(group, well(group).observed(), NOW, LIMITS)


@given(EDITS)
@settings(max_examples=200, deadline=None)
def test_verdicts_and_nodes_follow_every_edit(
    edits: list[tuple[str, Outcome | None, bool]],
) -> None:
    group = running(*TASKS)
    draft = draft_of(group)
    for node, outcome, asks in edits:
        draft.set_node(node_of(node), settled=outcome)
        if asks:
            draft.verdict(TASKS[0])
            draft.nodes_of(TASKS[1])
    anew = draft_of(edited(group, nodes=tuple(draft.nodes.values())))
    for task in TASKS:
        assert draft.verdict(task) is anew.verdict(task)
        assert draft.nodes_of(task) == anew.nodes_of(task)

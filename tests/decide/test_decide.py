"""The whole decision: pure, complete, and silent when there is nothing to do."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.decide.checks import check
from argosy.decide.decide import decide
from argosy.model.action import Acquire, Assign, Release, Replan
from argosy.model.group import Group, Outcome, Phase, Stage, Verb
from argosy.model.observed import Look, Observed, Report
from argosy.model.spec import Condition, EndsWith, OnFailure, Restart, Scope
from argosy.testing.builders import (
    LIMITS,
    NOW,
    Seen,
    a_group,
    a_plan,
    a_report,
    a_spec,
    a_task,
    an_intent,
    an_observed,
    newest,
    seen_attempt,
    seen_lease,
    well,
)
from tests.decide.deciding import LATER, actions, decided, running

NEVER = float("inf")
NODES = ("trainer-0", "trainer-1", "web-0")

policies = st.builds(
    Restart,
    on_failure=st.booleans(),
    on_codes=st.sampled_from([(), (3,)]),
    on_lost=st.booleans(),
    max=st.sampled_from([None, 0, 1, 2]),
    backoff_first=st.sampled_from([0.0, 1.0]),
    scope=st.sampled_from(list(Scope)),
)
specs = st.builds(
    lambda first, second, ends, primary, depends, failure, restarts, delay: a_spec(
        a_task("trainer", 2, restart=first, ends_with=ends,
               depends_on=(("web", depends),) if depends else ()),
        a_task("web", restart=second, primary=primary, termination_delay=delay),
        on_failure=failure,
        restarts=restarts,
    ),
    policies,
    policies,
    st.sampled_from(list(EndsWith)),
    st.booleans(),
    st.sampled_from([None, *Condition]),
    st.sampled_from(list(OnFailure)),
    st.integers(0, 2),
    st.sampled_from([0.0, 30.0]),
)  # fmt: skip
sightings = st.lists(
    st.tuples(
        st.sampled_from(NODES),
        st.sampled_from(["say", "fail", "succeed", "vanish", "gone", "absent", "silent", "unsay"]),
        st.sampled_from([stage for stage in Stage if stage < Stage.ENDED]),
        st.floats(0.1, 40.0),
    ),
    max_size=12,
)
wishes = st.sampled_from([None, None, None, *Verb])


def bent(seen: Seen, node: str, what: str, stage: Stage) -> Seen:
    """The sightings with one thing bent, where that node has anything to bend."""
    group = seen.group
    attempts = [one for one in group.attempts if str(one.node) == node]
    if not attempts or attempts[-1].lease not in seen.reports:
        return seen
    match what:
        case "say":  # no agent goes further than it was told
            return seen.saying(node, min(stage, attempts[-1].goal))
        case "fail":
            return seen.failing(node, 3)
        case "succeed":
            return seen.succeeding(node)
        case "vanish":
            return seen.ended(node, Outcome.LOST, cause="wrapper-vanished")
        case "gone":
            return seen.gone(node)
        case "absent":
            return seen.absent(node)
        case "silent":
            return seen.silent(node)
        case _:
            lease = attempts[-1].lease
            report = replace(seen.reports[lease], attempts=())
            return replace(seen, reports={**seen.reports, lease: report})


@settings(max_examples=200, deadline=None)
@given(
    specs,
    sightings,
    wishes,
    st.sampled_from([Stage.WAITING, Stage.READY, Stage.RUNNING]),
    st.booleans(),
)
def test_whatever_is_seen_a_decision_breaks_no_rule(spec, steps, wish, stage, apart) -> None:
    group = running(spec=spec, stage=stage)
    if apart:  # each node on a host of its own
        attempts = tuple(replace(one, host=f"h-{one.node}") for one in group.attempts)
        group = replace(group, attempts=attempts)
    if wish is not None:
        group = replace(group, intents=(an_intent(wish, task="trainer"),))
    now = NOW
    for node, what, seen_stage, pause in steps:
        observed = bent(well(group, now=now), node, what, seen_stage).observed()
        once, twice = (decide(group, observed, now, LIMITS) for _ in range(2))
        assert once == twice
        assert check(group, once.group) == []
        assert once.wake_at > now
        again = decide(once.group, observed, now, LIMITS)
        assert again.group is once.group, "a decision was not complete"
        assert again.events == ()
        group, now = once.group, now + pause


@given(specs, st.sampled_from(["silent", "blind"]))
def test_silence_and_blindness_change_nothing(spec, how) -> None:
    group = decided(running(spec=spec)).group
    seen = well(group)
    for node in NODES:
        seen = seen.silent(node)
    observed = seen.observed()
    if how == "blind":
        observed = replace(observed, looks={"local": Look("local", NOW - 0.1, blind_all=True)})
    decision = decide(group, observed, NOW, LIMITS)
    assert decision.group is group
    assert [one for one in decision.actions if isinstance(one, Release)] == []


def test_a_healthy_group_needs_nothing_and_only_news_can_change_that() -> None:
    group = running(a_task("trainer", 2), a_task("web"))
    decision = decided(group)
    assert decision.group is group
    assert (decision.actions, decision.events, decision.reasons) == ((), (), ())
    assert decision.wake_at == NEVER


def test_the_actions_of_a_decision_are_derived_again_after_a_crash() -> None:
    group = running(a_task("trainer", 2), intents=(an_intent(Verb.CANCEL),))
    decision = decided(group)
    assert decision.actions
    repeated = decide(decision.group, well(group).observed(), NOW, LIMITS)
    assert repeated.actions == decision.actions


def test_the_first_decision_of_all_names_the_nodes() -> None:
    group = replace(a_group(a_task("trainer", 2)), nodes=())
    assert [str(one.id) for one in decided(group).group.nodes] == ["trainer-0", "trainer-1"]


def word(group: Group, now: float) -> list[Report]:
    """Every agent says what it was told, as far as it was told."""
    return [
        a_report(
            lease,
            *(
                seen_attempt(one, max(one.stage, min(one.goal, Stage.RUNNING)), at=now)
                for one in group.attempts
                if one.lease == lease.id and one.live and lease.orders
            ),
            heard_at=now,
        )
        for lease in group.leases
    ]


def test_a_group_from_its_submission_to_its_end() -> None:
    def look(now: float) -> Observed:
        seen = tuple(seen_lease(one) for one in group.leases)
        return an_observed(looks=[Look("local", now - 0.1, seen)], reports=word(group, now))

    group = a_group(a_task("trainer", 2))
    first = decided(group)
    assert [type(action) for action in first.actions] == [Replan]

    placed = decided(first.group, an_observed(answer=a_plan(first.group)), now=NOW + 1)
    assert [type(action) for action in placed.actions] == [Acquire, Acquire]

    group = placed.group
    filled = decided(group, look(NOW + 2), now=NOW + 2)
    assert [type(action) for action in filled.actions] == [Assign, Assign]
    assert filled.group.phase is Phase.STARTING

    group = filled.group
    started = decided(group, look(NOW + 3), now=NOW + 3)
    assert {newest(started.group, n).goal for n in ("trainer-0", "trainer-1")} == {Stage.RUNNING}

    group = started.group
    runs = decided(group, look(NOW + 4), now=NOW + 4).group
    assert runs.phase is Phase.RUNNING

    seen = well(runs, now=NOW + 5).succeeding("trainer-0").succeeding("trainer-1")
    over = decided(runs, seen, now=NOW + 5)
    assert over.group.phase is Phase.ENDING
    assert [type(action) for action in over.actions] == [Release, Release]

    done = decided(over.group, an_observed(looks=[Look("local", NOW + 5.9)]), now=NOW + 6).group
    assert (done.phase, done.leases) == (Phase.SUCCEEDED, ())
    assert decided(done, an_observed(looks=[Look("local", NOW + 7)]), now=LATER).group.clean


def test_an_effect_that_was_not_seen_is_asked_for_again() -> None:
    group = running(a_task("trainer", 2), intents=(an_intent(Verb.CANCEL),))
    after = decided(group).group
    late = decided(after, well(group).observed(), now=NOW + 2.0)
    assert len(actions(late, Assign)) == 2
    assert late.wake_at == NOW + 2.0 + LIMITS.ask_again

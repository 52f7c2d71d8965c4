"""Events as lines, explanations as sentences, changes as news."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argosy.model.action import Event, Reason
from argosy.model.group import Outcome, Phase, Stage
from argosy.model.ids import NodeId
from argosy.testing.builders import NOW, a_group, a_running_group, a_task
from argosy.views.changes import changes
from argosy.views.closing import next_steps, summary
from argosy.views.explain import LAST_MOST, MENDS, explain
from argosy.views.overview import overview
from argosy.views.shapes import NodeView, Overview, TaskView
from argosy.views.timeline import timeline, tone_of


def an_event(code: str = "attempt-running", at: float = NOW, **changes: object) -> Event:
    """Something that happened to trainer-0."""
    return replace(Event(at, code, "trainer-0", "on h1"), **changes)


def test_timeline_counts_from_its_first_event() -> None:
    lines = timeline([an_event(), an_event(at=NOW + 2.5, about="trainer-1", attempt=2)])
    assert [(line.offset, line.about) for line in lines] == [
        (0.0, "trainer-0"),
        (2.5, "trainer-1@2"),
    ]


def test_equal_neighbours_are_one_line_with_a_count() -> None:
    lines = timeline([an_event(), an_event(at=NOW + 1), an_event("node-failed"), an_event()])
    assert [line.count for line in lines] == [2, 1, 1]
    assert lines[0].at == NOW


@pytest.mark.parametrize(
    ("code", "tone"),
    [
        ("node-failed", "bad"),
        ("host-lost", "bad"),
        ("attempt-unhealthy", "warn"),
        ("attempt-healthy", "good"),
        ("lease-held", "plain"),
    ],
)
def test_tone_of_an_event(code: str, tone: str) -> None:
    assert tone_of(code) == tone


def test_explanation_gives_each_known_reason_an_instruction() -> None:
    group = a_running_group(a_task("ppo trainer", 2))
    reasons = [Reason(code, "ppo-trainer-1", "text") for code in MENDS]
    told = explain(group, reasons, (), NOW)
    assert all(reason.hint for reason in told.reasons)
    backoff = next(reason for reason in told.reasons if reason.code == "back-off")
    assert "`argosy logs demo/ppo trainer/1 --tail 20`" in backoff.hint
    assert not any("{" in reason.hint for reason in told.reasons)
    suspect = next(reason for reason in told.reasons if reason.code == "agent-suspect")
    host = overview(group, (), {}, NOW).tasks[0].nodes[1].host
    assert host
    assert f"`argosy infra lost {host}`" in suspect.hint


def test_own_hint_of_a_reason_wins_and_unknown_codes_stay_without() -> None:
    reasons = [Reason("queue", "", "t", hint="mine"), Reason("new-code", "", "t")]
    told = explain(a_group(), reasons, (), NOW)
    assert [reason.hint for reason in told.reasons] == ["mine", ""]
    assert told.hints == ("mine",)


def test_explanation_shows_the_newest_events() -> None:
    events = [an_event(at=NOW + i, text=str(i)) for i in range(30)]
    told = explain(a_group(), (), events, NOW)
    assert [line.text for line in told.last] == [str(i) for i in range(30 - LAST_MOST, 30)]


def test_summary_of_a_failed_group_names_the_root_and_the_next_command() -> None:
    group = a_running_group(a_task("trainer", 2))
    failed = replace(
        group.attempts[1], outcome=Outcome.FAILED, exit_code=3, number=2, stage=Stage.ENDED
    )
    group = replace(
        group, phase=Phase.FAILED, ended_at=NOW, root=NodeId("trainer", 1),
        attempts=(group.attempts[0], failed),
    )  # fmt: skip
    view = overview(group, (), {}, NOW)
    assert summary(view) == "demo FAILED after 1 m 2 s: trainer-1 exited with 3"
    assert next_steps(view)[0].startswith("`argosy logs demo/trainer/1 --attempt 2 --tail 50`")


def test_summary_of_a_living_group_counts_what_is_up() -> None:
    view = overview(a_running_group(a_task("a", 2)), (), {}, NOW)
    assert summary(view) == "demo is RUNNING for 1 m 2 s, 2 of 2 nodes up; nothing waits"
    assert summary(view, waiting=2).endswith("; 2 reasons below")


def test_explanation_names_who_failed_and_why_the_group_goes_on() -> None:
    group = a_running_group(a_task("alice"), a_task("bob"))
    bob = replace(
        group.attempts[1], outcome=Outcome.FAILED, exit_code=3, stage=Stage.ENDED, ended_at=NOW
    )
    nodes = (group.nodes[0], replace(group.nodes[1], settled=Outcome.FAILED))
    told = explain(replace(group, attempts=(group.attempts[0], bob), nodes=nodes), (), (), NOW)
    assert told.notes == (
        "bob-0 failed (exit code 3); the group goes on because of `on_failure: wait`",
    )
    assert "nothing waits" not in told.summary
    assert told.hints[0].startswith("`on_failure: stop`")


def test_explanation_names_who_is_not_healthy_and_since_when() -> None:
    group = a_running_group(a_task("web", 2, balance=(8000,)))
    ill = replace(group.attempts[1], healthy=False)
    events = [an_event("attempt-unhealthy", NOW - 8, about="web-1")]
    told = explain(replace(group, attempts=(group.attempts[0], ill)), (), events, NOW)
    assert told.notes == ("web-1 runs and is not healthy for 8.0 s; it is out of web.demo:8000",)


def a_view(phase: str = "RUNNING", **changes: object) -> Overview:
    """A group of one node."""
    node = NodeView(node="trainer-0", phase=phase, attempt=1, host="h1")
    return Overview(
        name="demo",
        phase=phase,
        tasks=(TaskView("trainer", nodes=(replace(node, **changes),)),),
    )


def test_changes_tell_nothing_when_nothing_changed() -> None:
    assert changes(a_view(), replace(a_view(), age=5.0, now=9.0)) == ()


def test_changes_tell_phases_and_what_a_node_waits_for() -> None:
    before = a_view("PENDING")
    told = changes(before, a_view("STARTING", waits_for="rollout to be healthy"))
    assert told == ("trainer-0 STARTING: rollout to be healthy", "demo STARTING")
    assert changes(a_view("STARTING"), a_view()) == ("trainer-0 RUNNING on h1", "demo RUNNING")
    assert changes(None, a_view()) == ("demo RUNNING",)


def test_changes_tell_how_an_attempt_ended_and_what_replaces_it() -> None:
    ended = a_view("RECOVERING", outcome="failed", signal=9, text="out of memory")
    assert changes(a_view(), ended)[0] == (
        "trainer-0 RECOVERING: it was killed by SIGKILL: out of memory"
    )
    again = a_view("RECOVERING", attempt=2)
    assert changes(ended, again) == ("trainer-0@2 replaces attempt 1 (it was killed by SIGKILL)",)


def test_changes_tell_a_new_incarnation_first() -> None:
    told = changes(a_view(), replace(a_view("STARTING"), incarnation=2))
    assert told[0] == "the whole group is started anew (incarnation 2)"


def test_changes_leave_the_end_to_the_closing_line() -> None:
    after = replace(a_view("SUCCEEDED"), exit_code=0)
    assert changes(a_view(), after) == ("trainer-0 SUCCEEDED",)

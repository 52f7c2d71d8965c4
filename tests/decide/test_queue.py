"""The queue: by priority, then age; those that fit pass, but not for ever."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from argosy.decide import queue
from argosy.model.group import Phase, Placing
from argosy.model.ids import GroupId, Serial
from argosy.model.observed import Queue, Waiting
from argosy.model.spec import Execution
from argosy.testing.builders import LIMITS, NOW, a_group, a_spec, a_task
from tests.decide.deciding import running

LIMIT = LIMITS.pass_limit


def line(name: str, priority: int = 0, submitted_at: float = NOW, **changes: object) -> Waiting:
    fields = {"infras": ("local",)}
    return Waiting(GroupId(name), name, priority, submitted_at, **{**fields, **changes})


def ahead(me: Waiting, *others: Waiting, **turns: str) -> str:
    held = {"local": GroupId(turns["local"])} if turns else {}
    return queue.ahead(Queue((me, *others), held), me, ("local",), NOW, LIMIT)


def test_the_higher_priority_goes_first() -> None:
    assert ahead(line("me"), line("b", 1)) == "b is ahead"
    assert ahead(line("me", 1), line("b")) == ""


def test_of_one_priority_the_older_goes_first() -> None:
    assert ahead(line("me"), line("b", submitted_at=NOW - 1)) == "b is ahead"
    assert ahead(line("me", submitted_at=NOW - 1), line("b")) == ""


def test_one_gang_at_a_time_acquires_on_an_infra() -> None:
    assert ahead(line("me", 1000), local="b") == "group b is being placed on local"
    assert ahead(line("me"), local="me") == ""


def test_what_waits_for_another_infra_is_not_in_the_way() -> None:
    assert ahead(line("me"), line("b", 9, infras=("ssh/lab",))) == ""


def test_a_gang_that_does_not_fit_now_steps_aside() -> None:
    assert ahead(line("me"), line("b", 9, retry_at=NOW + 5)) == ""
    assert ahead(line("me"), line("b", 9, retry_at=NOW)) == "b is ahead"


def test_one_that_waits_for_a_turn_elsewhere_is_not_in_the_way() -> None:
    other = line("b", 9, infras=("local", "ssh/lab"))
    line_up = Queue((line("me"), other), {"ssh/lab": GroupId("c")})
    assert queue.ahead(line_up, line("me"), ("local",), NOW, LIMIT) == ""


def test_one_that_was_passed_for_half_an_hour_is_next() -> None:
    old = line("b", -9, retry_at=NOW + 5, passed_since=NOW - LIMIT)
    assert ahead(line("me", 1000), old) == "b has waited too long and is next"
    assert ahead(line("me", 1000), replace(old, passed_since=NOW - LIMIT + 1)) == ""


def test_one_that_is_next_goes_past_every_priority() -> None:
    me = line("me", -9, passed_since=NOW - LIMIT)
    assert ahead(me, line("b", 1000)) == ""


def test_of_two_that_are_next_the_first_in_the_queue_goes() -> None:
    late = {"passed_since": NOW - LIMIT, "retry_at": NOW + 9}
    assert ahead(line("me", **late), line("b", 1, **late)) == "b has waited too long and is next"
    assert ahead(line("me", 1, **late), line("b", **late)) == ""


def test_replacements_come_before_all_gangs_even_one_that_is_next() -> None:
    me = line("me", queue.REPLACEMENT)
    assert ahead(me, line("b", 1000, passed_since=NOW - LIMIT)) == ""


def test_a_started_group_waits_as_a_replacement() -> None:
    group = running(placing=Placing(request=Serial(1, 5)))
    waiting = queue.waiting_of(group, {})
    assert waiting is not None
    assert waiting.priority == queue.REPLACEMENT


def test_the_next_task_of_a_serial_group_waits_as_a_gang() -> None:
    spec = a_spec(a_task("a"), a_task("b"), execution=Execution.SERIAL, priority=3)
    group = running(spec=spec, gang=1, gang_barrier=0, placing=Placing(request=Serial(1, 5)))
    waiting = queue.waiting_of(group, {})
    assert waiting is not None
    assert waiting.priority == 3


def test_who_needs_nothing_or_is_being_placed_or_over_is_not_in_the_queue() -> None:
    waits = a_group(placing=Placing(request=Serial(1, 5)))
    assert queue.waiting_of(waits, {}) is not None
    assert queue.waiting_of(a_group(), {}) is None
    assert queue.waiting_of(replace(waits, placing=Placing(acquired_at=NOW)), {}) is None
    assert queue.waiting_of(replace(waits, phase=Phase.FAILED), {}) is None


def test_what_was_freed_makes_a_waiting_gang_try_at_once() -> None:
    placing = Placing(tries=1, failed_at=NOW, retry_at=NOW + 30, infras=("local",))
    group = a_group(placing=placing)
    before, after = (queue.waiting_of(group, {"local": at}) for at in (NOW - 1, NOW + 1))
    assert before is not None
    assert after is not None
    assert (before.retry_at, after.retry_at) == (NOW + 30, 0.0)


def test_places_count_from_one() -> None:
    lines = [line("c", 0), line("a", 2), line("b", 1)]
    assert [queue.place(Queue(tuple(lines)), one) for one in lines] == [3, 1, 2]


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 3), st.integers(0, 40),
                          st.booleans()), min_size=1, max_size=6))  # fmt: skip
def test_somebody_may_always_go_when_nobody_has_the_turn(
    drawn: list[tuple[int, int, int, bool]],
) -> None:
    lines = [
        line(f"g{i}", priority, NOW - age, passed_since=NOW - 60.0 * passed if passed else 0.0,
             retry_at=0.0 if ready else NOW + 5)
        for i, (priority, age, passed, ready) in enumerate(drawn)
    ]  # fmt: skip
    everybody = Queue(tuple(lines))
    assert any(not queue.ahead(everybody, me, ("local",), NOW, LIMIT) for me in lines)

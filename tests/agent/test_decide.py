"""`next_step`: stories of one attempt, and what must hold over any course of it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.agent.decide import (
    FENCED,
    End,
    Order,
    Seen,
    Situation,
    Stage,
    Step,
    leaving,
    next_step,
    outcome_of,
)
from argosy.agent.records import replace

RUNNING = Seen(running=True)


def at(stage: Stage, goal: Stage, **more: object) -> Situation:
    return replace(Situation(stage, goal), **more)


def test_way_to_running() -> None:
    now = at(Stage.WAITING, Stage.READY, setup_needed=True)
    assert next_step(now) == Order(Step.REACH, Stage.PREPARING)
    now = replace(now, stage=Stage.PREPARING)
    assert next_step(now).step is Step.PREPARE
    assert next_step(replace(now, preparing=True)).step is Step.WAIT
    now = replace(now, prepared=True)
    assert next_step(now).step is Step.SETUP
    assert next_step(replace(now, setup=RUNNING)).step is Step.WAIT
    now = replace(now, setup=Seen(running=True, exited=True, over=True, code=0))
    assert next_step(now) == Order(Step.REACH, Stage.READY)
    now = replace(now, stage=Stage.READY)
    assert next_step(now).step is Step.WAIT
    now = replace(now, goal=Stage.RUNNING)
    assert next_step(now).step is Step.START
    assert next_step(replace(now, run=Seen())).step is Step.WAIT
    now = replace(now, run=RUNNING)
    assert next_step(now) == Order(Step.REACH, Stage.RUNNING)
    assert next_step(replace(now, stage=Stage.RUNNING)).step is Step.WAIT


def test_missing_run_succeeds_at_once() -> None:
    now = at(Stage.READY, Stage.RUNNING, prepared=True, has_run=False)
    assert next_step(now) == Order(Step.REACH, Stage.RUNNING)
    now = replace(now, stage=Stage.RUNNING)
    assert next_step(now) == Order(Step.END, end=End("succeeded", "exit", exit_code=0))


def test_after_the_fence_all_ends_at_once_and_as_lost() -> None:
    """Whatever stage it had, and whatever it ended with."""
    now = at(Stage.RUNNING, Stage.RUNNING, prepared=True, run=RUNNING, fenced=True)
    assert next_step(now).step is Step.STOP_RUN
    assert next_step(replace(now, run=replace(RUNNING, stopping=True))).step is Step.WAIT
    lost = Order(Step.END, end=FENCED)
    for end in ({"signal": 9}, {"code": 0}, {"stopped": True, "signal": 15}, {}):
        assert next_step(replace(now, run=Seen(running=True, over=True, **end))) == lost
    for stage in (Stage.WAITING, Stage.READY):
        assert next_step(at(stage, Stage.RUNNING, fenced=True)) == lost
    now = at(Stage.PREPARING, Stage.READY, preparing=True, fenced=True)
    assert next_step(now).step is Step.DROP_PREPARE
    now = at(Stage.PREPARING, Stage.READY, prepared=True, setup=RUNNING, fenced=True)
    assert next_step(now).step is Step.STOP_SETUP


def test_what_its_host_stopped_is_lost_and_what_ended_by_itself_is_not() -> None:
    assert leaving(End("stopped", "exit", "", 7)) == End(
        "lost", "host-leaving", "its host goes away", 7
    )
    assert leaving(End("stopped", "signal", "", None, 15)).signal == 15
    assert leaving(End("stopped", "never-started")).outcome == "lost"
    for end in (End("succeeded", "exit", "", 0), End("failed", "oom", "", None, 9), FENCED):
        assert leaving(end) is end


def test_end_before_anything_ran_is_never_started() -> None:
    ended = Order(Step.END, end=End("stopped", "never-started"))
    assert next_step(at(Stage.WAITING, Stage.ENDED)) == ended
    assert next_step(at(Stage.READY, Stage.ENDED, prepared=True)) == ended
    assert next_step(at(Stage.PREPARING, Stage.ENDED, preparing=True)).step is Step.DROP_PREPARE


def test_exit_decides_unless_our_signal_came_first() -> None:
    over = Seen(running=True, exited=True, over=True)
    assert outcome_of(replace(over, code=0)).outcome == "succeeded"
    assert outcome_of(replace(over, code=3)) == End("failed", "exit", "", 3)
    assert outcome_of(replace(over, signal=11)) == End("failed", "signal", "", None, 11)
    assert outcome_of(replace(over, signal=9, oom=True)).cause == "oom"
    assert outcome_of(replace(over, code=0, stopped=True)).outcome == "stopped"
    assert outcome_of(replace(over, signal=15, stopped=True)).outcome == "stopped"
    assert outcome_of(replace(over, exited=False)).outcome == "lost"
    assert outcome_of(Seen(over=True, never=True)).outcome == "stopped"
    assert outcome_of(replace(over, refused="EAGAIN")) == End("lost", "cannot-start", "EAGAIN")


def test_what_setup_left_behind_ends_with_the_attempt() -> None:
    left = Seen(running=True, exited=True, over=False, code=0)
    now = at(Stage.RUNNING, Stage.RUNNING, prepared=True, setup=left, run=RUNNING)
    assert next_step(now).step is Step.WAIT
    now = replace(now, run=Seen(running=True, exited=True, over=True, code=0))
    assert next_step(now).step is Step.STOP_SETUP
    now = replace(now, setup=replace(left, stopping=True))
    assert next_step(now).step is Step.WAIT
    now = replace(now, setup=replace(left, over=True, stopping=True))
    assert next_step(now).end == End("succeeded", "exit", exit_code=0)


def test_guests_are_swept_before_the_end() -> None:
    over = Seen(running=True, exited=True, over=True, code=0)
    now = at(Stage.RUNNING, Stage.RUNNING, prepared=True, run=over, guests=1)
    assert next_step(now).step is Step.SWEEP


SEEN = st.builds(
    Seen,
    running=st.booleans(),
    exited=st.booleans(),
    over=st.booleans(),
    stopping=st.booleans(),
    never=st.booleans(),
    stopped=st.booleans(),
    code=st.none() | st.sampled_from([0, 1]),
    signal=st.none() | st.just(9),
)
SITUATION = st.builds(
    Situation,
    stage=st.sampled_from(Stage),
    goal=st.sampled_from(Stage),
    preparing=st.booleans(),
    prepared=st.booleans(),
    problem=st.sampled_from(["", "files-failed"]),
    setup_needed=st.booleans(),
    setup=st.none() | SEEN,
    has_run=st.booleans(),
    run=st.none() | SEEN,
    guests=st.integers(0, 1),
    rebooted=st.booleans(),
    fenced=st.booleans(),
)


@given(SITUATION)
@settings(max_examples=500)
def test_no_step_is_ever_wrong(now: Situation) -> None:
    order = next_step(now)
    if now.stage is Stage.ENDED:
        assert order.step is Step.WAIT
    if order.step is Step.REACH:
        assert order.stage is not None
        assert order.stage > now.stage
    if order.step is Step.START:
        assert now.goal == Stage.RUNNING
        assert now.prepared
        assert now.run is None
        assert now.stage >= Stage.READY
    if order.step is Step.END and not now.rebooted:
        assert now.run is None or now.run.over
        assert now.setup is None or now.setup.over
        assert not now.guests
        assert not now.preparing


@given(SITUATION)
@settings(max_examples=300)
def test_ordered_end_comes_in_a_bounded_number_of_steps(now: Situation) -> None:
    """Whatever was seen before: with the goal ENDED, and a world that obeys, it ends."""
    now = replace(now, goal=Stage.ENDED)
    for _ in range(20):
        order = next_step(now)
        if order.step is Step.END or now.stage is Stage.ENDED:
            return
        now = obey(now, order)
    raise AssertionError(f"does not end: {now}")


def obey(now: Situation, order: Order) -> Situation:
    """What a world without faults makes of a step."""
    over = {"exited": True, "over": True, "running": True, "stopped": True, "signal": 15}
    if order.step is Step.REACH:
        return replace(now, stage=order.stage)
    if order.step is Step.DROP_PREPARE:
        return replace(now, preparing=False)
    if order.step is Step.SWEEP:
        return replace(now, guests=0)
    if now.run is not None and not now.run.over:
        return replace(now, run=replace(now.run, **over))
    if now.setup is not None and not now.setup.over:
        return replace(now, setup=replace(now.setup, over=True, running=True))
    return now

"""What to do next with one attempt: a pure function of what is recorded, wanted and seen.

`next_step(seen)` gives one step; the caller carries it out, looks again and asks again, until the
step is WAIT. Every step may be repeated after a crash. Stages only grow.
"""

from __future__ import annotations

import enum
from typing import Optional

from .records import dataclass


class Stage(enum.IntEnum):
    """How far an attempt has come; the numbers are the protocol's."""

    WAITING = 0
    PREPARING = 10
    READY = 20
    RUNNING = 30
    STOPPING = 40
    ENDED = 50


class Step(enum.Enum):
    """The orders that `next_step` gives."""

    WAIT = "wait"
    PREPARE = "prepare"
    """Network, folders, files (begins; its end is seen later)."""
    DROP_PREPARE = "drop-prepare"
    """Give up what is being prepared."""
    SETUP = "setup"
    START = "start"
    REACH = "reach"
    """Record that a stage is reached."""
    STOP_SETUP = "stop-setup"
    STOP_RUN = "stop-run"
    SWEEP = "sweep"
    """End what others (`exec`) started in the attempt."""
    END = "end"


@dataclass(frozen=True)
class Seen:
    """What is seen of one execution (of `setup` or of `run`)."""

    running: bool = False
    """It has started (or may have: the claim is there)."""
    exited: bool = False
    """Its program has ended; descendants may be left."""
    over: bool = False
    """No descendant is left."""
    stopping: bool = False
    """A stop was ordered, with the present grace."""
    never: bool = False
    stopped: bool = False
    """Our signal came before the exit."""
    code: Optional[int] = None
    signal: Optional[int] = None
    refused: str = ""
    """Why it could not even be started."""
    oom: bool = False
    memory: str = ""
    """With `oom`: what the limit was, in words."""


@dataclass(frozen=True)
class Situation:
    """One attempt, as recorded, wanted and seen."""

    stage: Stage
    goal: Stage
    preparing: bool = False
    prepared: bool = False
    problem: str = ""
    """Cause why the preparation failed: files-failed, network-failed."""
    problem_text: str = ""
    setup_needed: bool = False
    setup: Optional[Seen] = None
    has_run: bool = True
    run: Optional[Seen] = None
    guests: int = 0
    """Commands of `exec` that live."""
    rebooted: bool = False
    """It was recorded before this start of the machine."""
    fenced: bool = False
    """The fence of the host has run out."""


@dataclass(frozen=True)
class End:
    """How an attempt ended, in the words of the protocol."""

    outcome: str
    cause: str
    text: str = ""
    exit_code: Optional[int] = None
    signal: Optional[int] = None


@dataclass(frozen=True)
class Order:
    """One step; `stage` with REACH, `end` with END."""

    step: Step
    stage: Optional[Stage] = None
    end: Optional[End] = None


WAIT = Order(Step.WAIT)
NEVER_STARTED = End("stopped", "never-started")
FENCED = End("lost", "fenced", "the fence of its host ran out: no server was heard for so long")


def next_step(at: Situation) -> Order:
    """The next thing to do."""
    if at.stage is Stage.ENDED:
        return WAIT
    if at.rebooted:
        return _after_reboot(at)
    if at.fenced:
        return _after_fence(at)
    if at.run is not None:
        return _with_run(at, at.run)
    if at.setup is not None and not _setup_done(at.setup):
        return _with_setup(at, at.setup)
    if at.goal >= Stage.STOPPING:
        return _leave(at, NEVER_STARTED)
    if at.problem:
        return _leave(at, End("failed", at.problem, at.problem_text))
    return _forward(at)


def _setup_done(setup: Seen) -> bool:
    """Whether `setup` succeeded; what it left in the background lives as long as the attempt."""
    return setup.exited and setup.code == 0 and not setup.stopped


def _after_reboot(at: Situation) -> Order:
    """The machine was started anew: nothing of it runs; a status that was written still counts."""
    if at.run is not None and at.run.exited:
        return Order(Step.END, end=outcome_of(at.run))
    return Order(Step.END, end=End("lost", "host-restarted", "the machine was restarted"))


def _after_fence(at: Situation) -> Order:
    """Whatever it did, it ends at once, and as lost: the server has given it up, or soon does."""
    if at.run is not None and not at.run.over:
        return WAIT if at.run.stopping else Order(Step.STOP_RUN)
    return _leave(at, FENCED)


def _with_run(at: Situation, run: Seen) -> Order:
    if run.running and at.stage < Stage.RUNNING:
        return Order(Step.REACH, Stage.RUNNING)
    if run.over:
        return _leave(at, outcome_of(run))
    if at.goal >= Stage.STOPPING and not run.stopping:
        return Order(Step.STOP_RUN)
    if (run.exited or run.stopping) and at.stage < Stage.STOPPING and run.running:
        return Order(Step.REACH, Stage.STOPPING)
    return WAIT


def _with_setup(at: Situation, setup: Seen) -> Order:
    """`setup` runs, or has failed."""
    ending = at.goal >= Stage.STOPPING
    if setup.over:
        return _leave(
            at, NEVER_STARTED if setup.never or (ending and setup.stopped) else _failed(setup)
        )
    if (ending or setup.exited) and not setup.stopping:
        return Order(Step.STOP_SETUP)
    return WAIT


def _forward(at: Situation) -> Order:
    """On the way to its goal, with nothing running yet."""
    if at.stage < Stage.PREPARING:
        return Order(Step.REACH, Stage.PREPARING)
    if not at.prepared:
        return WAIT if at.preparing else Order(Step.PREPARE)
    if at.setup_needed and at.setup is None:
        return Order(Step.SETUP)
    if at.stage < Stage.READY:
        return Order(Step.REACH, Stage.READY)
    if at.goal < Stage.RUNNING:
        return WAIT
    if at.has_run:
        return Order(Step.START)
    if at.stage < Stage.RUNNING:
        return Order(Step.REACH, Stage.RUNNING)
    return _leave(at, End("succeeded", "exit", exit_code=0))


def _leave(at: Situation, end: End) -> Order:
    """End it, once nothing of it is left."""
    if at.preparing:
        return Order(Step.DROP_PREPARE)
    if at.setup is not None and not at.setup.over:
        return WAIT if at.setup.stopping else Order(Step.STOP_SETUP)
    if at.guests:
        return Order(Step.SWEEP)
    return Order(Step.END, end=end)


def outcome_of(run: Seen) -> End:
    """How `run` ended: STOPPED only if our signal came before the exit, else the exit decides."""
    if run.never:
        return NEVER_STARTED
    if run.refused and run.code is None:
        return End("lost", "cannot-start", run.refused)
    if run.stopped:
        return End("stopped", "signal" if run.signal else "exit", "", run.code, run.signal)
    if run.code is None and run.signal is None:
        return End("lost", "wrapper-vanished", "its exit status can't be known")
    if run.code == 0:
        return End("succeeded", "exit", exit_code=0)
    if run.refused:
        return End("failed", "cannot-start", run.refused, run.code)
    if run.oom:
        return End("failed", "oom", "killed for want of memory" + run.memory, run.code, run.signal)
    if run.signal is not None:
        return End("failed", "signal", "", None, run.signal)
    return End("failed", "exit", "", run.code)


def leaving(end: End) -> End:
    """How an attempt ended that nobody but its host, which goes away, wanted to end."""
    if end.outcome != "stopped":
        return end
    return End("lost", "host-leaving", "its host goes away", end.exit_code, end.signal)


def _failed(setup: Seen) -> End:
    end = outcome_of(setup)
    if end.outcome != "failed":
        return end
    return End("failed", "setup-failed", end.text, end.exit_code, end.signal)

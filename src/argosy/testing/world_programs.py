"""What programs of a simulated world do: how long they run, how they end, how they mind SIGTERM."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from argosy.model.group import Order, Outcome, Stage
from argosy.model.ids import ZERO, AttemptId, GroupId, LeaseId, NodeId, Serial, group_of
from argosy.model.observed import SeenAttempt

if TYPE_CHECKING:
    from argosy.testing.world import World

FOREVER = float("inf")
IGNORES = -1.0  # a program that only SIGKILL ends
TERMINATED = 143  # the exit code of a program that ends because of SIGTERM


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What one attempt does; seconds."""

    prepare: float = 0.5  # code, mounts, setup
    setup_fails: bool = False
    run_for: float = FOREVER
    exit_code: int = 0
    term_after: float = 0.2  # from SIGTERM to its exit; IGNORES: it never minds
    term_code: int = TERMINATED
    kill_after: float = 0.0  # from SIGKILL to its end: a process may hang in the kernel
    healthy_after: float = 1.0
    flap_every: float = 0.0  # its probe turns every so often; 0: it is steady


class Program:
    """A process tree under its wrapper."""

    __slots__ = (
        "attempt",
        "behaviour",
        "ends_at",
        "group",
        "healthy",
        "incarnation",
        "lease",
        "node",
        "number",
        "signalled",
        "started_at",
        "wrapper",
    )

    def __init__(
        self,
        attempt: AttemptId,
        node: NodeId,
        *,
        group: GroupId,
        lease: LeaseId,
        number: int,
        incarnation: int,
        behaviour: Behaviour,
        started_at: float,
    ) -> None:
        self.attempt, self.node, self.group, self.lease = attempt, node, group, lease
        self.number, self.incarnation, self.behaviour = number, incarnation, behaviour
        self.started_at = started_at
        self.ends_at = started_at + behaviour.run_for  # active time
        self.signalled = False
        self.healthy = False
        self.wrapper = True


class Kept:
    """What the journal knows of one attempt."""

    __slots__ = (
        "address",
        "at",
        "at_stage",
        "behaviour",
        "cause",
        "code",
        "goal",
        "healthy",
        "id",
        "incarnation",
        "lease",
        "node",
        "number",
        "outcome",
        "signal",
        "stage",
        "stop_due",
        "told",
    )

    def __init__(self, order: Order, lease: LeaseId, behaviour: Behaviour) -> None:
        self.id: AttemptId = order.attempt
        self.node: NodeId = order.node
        self.number, self.incarnation, self.goal = order.number, order.incarnation, order.goal
        self.lease, self.behaviour = lease, behaviour
        self.stage = Stage.WAITING
        self.outcome: Outcome | None = None
        self.code: int | None = None
        self.signal: int | None = None
        self.cause = self.address = ""
        self.healthy = False
        self.at = 0.0  # by the agent's clock, when it came to `at_stage`
        self.at_stage: Stage | None = None
        self.stop_due = 0.0  # active time of SIGKILL; 0: no signal was sent
        self.told = False  # its end was reported at least once

    def seen(self) -> SeenAttempt:
        """As the agent reports it."""
        return SeenAttempt(
            self.id,
            self.node,
            self.number,
            self.incarnation,
            self.stage,
            self.outcome,
            self.code,
            self.signal,
            self.cause,
            "",
            self.address,
            self.healthy,
            self.at,
        )


class Shelf:
    """What the journal knows of one lease."""

    __slots__ = ("attempts", "listed", "releasing", "serial")

    def __init__(self) -> None:
        self.serial: Serial = ZERO
        self.attempts: dict[AttemptId, Kept] = {}
        self.listed: frozenset[AttemptId] = frozenset()  # by the newest assignment
        self.releasing = False


class Behaviours:
    """Draws what each attempt does; a story may say it instead."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told: dict[tuple[str, str, int], Behaviour] = {}  # (group, node, number): by a story
        self.usual: dict[tuple[str, str], Behaviour] = {}  # (group, task): when nothing else is
        self.looping: dict[tuple[str, str], bool] = {}  # (group, task): fails again and again
        self.fail_chance = 0.18
        self.setup_chance = 0.04

    def of(self, group: str, node: NodeId, number: int, *, endless: bool) -> Behaviour:
        """What attempt `number` on that node does; `endless`: a service that serves for ever."""
        told = self.told.get((group, str(node), number))
        if told is not None:
            return told
        usual = self.usual.get((group, node.task))
        if usual is not None:
            return usual
        looping = self.looping.setdefault((group, node.task), self.world.chance(0.08))
        chosen = self.drawn(endless)
        if looping and not self.world.quiet:
            chosen = replace(chosen, setup_fails=False, run_for=3.0, exit_code=1)
        return chosen

    def drawn(self, endless: bool) -> Behaviour:
        """A behaviour by chance; in the liveness phase all programs behave."""
        world, rng = self.world, self.world.rng
        if world.calm:
            return Behaviour(run_for=FOREVER if endless else 20.0)
        run_for = FOREVER if endless else rng.uniform(5.0, 120.0)
        if world.quiet:
            return Behaviour(run_for=min(run_for, 20.0) if not endless else run_for)
        chosen = Behaviour(
            prepare=rng.uniform(0.1, 4.0) if rng.random() < 0.9 else rng.uniform(10.0, 50.0),
            setup_fails=rng.random() < self.setup_chance,
            run_for=run_for,
            term_after=rng.choice((0.05, 0.5, 3.0, IGNORES)),
            term_code=rng.choice((0, 1, TERMINATED, TERMINATED)),
            kill_after=rng.uniform(15.0, 50.0) if rng.random() < 0.04 else 0.0,
            healthy_after=rng.uniform(0.2, 6.0),
        )
        if rng.random() < self.fail_chance:
            chosen = replace(
                chosen, run_for=rng.uniform(0.5, 60.0), exit_code=rng.choice((1, 1, 2, 137))
            )
        elif rng.random() < 0.04:
            chosen = replace(chosen, run_for=FOREVER)  # hangs until the liveness phase
        if rng.random() < 0.1:
            chosen = replace(chosen, flap_every=rng.uniform(2.0, 8.0))
        return chosen

    def tamed(self, kept: Kept) -> Behaviour:
        """What an attempt does that was prepared before the liveness phase and starts in it."""
        told = kept.behaviour
        if self.world.calm:
            return told  # a story says itself what its programs do
        if told.run_for == FOREVER and not self.world.store.endless(
            group_of(kept.lease), kept.node
        ):
            told = replace(told, run_for=20.0)
        return replace(told, exit_code=0, flap_every=0.0)

    def calm_down(self) -> None:
        """Whatever runs, and is no service, ends with success within 30 s."""
        world = self.world
        for host in world.hosts() if not world.calm else ():
            for program in host.programs.values():
                if not world.store.endless(program.group, program.node):
                    ends = world.active + world.rng.uniform(1.0, 30.0)
                    if program.ends_at > ends:
                        program.ends_at = ends
                        program.behaviour = replace(program.behaviour, exit_code=0)
                        world.after(ends - world.active, host.exit_due, program)
                program.behaviour = replace(program.behaviour, flap_every=0.0)
                if not program.healthy:
                    world.after(1.0, host.probe, program)

"""A simulated host: an agent with a journal on disk, wrappers, programs, two halves of a link.

It behaves as docs/agent-protocol.md says: serials per lease, claims, re-adoption, ENDED only when
nothing is left, silence changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from argosy.model.action import Assign
from argosy.model.group import Order, Outcome, Stage
from argosy.model.ids import ZERO, AttemptId, LeaseId, Serial, group_of
from argosy.model.observed import SeenAttempt
from argosy.testing.world_programs import IGNORES, Kept, Program, Shelf

if TYPE_CHECKING:
    from argosy.testing.world import World
    from argosy.testing.world_infra import SimInfra


class Host:
    """One machine with our agent on it."""

    def __init__(
        self, world: World, infra: SimInfra, name: str, cpus: float, memory: float
    ) -> None:
        self.world, self.infra, self.name = world, infra, name
        self.cpus, self.memory = cpus, memory
        self.alive = True
        self.confirmed = True  # the infra says so when it dies
        self.frozen = False
        self.boot = 1
        self.agent_up = True
        self.cut_up = False  # reports do not arrive
        self.cut_down = False  # assignments do not arrive
        self.quiet_since = 0.0  # clock; since when the server cannot hear it; 0: it can
        self.back_at = 0.0  # clock; when the server could hear it again
        self.shelves: dict[LeaseId, Shelf] = {}
        self.released: dict[LeaseId, Serial] = {}  # in the journal: no older serial counts again
        self.claims: set[AttemptId] = set()
        self.ended: dict[AttemptId, Kept] = {}  # on disk: what ended is never run again
        self.statuses: dict[AttemptId, tuple[int | None, int | None, bool]] = {}
        self.programs: dict[AttemptId, Program] = {}
        self.deferred: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.epoch = 0  # of the agent process: its timers die with it
        self.addresses = 0
        self.correcting = False  # a full report will follow one that came late
        self.arrives = 0.0  # active time at which the newest report reaches the server

    # --- who can act -----------------------------------------------------------------------------

    @property
    def acts(self) -> bool:
        """The agent can do something now."""
        return self.alive and self.agent_up and not self.frozen

    def heard(self) -> bool:
        """The server gets what the agent sends."""
        return self.acts and not self.cut_up

    def hearing(self) -> None:
        """Note when the server ceases to hear it, or hears it again."""
        if self.heard():
            if self.quiet_since:
                self.quiet_since, self.back_at = 0.0, self.world.clock()
                self.world.after(self.world.delay(0.1, 2.0), self.report_all)
        elif not self.quiet_since:
            self.quiet_since = self.world.clock()

    def timer(self, seconds: float, fn: Callable[..., None], *args: Any) -> None:
        """A timer of the agent: it dies with the agent, and waits while the host is frozen."""
        self.world.after(seconds, self.timer_due, self.epoch, fn, args)

    def timer_due(self, epoch: int, fn: Callable[..., None], args: tuple[Any, ...]) -> None:
        """A timer of this life of the agent: not of a dead one, later of a frozen one."""
        if not self.alive or epoch != self.epoch:
            return
        if self.frozen:
            self.deferred.append((self.timer_due, (epoch, fn, args)))
        else:
            fn(*args)

    def say(self, text: str, *about: Any) -> None:
        """One line of the story."""
        self.world.say(self.name, text, *about)

    # --- assignments -----------------------------------------------------------------------------

    def take(self, assign: Assign) -> None:
        """An assignment arrived."""
        if not self.acts:
            return
        shelf = self.shelves.get(assign.lease)
        last = shelf.serial if shelf else self.released.get(assign.lease)
        if (last is not None and assign.serial <= last) or (shelf and shelf.releasing):
            if last is not None and assign.serial < last:
                self.world.strike("older-assignment")
            if shelf is None and last is not None:
                self.send(assign.lease, last, (), prompt=True)
            return
        if shelf is None:  # also an empty assignment is one
            shelf = self.shelves[assign.lease] = Shelf()
        shelf.serial = assign.serial
        shelf.listed = frozenset(order.attempt for order in assign.orders)
        for order in assign.orders:
            self.take_order(shelf, order, assign.lease)
        for kept in list(shelf.attempts.values()):
            if kept.id not in shelf.listed:
                kept.goal = Stage.ENDED
            self.drive(kept)
        self.report(assign.lease)

    def take_order(self, shelf: Shelf, order: Order, lease: LeaseId) -> None:
        """One order of an assignment: a new attempt begins, the goal of a known one may grow."""
        kept = shelf.attempts.get(order.attempt)
        if kept is None and order.attempt in self.ended:
            kept = shelf.attempts[order.attempt] = self.ended[order.attempt]
        if kept is None:
            group = group_of(lease)
            behaviour = self.world.behaviours.of(
                self.world.story.name(group),
                order.node,
                order.number,
                endless=self.world.store.endless(group, order.node),
            )
            kept = shelf.attempts[order.attempt] = Kept(order, lease, behaviour)
        kept.goal = max(kept.goal, order.goal)

    def drive(self, kept: Kept) -> None:
        """Bring an attempt nearer to its goal."""
        if kept.stage >= Stage.ENDED:
            return
        if kept.goal >= Stage.STOPPING:
            self.stop(kept)
        elif kept.stage == Stage.WAITING:
            kept.stage = Stage.PREPARING
            self.timer(kept.behaviour.prepare, self.prepared, kept)
        elif kept.stage == Stage.READY and kept.goal >= Stage.RUNNING:
            self.start(kept)

    def prepared(self, kept: Kept) -> None:
        """Preparing is over: READY with an address, or a failed `setup`."""
        if kept.stage != Stage.PREPARING:
            return
        if kept.behaviour.setup_fails and not self.world.quiet:
            self.world.strike("setup-fails")
            self.end(kept, Outcome.FAILED, code=1, cause="setup-failed")
            return
        self.addresses += 1
        kept.address = f"{self.name}:{self.addresses}"
        kept.stage = Stage.READY
        self.world.truth.ready(kept.id)
        self.drive(kept)
        self.report(kept.lease)

    def start(self, kept: Kept) -> None:
        """Claim the attempt, then execute it."""
        kept.stage = Stage.RUNNING
        if kept.id in self.claims:
            self.timer(0.01, self.notice, kept.lease, kept.id)
            return
        self.claims.add(kept.id)
        if self.world.quiet:
            kept.behaviour = self.world.behaviours.tamed(kept)
        program = Program(
            kept.id,
            kept.node,
            group=group_of(kept.lease),
            lease=kept.lease,
            number=kept.number,
            incarnation=kept.incarnation,
            behaviour=kept.behaviour,
            started_at=self.world.active,
        )
        self.programs[kept.id] = program
        self.say("{} runs", kept.id)
        self.world.truth.started(program)
        if program.ends_at < float("inf"):
            self.world.after(kept.behaviour.run_for, self.exit_due, program)
        self.world.after(kept.behaviour.healthy_after, self.probe, program)

    def stop(self, kept: Kept) -> None:
        """SIGTERM, grace, SIGKILL; before it ran: it never will."""
        if kept.stage < Stage.RUNNING:
            self.end(kept, Outcome.STOPPED, cause="never-started")
            return
        program = self.programs.get(kept.id)
        if kept.stop_due or program is None:
            return
        grace = self.world.store.grace(group_of(kept.lease), kept.node)
        kept.stop_due = self.world.active + grace
        kept.stage = Stage.STOPPING
        program.signalled = True
        self.say("SIGTERM to {}", kept.id)
        after = program.behaviour.term_after
        if after == IGNORES:
            self.world.strike("ignores-sigterm")
        else:
            self.world.after(after, self.term_exit, program)
        self.timer(grace, self.kill_due, kept)

    def kill_due(self, kept: Kept) -> None:
        """The grace is over."""
        program = self.programs.get(kept.id)
        if program is not None:
            self.world.after(program.behaviour.kill_after, self.killed, program)

    def killed(self, program: Program) -> None:
        """SIGKILL took effect."""
        if self.programs.get(program.attempt) is program:
            self.gone(program, None, 9)

    # --- programs --------------------------------------------------------------------------------

    def exit_due(self, program: Program) -> None:
        """The program comes to its own end."""
        if self.programs.get(program.attempt) is not program:
            return
        if self.frozen:
            self.deferred.append((self.exit_due, (program,)))
        elif self.world.active >= program.ends_at - 1e-6:
            code = program.behaviour.exit_code
            if code:
                self.world.strike("program-fails")
            self.gone(program, code, None)

    def term_exit(self, program: Program) -> None:
        """The program ends because it was asked to."""
        if self.programs.get(program.attempt) is not program:
            return
        if self.frozen:
            self.deferred.append((self.term_exit, (program,)))
        else:
            self.gone(program, program.behaviour.term_code, None)

    def gone(self, program: Program, code: int | None, signal: int | None) -> None:
        """Nothing of the program is left; its wrapper has written the status."""
        self.remove(program)
        if program.wrapper:
            self.statuses[program.attempt] = (code, signal, program.signalled)
        self.say("{} is over, exit {}", program.attempt, code if signal is None else f"by {signal}")
        self.timer(0.01, self.notice, program.lease, program.attempt)

    def remove(self, program: Program) -> None:
        """Nothing of the program is left."""
        del self.programs[program.attempt]
        self.world.truth.over(program)

    def probe(self, program: Program) -> None:
        """Its readiness probe is asked, and may turn."""
        if self.programs.get(program.attempt) is not program:
            return
        if self.frozen:
            self.deferred.append((self.probe, (program,)))
            return
        kept = self.kept(program.lease, program.attempt)
        flap = program.behaviour.flap_every
        program.healthy = not program.healthy if flap else True
        if flap:
            self.world.after(flap, self.probe, program)
        if kept is not None and self.acts and kept.stage < Stage.ENDED:
            if kept.healthy and not program.healthy:
                self.world.strike("probe-flaps")
            kept.healthy = program.healthy
            if kept.healthy:
                self.world.truth.was_healthy.add(kept.id)
            self.report(program.lease)

    def kept(self, lease: LeaseId, attempt: AttemptId) -> Kept | None:
        """The journal's line on an attempt."""
        return self.shelves[lease].attempts.get(attempt) if lease in self.shelves else None

    # --- ends ------------------------------------------------------------------------------------

    def notice(self, lease: LeaseId, attempt: AttemptId) -> None:
        """The agent finds that a program or its wrapper is gone."""
        kept = self.kept(lease, attempt)
        if kept is None or kept.stage >= Stage.ENDED:
            return
        program = self.programs.get(attempt)
        if program is not None:
            if program.wrapper:
                return
            self.say("kills what {} left", attempt)
            self.remove(program)
        status = self.statuses.get(attempt)
        if status is None:
            self.end(kept, Outcome.LOST, cause="wrapper-vanished")
            return
        code, signal, signalled = status
        if signalled:
            self.end(kept, Outcome.STOPPED, code=code, signal=signal, cause="exit")
        else:
            outcome = Outcome.SUCCEEDED if code == 0 else Outcome.FAILED
            self.end(kept, outcome, code=code, signal=signal, cause="exit")

    def end(
        self,
        kept: Kept,
        outcome: Outcome,
        *,
        code: int | None = None,
        signal: int | None = None,
        cause: str = "",
    ) -> None:
        """The attempt has ended so; it never changes again."""
        kept.stage, kept.outcome, kept.cause = Stage.ENDED, outcome, cause
        kept.code, kept.signal, kept.healthy = code, signal, False
        if kept.id not in self.world.truth.ends:
            self.world.truth.ended(kept.id, outcome, code, cause)
        self.report(kept.lease)
        shelf = self.shelves.get(kept.lease)
        if shelf is not None and shelf.releasing:
            self.let_go(kept.lease)

    # --- reports ---------------------------------------------------------------------------------

    def report(self, lease: LeaseId, *, prompt: bool = False) -> None:
        """Send the state of one lease, then forget what has ended and is not listed.

        `prompt`: no old copy of it comes late.
        """
        shelf = self.shelves.get(lease)
        if shelf is None or not self.acts:
            return
        now = self.world.clock() + self.world.wall_offset
        for kept in shelf.attempts.values():
            if kept.at_stage != kept.stage:
                kept.at_stage, kept.at = kept.stage, now
        seen = tuple(kept.seen() for kept in shelf.attempts.values())
        self.send(lease, shelf.serial, seen, prompt=prompt)
        for kept in list(shelf.attempts.values()):
            if kept.stage == Stage.ENDED:
                kept.told = True
                self.ended[kept.id] = kept
                if kept.id not in shelf.listed:
                    del shelf.attempts[kept.id]

    def send(
        self, lease: LeaseId, serial: Serial, seen: tuple[SeenAttempt, ...], *, prompt: bool
    ) -> None:
        """A report goes out; one stream keeps its order."""
        world = self.world
        if self.cut_up:
            world.strike("cut-report")
            return
        args = (self, lease, serial, seen, f"{self.name}-boot{self.boot}")
        # One stream keeps its order.
        self.arrives = max(self.arrives, world.active + world.delay(0.02, 0.2))
        world.after(self.arrives - world.active, world.server.hear, *args)
        if not prompt and world.chance(world.server.chances.late_report):
            world.strike("late-report")
            world.after(world.rng.uniform(1.0, 20.0), self.send_late, *args[1:])

    def send_late(self, *args: Any) -> None:
        """A report that was on its way for long; the truth follows soon."""
        if not self.cut_up:
            self.world.server.hear(self, *args)
            if not self.correcting:
                self.correcting = True
                self.timer(self.world.delay(0.5, 5.0), self.report_all)

    def report_all(self) -> None:
        """The full state, as after hello."""
        self.correcting = False
        if self.heard():
            self.world.server.hello(self)
            for lease in list(self.shelves):
                self.report(lease, prompt=True)

    # --- release ---------------------------------------------------------------------------------

    def release(self, lease: LeaseId) -> None:
        """End everything of the lease, then forget it."""
        shelf = self.shelves.get(lease)
        self.note_release(lease)
        if shelf is None:
            self.infra.freed(lease)
            return
        shelf.releasing = True
        for kept in list(shelf.attempts.values()):
            kept.goal = Stage.ENDED
            self.drive(kept)
        self.let_go(lease)

    def note_release(self, lease: LeaseId) -> None:
        """Remember which assignments of a released lease are old."""
        shelf = self.shelves.get(lease)
        known = self.released.get(lease, ZERO)
        self.released[lease] = max(known, shelf.serial) if shelf else known

    def let_go(self, lease: LeaseId) -> None:
        """Free the lease once nothing of it is left."""
        shelf = self.shelves.get(lease)
        if shelf and all(kept.stage == Stage.ENDED for kept in shelf.attempts.values()):
            del self.shelves[lease]
            self.infra.freed(lease)

    def wipe(self, lease: LeaseId, *, released: bool = True) -> None:
        """The infra takes away at once what the lease was; nobody may have asked for it."""
        if released:
            self.note_release(lease)
        for program in [one for one in self.programs.values() if one.lease == lease]:
            self.remove(program)
        shelf = self.shelves.pop(lease, None)
        for kept in shelf.attempts.values() if shelf else ():
            if kept.stage < Stage.ENDED and kept.id not in self.world.truth.ends:
                self.world.truth.ended(kept.id, Outcome.LOST, None, "host-lost")

    # --- what befalls it -------------------------------------------------------------------------

    def crash_agent(self) -> None:
        """The agent dies; programs and wrappers go on."""
        self.agent_up = self.correcting = False
        self.epoch += 1
        self.hearing()

    def restart_agent(self) -> None:
        """The agent reads its journal and re-adopts what runs."""
        if self.agent_up or not self.alive:
            return
        self.agent_up = True
        self.epoch += 1
        self.say("agent is back")
        for shelf in list(self.shelves.values()):
            for kept in list(shelf.attempts.values()):
                self.adopt(kept)
        self.hearing()
        for lease, shelf in list(self.shelves.items()):
            if shelf.releasing:
                self.let_go(lease)

    def adopt(self, kept: Kept) -> None:
        """A restarted agent takes up what its journal and the claims say of an attempt."""
        if kept.stage >= Stage.ENDED:
            return
        if kept.id in self.claims:
            kept.stage = max(kept.stage, Stage.RUNNING)
            program = self.programs.get(kept.id)
            if program is not None and program.healthy:
                kept.healthy = True
                self.world.truth.was_healthy.add(kept.id)
            if kept.stop_due:
                self.timer(max(0.0, kept.stop_due - self.world.active), self.kill_due, kept)
            self.notice(kept.lease, kept.id)
            self.drive(kept)
        elif kept.stage == Stage.PREPARING:
            self.timer(kept.behaviour.prepare, self.prepared, kept)
        else:
            self.drive(kept)

    def freeze(self) -> None:
        """Everything on the host stands still."""
        self.frozen = True
        self.hearing()

    def thaw(self) -> None:
        """It goes on where it stood."""
        if self.frozen:
            self.frozen = False
            waiting, self.deferred = self.deferred, []
            for fn, args in waiting:
                self.world.after(0.01, fn, *args)
            self.hearing()

    def die(self) -> None:
        """Power off: every program is gone, the disk stays."""
        self.alive = self.frozen = self.correcting = False
        self.deferred.clear()
        self.epoch += 1
        for program in list(self.programs.values()):
            self.remove(program)
        for shelf in self.shelves.values():
            for kept in shelf.attempts.values():
                if kept.stage < Stage.ENDED:
                    self.world.truth.ended(kept.id, Outcome.LOST, None, "host-lost")
        self.hearing()

    def boot_again(self) -> None:
        """The machine is back: another boot id, the old journal."""
        if self.alive:
            return
        self.alive, self.agent_up, self.boot = True, True, self.boot + 1
        self.say("is back after a restart")
        self.infra.host_back(self)
        for lease in list(self.shelves):
            if self.infra.is_gone(lease):
                self.wipe(lease)  # it was said to be gone, so nothing of it may run again
        for lease, shelf in list(self.shelves.items()):
            for kept in list(shelf.attempts.values()):
                if kept.stage < Stage.ENDED:
                    kept.stage, kept.outcome = Stage.ENDED, Outcome.LOST
                    kept.cause, kept.healthy = "host-restarted", False
            if shelf.releasing:
                self.let_go(lease)
        self.hearing()

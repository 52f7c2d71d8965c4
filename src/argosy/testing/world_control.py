"""A simulated server: looks, reports, the step of each group, and actions that travel.

It keeps to the contract of a controller: load, decide, check, save, then act. It decides on news
and at `wake_at`, and on nothing else: a heartbeat alone is no news.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from argosy.decide import queue
from argosy.decide.checks import check
from argosy.decide.decide import decide
from argosy.errors import Conflict
from argosy.model.action import Acquire, Action, Assign, Decision, Release, Replan
from argosy.model.group import Group, Intent
from argosy.model.ids import GroupId, InfraName, LeaseId, Serial, group_of
from argosy.model.observed import Look, Observed, Queue, Refusal, Report, SeenAttempt, Waiting
from argosy.model.plan import NoPlan, Plan
from argosy.plan.planner import plan
from argosy.testing.invariants import Violation
from argosy.testing.world_agent import Host

if TYPE_CHECKING:
    from argosy.testing.world import World

HEARTBEAT = 2.0
LOOK_EVERY = 2.5


@dataclass(slots=True)
class Chances:
    """How likely each message suffers something; a fault raises them for a while."""

    lose_action: float = 0.0
    repeat_action: float = 0.0
    delay_action: float = 0.0
    late_report: float = 0.0
    late_look: float = 0.0
    partial_look: float = 0.0
    late_plan: float = 0.0


class Server:
    """One controller at a time; a crash ends a life, a start begins the next."""

    def __init__(self, world: World, *, every: int) -> None:
        self.world = world
        self.every = every  # so many decisions apart, one is made twice to see that it is the same
        self.chances = Chances()
        self.up = False
        self.stalled = False
        self.epoch = 0
        self.life = 0
        self.offset = 0.0
        self.looking_since = 0.0
        self.gap_length = 0.0
        self.decisions = 0
        self.crash_after: int | None = None  # crash in the next step, after so many actions
        self.conflict_next: Intent | None = None
        self.acquire_delay = self.plan_delay = 0.0  # of a story
        self.stale_next = 0  # so many versions back, a second controller decides
        self.older: dict[GroupId, list[Group]] = {}
        self.forget()

    def forget(self) -> None:
        """What dies with the process."""
        self.looks: dict[InfraName, Look] = {}
        self.shown: dict[InfraName, dict[GroupId, Look]] = {}
        self.reports: dict[LeaseId, tuple[Host, Serial, tuple[SeenAttempt, ...], str]] = {}
        self.hosts_heard: dict[str, float] = {}
        self.refusals: dict[LeaseId, Refusal] = {}
        self.answers: dict[GroupId, Plan | NoPlan] = {}
        self.freed_at: dict[InfraName, float] = {}
        self.wake_at: dict[GroupId, float] = {}
        self.due: set[GroupId] = set()
        self.lines: Mapping[GroupId, Waiting] = {}
        self.inbox: list[tuple[Any, ...]] = []
        self.reasons: dict[GroupId, tuple[tuple[str, str], ...]] = {}

    # --- life ------------------------------------------------------------------------------------

    def now(self) -> float:
        """The server's clock: wall time at its start, then what the machine has counted."""
        return self.world.clock() + self.offset

    def start(self) -> None:
        """A new life: decide once for every group that is not done with."""
        world = self.world
        if self.up:
            return
        wall = world.clock() + world.wall_offset
        self.offset = max(wall, world.store.newest_at) - world.clock()
        self.life = world.store.new_life(wall)
        self.up, self.stalled = True, False
        self.epoch += 1
        self.forget()
        self.looking_since = self.now()
        world.say("server", "starts, life {}", f"{self.life:x}")
        for group in world.store.records.values():
            if not (group.phase.final and group.clean):
                self.wake(group.id)
        for infra in world.infras.values():
            world.after(world.delay(0.1, 1.0), self.look, self.epoch, infra.name)
        for host in world.hosts():
            host.timer(world.delay(0.2, 2.0), host.report_all)

    def crash(self) -> None:
        """Dies at once; what it had not sent is never sent."""
        self.up = False
        self.epoch += 1
        self.crash_after = None
        self.world.say("server", "dies")

    def gap(self, seconds: float) -> None:
        """It finds that it did not run for so long: every wait gets a fresh window."""
        if self.up:
            self.gap_length = seconds
            self.looking_since = self.now()
            for group in list(self.wake_at):
                self.arm(group)

    def stall(self, seconds: float) -> None:
        """It stands still for a while; what arrives waits in its sockets."""
        if self.up and not self.stalled:
            self.stalled = True
            self.world.after(seconds, self.go_on, self.epoch, seconds)

    def go_on(self, epoch: int, seconds: float) -> None:
        """A stall is over: what came meanwhile is taken in at once."""
        if epoch == self.epoch:
            self.stalled = False
            self.gap(seconds)
            waiting, self.inbox = self.inbox, []
            for fn, *args in waiting:
                fn(*args)
            for group in list(self.due):
                self.world.after(0.01, self.step_due, self.epoch, group)

    def heal(self) -> None:
        """Faults are over."""
        self.chances = Chances()
        self.crash_after = self.conflict_next = None
        self.stale_next = 0
        self.start()

    # --- news ------------------------------------------------------------------------------------

    def ready_for(self, fn: Any, *args: Any) -> bool:
        """Whether a message is dealt with now; a stalled server's waits, a dead one's is lost."""
        if self.stalled:
            self.inbox.append((fn, *args))
        return self.up and not self.stalled

    def hello(self, host: Host) -> None:
        """A control stream to the host's agent stands."""
        if not self.ready_for(self.hello, host):
            return
        for held in host.infra.held.values():
            if held.host is host and held.lease not in self.reports and held.lease in host.shelves:
                self.wake(group_of(held.lease))

    def hear(
        self, host: Host, lease: LeaseId, serial: Serial, seen: tuple[SeenAttempt, ...], boot: str
    ) -> None:
        """A report arrived."""
        if not self.ready_for(self.hear, host, lease, serial, seen, boot):
            return
        before = self.reports.get(lease)
        self.reports[lease] = (host, serial, seen, boot)
        self.hosts_heard[host.name] = self.now()
        if before is None or before[1:] != (serial, seen, boot):
            self.wake(group_of(lease))

    def refused(self, refusal: Refusal) -> None:
        """An infra said no."""
        if self.ready_for(self.refused, refusal):
            at = self.now()
            wait = refusal.retry_at - refusal.at
            self.refusals[refusal.lease] = replace(refusal, at=at, retry_at=at + wait)
            self.wake(group_of(refusal.lease))

    def planned(self, epoch: int, group: GroupId, answer: Plan | NoPlan) -> None:
        """The planner answered."""
        if epoch == self.epoch and self.ready_for(self.planned, epoch, group, answer):
            self.answers[group] = answer
            self.wake(group)

    def look(self, epoch: int, name: InfraName) -> None:
        """Look at an infra; again and again."""
        if epoch != self.epoch:
            return
        world = self.world
        world.after(LOOK_EVERY, self.look, epoch, name)
        if self.stalled:
            return
        seen = world.infras[name].look(self.now())
        delay = world.delay(0.05, 0.6)
        if world.chance(self.chances.late_look):
            world.strike("late-look")
            delay = world.rng.uniform(2.0, 15.0)
        world.after(delay, self.looked, epoch, seen)

    def looked(self, epoch: int, look: Look) -> None:
        """What a look saw is news for the groups for which it differs from the last one."""
        if epoch != self.epoch or not self.ready_for(self.looked, epoch, look):
            return
        before = self.shown.get(look.infra, {})
        last = self.looks.get(look.infra)
        self.looks[look.infra] = look
        after: dict[GroupId, Look] = {}
        for group in self.world.store.records:
            leases = tuple(one for one in look.leases if group_of(one.lease) == group)
            blind = frozenset(one for one in look.blind if group_of(one) == group)
            after[group] = Look(look.infra, look.began_at, leases, blind, look.blind_all)
            old = before.get(group)
            said = (leases, blind, look.blind_all)
            if old is None or (old.leases, old.blind, old.blind_all) != said:
                self.wake(group)
        self.shown[look.infra] = after
        gone = {one.lease for one in last.leases} if last else set()
        if gone - {one.lease for one in look.leases} - look.blind and not look.blind_all:
            self.freed_at[look.infra] = self.now()
            self.wake_waiting()

    def wake_waiting(self) -> None:
        """The queue moved: every gang that waits is decided on."""
        for group in self.lines:
            self.wake(group)

    # --- when ------------------------------------------------------------------------------------

    def wake(self, group: GroupId) -> None:
        """Decide on a group soon."""
        if self.up and group not in self.due:
            self.due.add(group)
            self.world.after(self.world.delay(0.001, 0.02), self.step_due, self.epoch, group)

    def arm(self, group: GroupId) -> None:
        """Wake when the last decision said so."""
        at = self.wake_at[group]
        if at < float("inf"):
            wait = max(0.0, at - self.now()) + 1e-4
            self.world.after(wait, self.alarm, self.epoch, group, at)

    def alarm(self, epoch: int, group: GroupId, at: float) -> None:
        """The time that a decision asked for has come; an alarm that was replaced does nothing."""
        if epoch == self.epoch and self.wake_at.get(group) == at:
            if self.now() >= at:
                self.wake(group)
            else:
                self.arm(group)

    def step_due(self, epoch: int, group: GroupId) -> None:
        """The step that was queued for a group."""
        if epoch == self.epoch and not self.stalled and group in self.due:
            self.due.discard(group)
            self.step(group)

    # --- one step --------------------------------------------------------------------------------

    def observed(self, group: GroupId) -> Observed:
        """Everything that one decision looks at."""
        looks = {name: by[group] for name, by in self.shown.items() if group in by}
        reports = {
            lease: Report(lease, self.heard_at(host), boot, serial, seen)
            for lease, (host, serial, seen, boot) in self.reports.items()
            if group_of(lease) == group
        }
        refusals = {k: v for k, v in self.refusals.items() if group_of(k) == group}
        turns = self.world.store.turns()
        line = Queue(tuple(self.lines.values()), turns, dict(self.freed_at))
        return Observed(
            self.life, self.looking_since, looks, reports, refusals, self.answers.get(group), line
        )

    def heard_at(self, host: Host) -> float:
        """When a host's agent was heard last: a heartbeat came every 2 s while nothing forbade."""
        if host.quiet_since:
            last = host.quiet_since + self.offset
            return max(self.hosts_heard.get(host.name, 0.0), last - last % HEARTBEAT)
        now = self.now()
        last = now - now % HEARTBEAT - 0.05
        if last < self.looking_since:  # the first heartbeat after a gap is yet to come
            last = self.looking_since - self.gap_length
        return max(self.hosts_heard.get(host.name, 0.0), last)

    def step(self, group: GroupId) -> None:
        """Load, decide, check, save, act."""
        store, now = self.world.store, self.now()
        before = store.load(group)
        self.lines = self.waiting()
        seen = self.observed(group)
        decision = self.decided(before, seen, now)
        if self.stale_next:
            self.second_controller(group, seen, now)
        if self.conflict_next is not None:
            intent, self.conflict_next = self.conflict_next, None
            store.intend(group, replace(intent, at=now))
        try:
            self.commit(before, decision, now)
        except Conflict:
            self.world.strike("save-conflict")
            self.wake(group)
            return
        if self.world.calm:
            self.tell_reasons(before, decision)
        self.wake_at[group] = decision.wake_at
        self.arm(group)
        self.act(group, decision.actions)

    def tell_reasons(self, group: Group, decision: Decision) -> None:
        """What a group waits for, when that is something else than before."""
        said = {(one.code, one.about): one for one in decision.reasons}
        for key, one in said.items():
            if key not in self.reasons.get(group.id, ()):
                about = f"{group.spec.name}/{one.about}" if one.about else group.spec.name
                self.world.say("waits", "{}: {}", about, one.text)
        self.reasons[group.id] = tuple(said)

    def waiting(self) -> Mapping[GroupId, Waiting]:
        """The queue, from the records."""
        lines = {}
        for group in self.world.store.records.values():
            line = queue.waiting_of(group, self.freed_at)
            if line is not None:
                lines[group.id] = line
        return lines

    def decided(self, before: Group, seen: Observed, now: float) -> Decision:
        """One decision that passed every check."""
        limits = self.world.limits
        decision = decide(before, seen, now, limits)
        self.decisions += 1
        if self.decisions % self.every == 0 and decide(before, seen, now, limits) != decision:
            raise Violation(f"the same input gave another decision on {before.spec.name}")
        if decision.wake_at <= now:
            raise Violation(f"a decision on {before.spec.name} wakes itself at once")
        wrong = check(before, decision.group)
        if wrong:
            raise Violation(f"check of {before.spec.name}: {'; '.join(wrong)}")
        return decision

    def commit(self, before: Group, decision: Decision, now: float) -> None:
        """Save, if there is something to save."""
        world = self.world
        if decision.group is before:
            if world.store.load(before.id).version != before.version:
                raise Conflict("the record moved on")
            return
        if decision.group == before:
            raise Violation("nothing changed, and the record is another object")
        saved = world.store.save(before, decision.group, now)
        world.story.name_group(saved)
        for event in decision.events:
            about = f"{before.spec.name}/{event.about}" if event.about else before.spec.name
            attempt = f"#{event.attempt}" if event.attempt else ""
            world.say("decision", "{}{} {}: {}", about, attempt, event.code, event.text)
        if saved.phase is not before.phase:
            world.say("decision", "{} is {}", saved.id, saved.phase)
        world.truth.saved(before, saved, decision)
        history = self.older.setdefault(saved.id, [])
        history.append(before)
        del history[:-6]
        if self.in_queue(before) != self.in_queue(saved):
            self.wake_waiting()

    def in_queue(self, group: Group) -> tuple[object, ...]:
        """What of a record others in the queue look at."""
        return (queue.waiting_of(group, self.freed_at), group.placing.turns, group.phase)

    def second_controller(self, group: GroupId, seen: Observed, now: float) -> None:
        """Another server still has an older record: what it decides must not be saved."""
        history = self.older.get(group, [])
        back, self.stale_next = self.stale_next, 0
        if len(history) < back:
            return
        stale = history[-back]
        decision = self.decided(stale, seen, now)
        if decision.group is stale:
            return
        try:
            self.world.store.save(stale, decision.group, now)
        except Conflict:
            self.world.strike("second-controller")
            return
        raise Violation("a second controller saved over a newer record")

    # --- actions ---------------------------------------------------------------------------------

    def act(self, group: GroupId, actions: tuple[Action, ...]) -> None:
        """Perform what was decided; a crash may cut it short anywhere."""
        if self.crash_after is not None and actions:
            some = min(self.crash_after, len(actions))
            for action in actions[:some]:
                self.send(group, action)
            self.world.strike("controller-crash")
            self.world.say("server", "has done {} of {} actions", some, len(actions))
            self.crash()
            self.world.after(self.world.delay(5.0, 40.0), self.start)
            return
        for action in actions:
            self.send(group, action)

    def send(self, group: GroupId, action: Action) -> None:
        """One action on its way; it may be lost, doubled, or late."""
        world, chances = self.world, self.chances
        world.truth.acting(group, action)
        if world.chance(chances.lose_action):
            world.strike("lost-action")
            return
        delay = world.delay(0.01, 0.3)
        if self.acquire_delay and isinstance(action, Acquire):
            delay = self.acquire_delay
        if world.chance(chances.delay_action):
            world.strike("late-action")
            delay = world.rng.uniform(2.0, 60.0)
        world.after(delay, self.perform, group, action, self.epoch)
        if world.chance(chances.repeat_action):
            world.strike("repeated-action")
            world.after(
                delay + world.rng.uniform(0.0, 30.0), self.perform, group, action, self.epoch
            )

    def perform(self, group: GroupId, action: Action, epoch: int) -> None:
        """An action arrives where it belongs."""
        world = self.world
        match action:
            case Acquire(lease, placement):
                world.truth.acquiring(group, lease)
                world.infras[placement.infra].acquire(lease, placement)
            case Release(infra, lease):
                world.infras[infra].release(lease)
            case Assign(infra, lease):
                held = world.infras[infra].held.get(lease)
                if held is None or held.host is None or held.host.name != action.host:
                    return
                if world.infras[infra].is_gone(lease):
                    return
                if held.host.cut_down:
                    world.strike("cut-assignment")
                else:
                    held.host.take(action)
            case Replan():
                self.replan(group, action, epoch)

    def replan(self, group: GroupId, request: Replan, epoch: int) -> None:
        """Ask the real planner."""
        world = self.world
        offers = [offer for infra in world.infras.values() for offer in infra.offers()]
        now = world.clock() + self.offset
        answer = plan(request, world.store.specs[group], offers, now)
        delay = self.plan_delay or world.delay(0.02, 0.5)
        if world.chance(self.chances.late_plan):
            world.strike("late-plan")
            delay = world.rng.uniform(10.0, 60.0)
        world.after(delay, self.planned, epoch, group, answer)

"""What must never happen in a world, watched in the world itself and not only in the record."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING

from argosy.model.action import Acquire, Action, Assign, Decision, Release
from argosy.model.group import (
    Attempt,
    Group,
    Intent,
    LeaseState,
    Node,
    Order,
    Outcome,
    Phase,
    Stage,
    Verb,
)
from argosy.model.ids import AttemptId, GroupId, LeaseId, NodeId, Serial, group_lease, group_of
from argosy.model.spec import Condition, Execution, Scope, TaskSpec
from argosy.testing.world_programs import Program

if TYPE_CHECKING:
    from argosy.testing.world import World


# What an ended attempt says for ever.
FACTS = attrgetter("outcome", "exit_code", "signal", "cause", "ended_at", "host")


class Violation(AssertionError):
    """Something happened that never may."""


class Truth:
    """What really is, and what was ever saved; every method raises Violation when a rule breaks."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.running: dict[tuple[GroupId, NodeId], set[AttemptId]] = {}
        self.incarnations: dict[GroupId, Counter[int]] = {}
        self.alive: set[AttemptId] = set()
        self.starts: Counter[AttemptId] = Counter()
        self.was_ready: set[AttemptId] = set()
        self.was_healthy: set[AttemptId] = set()
        self.by_node: dict[tuple[GroupId, NodeId], list[AttemptId]] = {}  # what ever started
        self.ends: dict[AttemptId, tuple[Outcome, int | None, str]] = {}
        self.attempts: dict[AttemptId, Attempt] = {}  # the newest saved version of each
        self.owner: dict[AttemptId, GroupId] = {}
        self.may_run: set[AttemptId] = set()  # told to run by a saved decision, barrier open
        self.told: dict[LeaseId, dict[Serial, tuple[tuple[Order, ...], int]]] = {}
        self.intents: dict[GroupId, list[Intent]] = {}
        self.well: dict[GroupId, bool] = {}  # the primaries had succeeded at the verdict
        self.ill: dict[GroupId, bool] = {}  # one of their nodes had failed
        self.exempt: set[GroupId] = set()  # restored past what their store had issued
        self.restored: set[GroupId] = set()

    def wrong(self, text: str, *about: object) -> None:
        """Raise, with ids in words."""
        name = self.world.story.name
        raise Violation(text.format(*(name(str(one)) for one in about)))

    # --- the world -------------------------------------------------------------------------------

    def created(self, group: Group) -> None:
        """A group was submitted."""
        self.intents[group.id] = []
        self.incarnations[group.id] = Counter()

    def intended(self, group: GroupId, intent: Intent) -> None:
        """A user's wish was written."""
        self.intents[group].append(intent)

    def ready(self, attempt: AttemptId) -> None:
        """An agent brought an attempt to READY."""
        self.was_ready.add(attempt)

    def started(self, program: Program) -> None:
        """A program begins to run."""
        attempt, group = program.attempt, program.group
        self.starts[attempt] += 1
        if self.starts[attempt] > 1:
            self.wrong("{} was started twice", attempt)
        here = self.running.setdefault((group, program.node), set())
        incarnations = self.incarnations[group]
        if group not in self.exempt:
            if here:
                self.wrong("{} runs while {} still does", attempt, next(iter(here)))
            others = [one for one, count in incarnations.items() if count]
            if any(one != program.incarnation for one in others):
                self.wrong("{} runs while incarnation {} still does", attempt, others[0])
        earlier = self.by_node.setdefault((group, program.node), [])
        if not earlier and group not in self.restored:
            self.depends_hold(program)
        earlier.append(attempt)
        here.add(attempt)
        incarnations[program.incarnation] += 1
        self.alive.add(attempt)
        known = self.attempts.get(attempt)
        if known is None or known.goal < Stage.RUNNING:
            self.wrong("{} runs, and no saved decision said so", attempt)
        elif attempt not in self.may_run and group not in self.restored:
            self.wrong("{} runs before its barrier was opened", attempt)

    def depends_hold(self, program: Program) -> None:
        """What the task depends on really came true, before its node started first."""
        spec = self.world.store.specs[program.group]
        for name, condition in spec.task(program.node.task).depends_on:
            other = spec.task(name)
            for node in self.judged(other) if condition == "succeeded" else other.nodes():
                if not any(
                    self.came_true(one, condition, probed=other.ready is not None)
                    for one in self.by_node.get((program.group, node), ())
                ):
                    self.wrong("{} runs before {} is {}", program.attempt, node, condition.value)

    def came_true(self, attempt: AttemptId, condition: Condition, *, probed: bool) -> bool:
        """Whether an attempt really was what a dependant waits for."""
        end = self.ends.get(attempt)
        well = end is not None and end[0] is Outcome.SUCCEEDED
        match condition:
            case Condition.STARTED:
                return True
            case Condition.SUCCEEDED:
                return well
            case Condition.HEALTHY:
                return attempt in self.was_healthy or (well and not probed)

    @staticmethod
    def judged(task: TaskSpec) -> tuple[NodeId, ...]:
        """The nodes that decide how the task ends."""
        return task.nodes()[:1] if task.ends_with == "head" else task.nodes()

    def over(self, program: Program) -> None:
        """Nothing of a program is left."""
        self.running[program.group, program.node].discard(program.attempt)
        self.incarnations[program.group][program.incarnation] -= 1
        self.alive.discard(program.attempt)

    def ended(self, attempt: AttemptId, outcome: Outcome, code: int | None, cause: str) -> None:
        """How an attempt really ended."""
        if attempt in self.ends:
            self.wrong("{} ended twice", attempt)
        self.ends[attempt] = (outcome, code, cause)

    def acquiring(self, group: GroupId, lease: LeaseId) -> None:
        """An acquire arrives, perhaps after it was given up."""
        record = self.world.store.records[group]
        held = next((one for one in record.leases if one.id == lease), None)
        if held is None or held.state >= LeaseState.RELEASING:
            self.world.strike("late-acquire")

    def was_restored(self, changed: list[GroupId]) -> None:
        """The store is an older version of itself, for these groups."""
        self.restored.update(changed)
        store = self.world.store
        for infra in self.world.infras.values():
            self.exempt.update(group_of(one) for one in infra.held if one not in store.issued)

    # --- decisions -------------------------------------------------------------------------------

    def acting(self, group: GroupId, action: Action) -> None:
        """An action is about to be performed."""
        record = self.world.store.records[group]
        leases = {one.id: one for one in record.leases}
        match action:
            case Assign(_, lease, _, serial, orders, book):
                runs = any(order.goal is Stage.RUNNING for order in orders)
                said = (orders, book.version if runs else 0)
                known = self.told.setdefault(lease, {})
                newest = max(known, default=serial)
                if serial < newest and group not in self.restored:
                    self.wrong("{} is assigned with serial {} after {}", lease, serial, newest)
                if known.setdefault(serial, said)[0] != orders:
                    self.wrong("{} is assigned something else under one serial {}", lease, serial)
            case Acquire(lease):
                if lease not in leases or leases[lease].state >= LeaseState.RELEASING:
                    self.wrong("{} is acquired, and the record does not want it", lease)
            case Release(_, lease):
                if lease in leases and leases[lease].state < LeaseState.RELEASING:
                    self.wrong("{} is released, and the record wants it", lease)
                issued = self.world.store.issued
                if lease not in issued and lease != group_lease(group):
                    self.wrong("{} is released, and this store never issued it", lease)
            case _:
                pass

    def saved(self, before: Group, after: Group, decision: Decision) -> None:
        """A decision was saved."""
        old = {one.id: one for one in before.attempts}
        for attempt in after.attempts:
            known = old.get(attempt.id)
            if known is not attempt:
                self.attempt_saved(before, after, known, attempt)
        self.barriers_saved(before, after)
        self.leases_saved(before, after)
        self.nodes_saved(before, after)
        self.group_saved(before, after)

    def attempt_saved(self, before: Group, after: Group, old: Attempt | None, new: Attempt) -> None:
        """One attempt is new in the record, or changed."""
        self.attempts[new.id] = new
        self.owner[new.id] = after.id
        if old is None:
            node = next(one for one in before.nodes or after.nodes if one.id == new.node)
            whole = after.incarnation > before.incarnation
            if not new.seen and (before.phase is Phase.ENDING or before.phase.final):
                self.wrong("{} is made while the group ends", new.id)
            if not new.seen and self.is_over(before, node.id.task) and not whole:
                self.wrong("{} is made for a task that was over", new.id)
            return
        if new.stage < old.stage or new.goal < old.goal:
            self.wrong("a stage or goal of {} fell", new.id)
        if not old.live and FACTS(old) != FACTS(new):
            self.wrong("{} had ended and changed", new.id)
        if old.live and not new.live:
            self.end_saved(after, new)
        if new.goal is Stage.RUNNING and old.goal < Stage.RUNNING:
            node = next(one for one in after.nodes if one.id == new.node)
            if node.barrier in after.started:
                self.may_run.add(new.id)
        if new.goal is Stage.ENDED and old.goal is not Stage.ENDED:
            self.stop_saved(before, after, new)

    def end_saved(self, after: Group, new: Attempt) -> None:
        """The record says that an attempt ended: it must be so, and so as it says."""
        if after.id in self.exempt or new.cause == "superseded":
            return
        if new.id in self.alive:
            self.wrong("{} ended by the record ({}), and runs", new.id, new.cause)
        really = self.ends.get(new.id)
        if new.outcome in (Outcome.SUCCEEDED, Outcome.FAILED) and (
            really is None or really[:2] != (new.outcome, new.exit_code)
        ):
            self.wrong("{} is recorded as {}, and was {}", new.id, new.outcome, really)
        lost = (really is not None and really[0] is Outcome.LOST) or not self.host_lives(new)
        if new.cause == "forgotten" and not lost and after.id not in self.restored:
            self.wrong("{} is taken for forgotten, and no agent forgets", new.id)
        unknown = new.outcome is Outcome.LOST and really is None and new.cause != "released"
        if unknown and self.host_lives(new):
            self.wrong("{} is recorded as lost ({}), and is not", new.id, new.cause)

    @staticmethod
    def needed_by(group: Group, task: TaskSpec) -> set[str]:
        """The task and all that it depends on, directly or not."""
        found: set[str] = set()
        open_ = [task.name]
        while open_:
            name = open_.pop()
            found.add(name)
            open_ += [o for o, _ in group.spec.task(name).depends_on if o not in found]
        return found

    def host_lives(self, attempt: Attempt) -> bool:
        """The lease of an attempt is there, and its host lives."""
        infra = self.world.infras[attempt.infra]
        held = infra.held.get(attempt.lease)
        there = held is not None and held.host is not None and held.host.alive
        return there and not infra.was_lost(attempt.lease)

    @staticmethod
    def is_over(group: Group, task: str) -> bool:
        """The task was over: nothing of it is started any more."""
        spec = group.spec.task(task)
        settled = [one.settled for one in group.nodes if one.id.task == task]
        head = spec.ends_with == "head" and settled[0] is not None
        return head or Outcome.FAILED in settled or None not in settled

    def stop_saved(self, before: Group, after: Group, new: Attempt) -> None:
        """An attempt is told to end: somebody must have given a reason, and silence is none."""
        if after.id in self.restored or after.phase is Phase.ENDING or after.phase.final:
            return
        if new.stage < Stage.RUNNING and new.barrier not in after.started:
            return  # nothing of its barrier has started: capacity may be given back
        spec = after.spec
        mine = spec.task(new.node.task)
        if any(one.verb is Verb.RESTART for one in self.intents[after.id]):
            return
        akin = self.needed_by(after, mine)
        akin |= {one.name for one in spec.tasks if mine.name in one.restart.along}
        if any(one.restart.scope is Scope.GROUP for one in spec.tasks):
            akin = {one.name for one in spec.tasks}
        if any(one.leaving and one.node.task in akin for one in after.leases):
            return
        for attempt in self.ends:
            known = self.attempts.get(attempt)
            mine_too = known is not None and self.owner[attempt] == after.id
            if mine_too and known is not None and known.node.task in akin:
                return
        if any(node.settled is not None and node.id.task in akin for node in before.nodes):
            return
        self.wrong("{} is told to end, and nothing happened to what it belongs to", new.id)

    def barriers_saved(self, before: Group, after: Group) -> None:
        """A barrier opens only when everything of it really is READY."""
        for barrier in set(after.started) - set(before.started):
            if after.id in self.restored:
                continue
            gang = after.spec.tasks
            if after.spec.execution is Execution.SERIAL:
                gang = (after.spec.tasks[after.gang],)
            names = {task.name for task in gang}
            live = {one.id: one for one in after.attempts if one.live}
            for node in after.nodes:
                whole = barrier == after.gang_barrier and node.id.task in names
                if node.settled is not None or not (node.barrier == barrier or whole):
                    continue
                attempt = live.get(node.attempt) if node.attempt else None
                if attempt is None or attempt.stage < Stage.READY:
                    self.wrong("barrier {} of {} opens without {}", barrier, after.id, node.id)
                elif attempt.id not in self.was_ready:
                    self.wrong("barrier {} opens, and {} was never ready", barrier, attempt.id)
                elif self.world.infras[attempt.infra].is_silent(attempt.lease):
                    self.wrong("barrier {} opens, and {} is silent", barrier, attempt.host)

    def leases_saved(self, before: Group, after: Group) -> None:
        """Capacity is asked for only with the turn, and lost only when it is."""
        old = {one.id: one for one in before.leases}
        for lease in after.leases:
            known = old.get(lease.id)
            if known is None:
                if before.phase is Phase.ENDING or before.phase.final:
                    self.wrong("{} is asked for while the group ends", lease.id)
                if lease.placement.infra not in after.placing.turns:
                    self.wrong("{} is asked for without the turn", lease.id)
            elif lease.lost and not known.lost:
                infra = self.world.infras[lease.placement.infra]
                held = infra.held.get(lease.id)
                there = held is not None and held.host is not None and held.host.alive
                if there and not infra.was_lost(lease.id):
                    self.wrong("{} is taken for lost, and its host lives", lease.id)
        turns: dict[str, str] = {}
        for group in self.world.store.records.values():
            for name in group.placing.turns:
                if name in turns:
                    self.wrong("{} and {} both have the turn on {}", turns[name], group.id, name)
                turns[name] = group.id

    def nodes_saved(self, before: Group, after: Group) -> None:
        """A node is settled as its last attempt really ended."""
        old = {one.id: one for one in before.nodes}
        whole = after.incarnation > before.incarnation
        for node in after.nodes:
            known = old.get(node.id)
            again = known is not None and known.settled is not None and node.settled is None
            if again and not whole and self.is_over(before, node.id.task):
                self.wrong("{} of {} was settled and is not any more", node.id, after.id)
            if node.settled is Outcome.FAILED and after.verdict is None:
                left = [o for o in after.nodes if o.id.task == node.id.task and o.settled is None]
                if left:
                    self.wrong("{} of {} failed, and {} goes on", node.id, after.id, left[0].id)
            if node.settled is Outcome.SUCCEEDED and (known is None or known.settled is None):
                really = self.ends.get(node.attempt) if node.attempt else None
                if really is None or really[0] is not Outcome.SUCCEEDED:
                    self.wrong("{} of {} succeeded by the record only", node.id, after.id)

    def group_saved(self, before: Group, after: Group) -> None:
        """The group's own fields."""
        if before.phase.final and after.phase is not before.phase:
            self.wrong("{} was {} and is {}", after.id, before.phase, after.phase)
        if after.verdict is not None and before.verdict is None:
            self.well[after.id] = self.primaries_succeeded(after)
            self.ill[after.id] = self.a_primary_failed(after)
            lives = [one.id for one in after.nodes if one.settled is None]
            if lives and after.verdict is not Phase.SUCCEEDED:
                self.wrong("{} is to be {}, and {} goes on", after.id, after.verdict, lives[0])
        if after.phase.final and not before.phase.final:
            for lease in after.leases:
                host = self.world.infras[lease.placement.infra].answering(lease.id, lease.host)
                if host:
                    self.wrong("{} is over, and {} answers and holds {}", after.id, host, lease.id)
        for unit, spent in after.restarts:
            limit = self.limit(after, unit)
            if limit is not None and spent > limit:
                self.wrong("{} spent {} restarts of {}", after.id, spent, limit)

    @staticmethod
    def limit(group: Group, unit: str) -> int | None:
        """How many restarts a unit has; None: no limit."""
        if unit == "*":
            return group.spec.restarts
        for task in group.spec.tasks:
            names = (task.name, f"*{task.name}", *(node.path for node in task.nodes()))
            if unit in names:
                return task.restart.max
        return 0

    # --- the end ---------------------------------------------------------------------------------

    def at_the_end(self) -> None:
        """Everything came to rest: phases agree with what the primaries did."""
        for group in self.world.store.records.values():
            self.phase_is_right(group)
            if group.id not in self.restored:
                for task in group.spec.tasks:
                    self.restarts_were_few(group, task)

    def phase_is_right(self, group: Group) -> None:
        """The phase of a group that is over."""
        cancelled = any(i.verb is not Verb.RESTART for i in self.intents[group.id])
        well = self.well.get(group.id, False)
        if group.phase is Phase.CANCELLED and not cancelled:
            self.wrong("{} is CANCELLED, and nobody asked", group.id)
        if group.id in self.restored:
            return  # its record may know of an older success, or of none
        if group.phase is Phase.SUCCEEDED and not well:
            self.wrong("{} is SUCCEEDED, and its primaries did not", group.id)
        excused = self.ill[group.id] or group.cause in ("deadline", "setup-failed")
        if group.phase is Phase.FAILED and well and not excused:
            self.wrong("{} is FAILED, and its primaries succeeded", group.id)

    def primaries_succeeded(self, group: Group) -> bool:
        """Whether every task that counts really succeeded, by now."""
        nodes = {one.id: one for one in group.nodes}
        counting = [task for task in group.spec.tasks if self.counts(group, task)]
        return all(self.succeeded(task, nodes) for task in counting)

    @staticmethod
    def counts(group: Group, task: TaskSpec) -> bool:
        """Whether the task's result is the group's."""
        return task.primary or group.spec.execution is Execution.SERIAL

    def a_primary_failed(self, group: Group) -> bool:
        """Whether a node of a task that counts really failed, by now."""
        newest = {one.id: one.attempt for one in group.nodes}
        return any(
            (end := self.ends.get(newest[node] or AttemptId(""))) and end[0] is Outcome.FAILED
            for task in group.spec.tasks
            if self.counts(group, task)
            for node in task.nodes()
        )

    def succeeded(self, task: TaskSpec, nodes: dict[NodeId, Node]) -> bool:
        """Whether what the task is judged by really succeeded."""
        for one in self.judged(task):
            attempt = nodes[one].attempt
            end = self.ends.get(attempt) if attempt else None
            if end is None or end[0] is not Outcome.SUCCEEDED:
                return False
        return True

    def restarts_were_few(self, group: Group, task: TaskSpec) -> None:
        """Programs that failed were not started again more often than the file allows."""
        policy = task.restart
        if any(task.name in one.restart.along for one in group.spec.tasks):
            return
        if policy.scope is Scope.GROUP:
            self.group_restarts_were_few(group, task)
            return
        if policy.max is None and self.covers(task):
            return
        limit = (policy.max or 0) if self.covers(task) else 0
        by_hand = sum(1 for one in self.intents[group.id] if one.verb is Verb.RESTART)
        spare = by_hand + group.incarnation - 1
        if policy.scope is Scope.TASK:  # a sibling that was lost is the cause of what failed then
            spare += sum(
                one.outcome is Outcome.LOST and one.node.task == task.name
                for one in self.attempts.values()
                if self.owner[one.id] == group.id
            )
        per_node: Counter[NodeId] = Counter()
        for attempt, end in self.ends.items():
            known = self.attempts.get(attempt)
            if end[0] is not Outcome.FAILED or known is None or self.owner[attempt] != group.id:
                continue
            # One whose failure was not known before it was told to end, or lost, spends nothing.
            spent = known.outcome is Outcome.FAILED and known.goal is not Stage.ENDED
            if known.node.task == task.name and spent:
                per_node[known.node] += 1
        for node, failures in per_node.items():
            if failures > limit + 1 + spare:
                self.wrong("{} of {} failed {} times", node, group.id, failures)

    def group_restarts_were_few(self, group: Group, task: TaskSpec) -> None:
        """In how many incarnations a task with scope group failed: each but the last spent one."""
        limit = (group.spec.restarts if task.restart.max is None else task.restart.max) + 1
        limit = limit if self.covers(task) else 1
        by_hand = sum(1 for one in self.intents[group.id] if one.verb is Verb.RESTART)
        mine = [one for one in self.attempts.values() if self.owner[one.id] == group.id]
        bad = Counter(
            one.incarnation for one in mine if one.outcome in (Outcome.FAILED, Outcome.LOST)
        )
        failed = {
            one.incarnation
            for one in mine
            if one.node.task == task.name
            and one.outcome is Outcome.FAILED
            and one.goal is not Stage.ENDED
            and bad[one.incarnation] == 1  # else another's end may have been the cause
        }
        if len(failed) > limit + by_hand:
            self.wrong("{} of {} failed in {} incarnations", task.name, group.id, len(failed))

    @staticmethod
    def covers(task: TaskSpec) -> bool:
        """Whether failures of the task are restarted at all."""
        return task.restart.on_failure or bool(task.restart.on_codes)

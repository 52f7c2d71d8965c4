"""One worker per group: woken by news or by `wake_at`, it decides, saves, then acts.

Rules: the record is committed before the first action is tried; a conflict drops the decision;
what changes nothing is neither written nor decided on. After a gap (a suspend, a stall) every wait
gets a fresh window: `looking_since` moves.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from argosy.clock import Clock
from argosy.control import observer
from argosy.control.actuator import Actuator
from argosy.control.delivery import Delivery
from argosy.control.entry import Entry, Word
from argosy.control.fences import Fences
from argosy.control.links import PROTOCOL, AgentLink
from argosy.control.looker import Looker
from argosy.control.lost_hosts import LostHosts
from argosy.control.queues import Queues
from argosy.control.step import step
from argosy.control.volumes import KeptVolumes
from argosy.errors import ArgosyError, Broken, Conflict, NotFound
from argosy.infra.api import HostRef, Infra, Watches
from argosy.model.action import Decision, Event, Limits, Reason, Release
from argosy.model.group import Group, Lease, LeaseState, Outcome, Phase, Placing, Stage
from argosy.model.ids import GroupId, InfraName, LeaseId, group_lease, group_of
from argosy.model.observed import Look
from argosy.store.store import Store

log = logging.getLogger("argosy.control")

TICK: Final = 2.0  # seconds; while groups live
GAP: Final = 5.0  # a tick that comes so late was a gap
WAKE_MOST: Final = 3600.0
REST_MOST: Final = 0.05  # after a decision, before the next on the same group
STORE_RETRY: Final = 2.0  # after a full disk or a broken store


class Controller:
    """Everything that moves, of one server."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        infras: Mapping[InfraName, Infra],
        *,
        life: int,
        limits: Limits,
        folder: Path | None = None,
    ) -> None:
        """`folder`: for the little that outlives this server and is not in the store."""
        self.store, self.clock, self.infras = store, clock, infras
        self.life, self.limits = life, limits
        self.entries: dict[GroupId, Entry] = {}
        self.links: dict[tuple[InfraName, str], AgentLink] = {}
        self.sights: dict[InfraName, observer.Sight] = {}
        self._looking_since = clock.now()
        self._alive_at = clock.now()
        self.lost_hosts = LostHosts(store, clock, infras, self)
        self.volumes = KeptVolumes(store, infras, clock)
        self._actuator = Actuator(infras, clock, self)
        self._delivery = Delivery(infras, clock, self)
        self._queues = Queues()
        self._fences = Fences(folder, clock.now())
        self._lookers: dict[InfraName, Looker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closed = False
        self._issued: set[LeaseId] = set()  # of living groups, and what was seen of others
        self._hello = {
            "op": "control", "protocol": PROTOCOL, "server": store.server_id, "life": life,
        }  # fmt: skip

    # Starting and ending

    async def start(self) -> None:
        """Take up every unfinished group and decide once for each."""
        for infra in self.infras.values():
            busy = functools.partial(self._busy, infra.name)
            looker = Looker(infra, self.clock, busy=busy, saw=self._saw)
            self._lookers[infra.name] = looker
            self.spawn(f"look {infra.name}", looker.run())
            if isinstance(infra, Watches):
                self.spawn(f"watch {infra.name}", looker.watch())
        self.spawn("tick", self._tick())
        self.spawn("lost-hosts", self.lost_hosts.mind())
        for group in self.store.unfinished():
            self.add(group)

    async def stop(self) -> None:
        """End every task; running groups go on."""
        self._closed = True
        for entry in self.entries.values():
            if entry.timer is not None:
                entry.timer.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def add(self, group: Group) -> Entry:
        """Take a group into the loop."""
        entry = self.entries[group.id] = Entry(group)
        self._issued.update([group_lease(group.id), *(lease.id for lease in group.leases)])
        self._queues.saved(None, group, self.clock.now())
        for lease in group.leases:
            wanted = lease.host and lease.state < LeaseState.RELEASING and not lease.lost
            if wanted and lease.placement.infra in self.infras:
                self.link(lease.placement.infra, lease.host)
        self._actuator.balance(group)
        self.news(entry)
        return entry

    def forget(self, group: GroupId) -> None:
        """Drop a group that is over: clean, or removed."""
        entry = self.entries.pop(group, None)
        if entry is None:
            return
        entry.dirty = False
        if entry.timer is not None:
            entry.timer.cancel()
        self._queues.forget(group)
        self._actuator.forget(group)
        self._issued = {one for one in self._issued if group_of(one) != group}
        self._drop_leases(entry, entry.group.leases)
        entry.tell_changed()

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task, keep it, and write down what it could not answer."""

        async def kept() -> None:
            try:
                await work
            except Exception:
                log.exception("task-failed", extra={"task_name": name})
            finally:
                if self._tasks.get(name) is task:
                    del self._tasks[name]

        task = self._tasks[name] = asyncio.create_task(kept(), name=name)
        task.add_done_callback(lambda _: work.close())  # one that was cancelled before it began
        return task

    # News

    def news(self, entry: Entry) -> None:
        """Something changed for this group: decide again."""
        if self.entries.get(entry.group.id) is not entry:
            return  # it was forgotten meanwhile
        entry.dirty = True
        if entry.worker is None and not self._closed and not entry.broken:
            entry.worker = self.spawn(f"group {entry.group.id}", self._work(entry))

    def taken(self, entry: Entry, group: Group) -> None:
        """The record was changed by intent, outside of a decision."""
        if group.version > entry.group.version:
            entry.group = group
        entry.tell_changed()
        self.news(entry)

    async def _work(self, entry: Entry) -> None:
        try:
            while entry.dirty and not entry.broken and not self._closed:
                entry.dirty = False
                began = self.clock.now()
                await self._once(entry)
                # As long as the decision took: so what comes in meanwhile is decided on together.
                await self.clock.sleep(min(REST_MOST, self.clock.now() - began))
        finally:
            entry.worker = None
            if entry.dirty and not entry.broken:
                self.news(entry)

    async def _once(self, entry: Entry) -> None:
        self._mind_gap()
        before, now = entry.group, self.clock.now()
        queue = self._queues.current()
        observed = observer.observed(
            entry, self.sights, queue, life=self.life, looking_since=self._looking_since
        )
        try:
            decision = step(before, observed, now, self.limits)
        except Broken as error:
            self._stop_broken(entry, error, now)
            return
        try:
            try:
                decision = await self._save(entry, decision)
            except Conflict:
                self._decide_again(entry, self.store.load(before.id), now)
                return
        except NotFound:
            self.forget(before.id)
            return
        except ArgosyError as error:
            self._store_failed(entry, error, now)
            return
        self._after(entry, before, decision, now)

    def _decide_again(self, entry: Entry, newer: Group, now: float) -> None:
        """The decision is dropped: a wish was written meanwhile, or another gang took the turn."""
        moved = newer.version != entry.group.version
        entry.group = newer
        if moved:
            entry.dirty = True
        else:
            self._wake_at(entry, now + self.limits.ask_again)

    async def _save(self, entry: Entry, decision: Decision) -> Decision:
        told = entry.events
        if decision.group is entry.group and not decision.events and not told:
            return decision
        entry.events = []
        try:
            saved = await self.store.save(
                entry.group, replace(decision, events=(*told, *decision.events))
            )
        except BaseException:
            entry.events = told + entry.events
            raise
        return replace(decision, group=saved)

    def _after(self, entry: Entry, before: Group, decision: Decision, now: float) -> None:
        """The decision of `now` stands: act on it."""
        entry.group = decision.group
        reasons = self._fences.explained(
            decision.reasons, decision.group.leases, now, self.limits.suspect_after
        )
        changed = decision.group is not before or reasons != entry.reasons
        entry.reasons = reasons
        for action in decision.actions:
            self._actuator.perform(entry, action)
        if any(reason.code == "peer-suspect" for reason in decision.reasons):
            self._ask_agents(entry)
        if decision.group is not before:
            left = {one.id for one in decision.group.leases}
            self._issued |= left
            lost = [one for one in decision.group.leases if one.lost]
            self._drop_leases(entry, [*lost, *(one for one in before.leases if one.id not in left)])
            if self._queues.saved(before, decision.group, now):
                for other in self._queues.first(before.id):
                    self.news(self.entries[other])
        self._wake_at(entry, decision.wake_at)
        if changed:
            entry.tell_changed()
        if entry.group.phase.final and entry.group.clean:
            self.forget(entry.group.id)

    def _wake_at(self, entry: Entry, at: float) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None
        if at != float("inf"):
            delay = min(WAKE_MOST, max(0.0, at - self.clock.now()))
            entry.timer = asyncio.get_running_loop().call_later(delay, self.news, entry)

    def _drop_leases(self, entry: Entry, leases: Iterable[Lease]) -> None:
        """Nothing is left of these leases: nothing more is said to or heard from their agents."""
        for lease in leases:
            entry.words.pop(lease.id, None)
            entry.refusals.pop(lease.id, None)
            link = self.links.get((lease.placement.infra, lease.host))
            if link is not None:
                link.drop(lease.id)

    def _stop_broken(self, entry: Entry, error: Broken, now: float) -> None:
        log.error("check-failed", extra={"group": entry.group.id, "why": error.text})
        entry.broken = True
        entry.reasons = (Reason("broken", "", error.text, now, error.hints[0]),)
        entry.tell_changed()

    async def end_broken(self, entry: Entry) -> None:
        """End a group that a failed check has stopped: FAILED, and all it holds is released."""
        now, before = self.clock.now(), entry.group
        text = "a check failed, and it was ended by hand"
        nodes = tuple(
            replace(node, settled=node.settled or Outcome.STOPPED, lease=None)
            for node in before.nodes
        )
        lost: dict[str, Any] = {
            "stage": Stage.ENDED,
            "outcome": Outcome.LOST,
            "cause": "broken",
            "ended_at": now,
        }
        attempts = tuple(replace(one, **lost) if one.live else one for one in before.attempts)
        ended = replace(
            before,
            phase=Phase.FAILED,
            cause="broken",
            text=text,
            nodes=nodes,
            attempts=attempts,
            ended_at=now,
            placing=Placing(),
            intents=(),
        )
        event = Event(now, "group-ended", "", f"FAILED: {text}")
        decision = Decision(ended, (), (event,), (), now)
        entry.group = await self.store.save(before, decision)
        entry.broken = False
        entry.tell_changed()
        self.news(entry)

    def _store_failed(self, entry: Entry, error: ArgosyError, now: float) -> None:
        """Nothing was saved, so nothing is done; what runs goes on."""
        log.error("save-failed", extra={"group": entry.group.id, "why": error.text})
        hint = error.hints[0] if error.hints else ""
        entry.reasons = (Reason(error.code, "", error.text, now, hint),)
        entry.tell_changed()
        self._wake_at(entry, now + STORE_RETRY)

    # Looks

    def freed(self, infra: InfraName) -> None:
        """There is more room on that infra: who waits for it may try at once."""
        self._queues.freed(infra, self.clock.now())
        for group in self._queues.first(GroupId("")):
            self.news(self.entries[group])

    def look(self, infra: InfraName) -> None:
        """Look at that infra soon."""
        if infra in self._lookers:
            self._lookers[infra].ask()

    def _busy(self, infra: InfraName) -> bool:
        """Whether that infra is looked at every second: also until what is left there is gone."""
        last = self.sights.get(infra)
        return bool(self.entries) or (last is not None and bool(last.look.leases))

    def _saw(self, look: Look) -> None:
        before = self.sights.get(look.infra)
        look = self.lost_hosts.applied(self._ours(look), self._leases_on(look.infra))
        look = self._fences.shown(look, self._leases_on(look.infra), self.clock.now())
        now = self.sights[look.infra] = observer.sight(look)
        old, new = before.by_group if before is not None else {}, now.by_group
        partly = bool(look.blind_all or look.blind)
        for group in {*old, *new}:
            entry = self.entries.get(group)
            was, here = old.get(group, ()), new.get(group, ())
            if not partly and observer.left_behind(was, here, entry.group if entry else None):
                self.freed(look.infra)
            if entry is None:
                self._release_orphans(now, group)
            elif was != here:
                self.news(entry)
        for entry in self.entries.values():
            if observer.waits_for_absence(entry.group, now):
                self.news(entry)

    def _leases_on(self, infra: InfraName) -> Iterator[Lease]:
        for entry in self.entries.values():
            yield from (one for one in entry.group.leases if one.placement.infra == infra)

    def _ours(self, look: Look) -> Look:
        """Without what this store never issued, of groups that are not its own: nobody touches it.

        What bears the mark of a group that lives here is for `decide` to tell apart.
        """
        mine = tuple(
            one
            for one in look.leases
            if group_of(one.lease) in self.entries or self._is_issued(one.lease)
        )
        return look if len(mine) == len(look.leases) else replace(look, leases=mine)

    def _is_issued(self, lease: LeaseId) -> bool:
        if lease not in self._issued and self.store.issued(lease):
            self._issued.add(lease)
        return lease in self._issued

    def _release_orphans(self, sight: observer.Sight, group: GroupId) -> None:
        """What bears our mark and belongs to no group in the loop is not needed."""
        seen = sight.by_group.get(group, ())
        own = [one for one in seen if one.lease != group_lease(group)]
        for one in own or seen:
            self._actuator.release(Release(sight.look.infra, one.lease))

    # Agents

    def link(self, infra: InfraName, host: str) -> AgentLink:
        """The control stream to that host's agent, opened if need be."""
        key = (infra, host)
        if key not in self.links:
            fence = self._fences.of(self.infras[infra], HostRef(infra, host))
            link = AgentLink(
                self.infras[infra],
                host,
                hello=self._hello,
                clock=self.clock,
                listener=self,
                fence=fence,
            )
            self.links[key] = link
            self.spawn(f"link {infra} {host}", link.run())
        return self.links[key]

    def heard(self, link: AgentLink, leases: Mapping[str, Any], *, full: bool) -> None:
        """An agent's report."""
        touched: dict[GroupId, Entry] = {}
        for name, fact in leases.items():
            lease = LeaseId(name)
            entry = self.entries.get(group_of(lease))
            if entry is None:
                continue
            word = Word(link, *observer.reported(entry, fact))
            if entry.words.get(lease) != word:
                entry.words[lease] = word
                touched[entry.group.id] = entry
        if full:
            for entry in self.entries.values():
                if observer.forget_unknown(entry, link, leases):
                    touched[entry.group.id] = entry
        for entry in touched.values():
            self.news(entry)

    def told(self, event: Mapping[str, Any]) -> None:
        """Something that people should know, from an agent."""
        entry = self.entries.get(group_of(LeaseId(str(event.get("lease", "")))))
        if entry is None:
            return
        attempt = observer.attempt_of(entry.group, str(event.get("attempt", "")))
        about, number = (str(attempt.node), attempt.number) if attempt else ("", 0)
        code = str(event.get("code", "agent"))
        text = observer.told(entry.group, str(event.get("text", "")))
        entry.events.append(Event(self.clock.now(), code, about, text, number))
        self.news(entry)

    def needs(self, link: AgentLink, message: Mapping[str, Any]) -> None:
        """An agent asks for files of a group."""
        self._delivery.need(link.ref, message)

    def spoke(self, link: AgentLink) -> None:
        """The agent answered a ping, or speaks again after it was silent."""
        self._touch(link)

    def _touch(self, link: AgentLink) -> None:
        for entry in self.entries.values():
            here = any(
                (one.placement.infra, one.host) == (link.ref.infra, link.ref.host)
                for one in entry.group.leases
            )
            if here or any(word.link is link for word in entry.words.values()):
                self.news(entry)

    def _ask_agents(self, entry: Entry) -> None:
        """Ping the agents that were not heard since the newest end that waits to be judged."""
        unjudged = (one.ended_at for one in entry.group.attempts if not one.live | one.judged)
        ended_at = max(unjudged, default=0.0)
        for link in {word.link.ref: word.link for word in entry.words.values()}.values():
            if link.heard_at <= ended_at:
                link.ping()

    # Time

    def _mind_gap(self) -> None:
        now = self.clock.now()
        if now - self._alive_at > GAP:
            self._looking_since = now
        self._alive_at = now

    def _until_next_tick(self) -> float:
        """At most TICK; sooner when an agent will be suspect before that."""
        now, after = self.clock.now(), self.limits.suspect_after
        heard = [max(one.heard_at, self._looking_since) for one in self._links_heard()]
        return min([TICK, *(max(0.05, at + after - now + 0.01) for at in heard)])

    def _links_heard(self) -> list[AgentLink]:
        return [one for one in self.links.values() if not one.silent]

    async def _tick(self) -> None:
        """Notice gaps, silent agents and idle links."""
        while True:
            await self.clock.sleep(self._until_next_tick())
            self._mind_gap()
            now = self.clock.now()
            for key, link in list(self.links.items()):
                since = max(link.heard_at, self._looking_since)
                if not link.silent and now - since > self.limits.suspect_after:
                    link.silent = True
                    self._touch(link)
                if link.idle:
                    del self.links[key]
                    if (task := self._tasks.get(f"link {key[0]} {key[1]}")) is not None:
                        task.cancel()

"""Simulated infras: a pool of fixed hosts, and a cloud that makes a host for each lease.

A pool refuses what does not fit; a cloud keeps it pending and says that it is unschedulable. Both
keep the seven laws of `infra/api.py`, also when an acquire comes after its release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from argosy.model.group import Outcome, Stage
from argosy.model.ids import InfraName, LeaseId, NodeId
from argosy.model.needs import Capacity
from argosy.model.observed import Look, Refusal, SeenLease, SeenState
from argosy.model.plan import Offer, Placement
from argosy.testing.world_agent import Host

if TYPE_CHECKING:
    from argosy.testing.world import World

HOST_CPUS = 8.0  # of every host
MEMORY = 64.0  # GiB of every host
STEADY = 20.0  # seconds without a fault, after which a host is expected to answer


class Held:
    """One lease, as the infra has it."""

    __slots__ = ("cpus", "host", "lease", "leaving", "node", "seen", "state", "unschedulable")

    def __init__(self, lease: LeaseId, placement: Placement) -> None:
        self.lease = lease
        self.node: NodeId = placement.node
        self.cpus = placement.need.cpus or 0.0
        self.host: Host | None = None
        self.state = SeenState.PENDING
        self.unschedulable = False
        self.leaving = ""
        self.seen: SeenLease | None = None  # the value that looks share


class SimInfra:
    """A place that gives capacity."""

    def __init__(self, world: World, name: InfraName, *, elastic: float = 0.0) -> None:
        self.world, self.name = world, name
        self.elastic = elastic  # cores of a cloud in all; 0: a pool
        self.shrunk = 0.0  # cores that somebody else holds, of a cloud
        self.others: dict[str, float] = {}  # host -> cores that somebody else holds, of a pool
        self.hosts: dict[str, Host] = {}
        self.held: dict[LeaseId, Held] = {}
        self.made = 0
        self.died: set[LeaseId] = set()  # were there, and were lost with their host
        self.boot_after = (1.0, 8.0)  # seconds until a new host's agent runs
        self.blind_until = 0.0  # active time
        self.refusing: list[float] = []  # retry times of refusals to come; infinity: never

    def add_host(self, name: str, cpus: float) -> Host:
        """A host of a pool."""
        host = self.hosts[name] = Host(self.world, self, name, cpus, MEMORY)
        return host

    # --- what could be had -----------------------------------------------------------------------

    def used(self, host: Host | None) -> float:
        """Cores that leases hold there; None: in the whole cloud."""
        return sum(
            held.cpus
            for held in self.held.values()
            if (host is None or held.host is host) and not held.unschedulable
        )

    def free(self, host: Host | None) -> float:
        """Cores that are free there."""
        if host is None:
            return self.elastic - self.shrunk - self.used(None)
        return host.cpus - self.others.get(host.name, 0.0) - self.used(host)

    def offers(self) -> list[Offer]:
        """One line for each host that lives, or one for the whole cloud."""
        if self.elastic:
            one = Capacity(HOST_CPUS, MEMORY)  # of machines that it makes as they are asked for
            return [Offer(self.name, None, one, one, count=64, ready_after=5.0)]
        return [
            Offer(
                self.name,
                host.name,
                Capacity(max(0.0, self.free(host)) if host.alive else 0.0, MEMORY),
                Capacity(host.cpus, MEMORY),
            )
            for host in self.hosts.values()
        ]

    # --- verbs -----------------------------------------------------------------------------------

    def acquire(self, lease: LeaseId, placement: Placement) -> None:
        """Ensure that the lease was asked for."""
        if lease in self.held:
            return
        if self.refusing and not self.world.quiet:
            self.refuse(lease, self.refusing.pop(0))
            return
        held = Held(lease, placement)
        if self.elastic:
            self.held[lease] = held
            held.unschedulable = self.free(None) < 0.0
            if not held.unschedulable:
                self.build(held)
            return
        host = self.hosts.get(placement.host or "")
        if host is None or not host.alive or self.free(host) < held.cpus:
            self.refuse(lease, 5.0, full=True)
            return
        held.host = host
        self.held[lease] = held
        low, high = self.boot_after
        self.world.after(self.world.delay(low, high) * 0.1, self.up, held)

    def refuse(self, lease: LeaseId, retry: float, *, full: bool = False) -> None:
        """Say no; the news travels as every sighting does."""
        world = self.world
        if not full:
            world.strike("refused-never" if retry == float("inf") else "refused-later")
        at = world.clock()
        world.say(self.name, "refuses {}, retry in {}", lease, retry)
        refusal = Refusal(lease, "capacity/full", "no room", "wait", at, at + retry)
        world.after(world.delay(0.05, 0.3), world.server.refused, refusal)

    def build(self, held: Held) -> None:
        """A cloud makes a host of its own for the lease."""
        world = self.world
        self.made += 1
        held.host = Host(world, self, f"{self.name}-{self.made}", held.cpus, MEMORY)
        low, high = self.boot_after
        if world.chance(0.08):
            world.strike("slow-host")
            low, high = 40.0, 150.0
        world.after(world.delay(low, high), self.up, held)

    def up(self, held: Held) -> None:
        """The lease is there; its agent may be attached."""
        if self.held.get(held.lease) is not held or held.host is None:
            return
        if held.state is not SeenState.PENDING or not held.host.alive:
            return
        held.state, held.seen = SeenState.UP, None
        self.hosts.setdefault(held.host.name, held.host)
        self.world.say(self.name, "gives {} on {}", held.lease, held.host.name)
        held.host.timer(self.world.delay(0.2, 2.0), held.host.report_all)

    def release(self, lease: LeaseId) -> None:
        """Ensure that nothing of the lease is left."""
        held = self.held.get(lease)
        if held is None:
            return
        host = held.host
        if host is None or self.elastic or held.state is SeenState.GONE:
            self.world.after(self.world.delay(0.0, 3.0), self.destroy, lease)
        elif host.acts and not host.cut_down:
            host.release(lease)

    def destroy(self, lease: LeaseId) -> None:
        """A cloud deletes a host, or a pool forgets a dead one; works without its agent."""
        held = self.held.get(lease)
        if held is None:
            return
        if held.host is not None:
            held.host.wipe(lease)
            if self.elastic:
                held.host.die()
                self.hosts.pop(held.host.name, None)
        self.freed(lease)

    def freed(self, lease: LeaseId) -> None:
        """Nothing of the lease is left."""
        if self.held.pop(lease, None) is not None:
            self.world.say(self.name, "has freed {}", lease)
            self.schedule_pending()

    def schedule_pending(self) -> None:
        """A cloud gives what became free to those that wait."""
        if not self.elastic:
            return
        for held in self.held.values():
            if held.unschedulable and self.free(None) >= held.cpus:
                held.unschedulable, held.seen = False, None
                self.build(held)

    # --- looks -----------------------------------------------------------------------------------

    def look(self, began_at: float) -> Look:
        """Everything with our mark, as far as it can be seen now."""
        world = self.world
        if world.active < self.blind_until:
            world.strike("blind-look")
            return Look(self.name, began_at, blind_all=True)
        blind = frozenset(one.lease for one in self.held.values() if self.hidden(one))
        hide = world.server.chances.partial_look
        if hide and self.held and world.chance(hide):
            some = frozenset(one for one in self.held if world.rng.random() < 0.5)
            if some:
                world.strike("partial-look")
                blind |= some
        shown = tuple(self.shown(one) for one in self.held.values() if one.lease not in blind)
        return Look(self.name, began_at, shown, blind)

    def hidden(self, held: Held) -> bool:
        """A pool cannot see what is behind a cut, or on a host that died without a witness."""
        host = held.host
        if self.elastic or host is None or held.state is SeenState.GONE:
            return False
        return host.cut_up or host.cut_down or not host.alive

    def shown(self, held: Held) -> SeenLease:
        """What a look says of one lease."""
        if held.seen is None:
            where = held.host.name if held.host and held.state is not SeenState.PENDING else ""
            held.seen = SeenLease(
                held.lease,
                held.state,
                where,
                unschedulable=held.unschedulable,
                leaving=held.leaving if held.state is SeenState.UP else "",
            )
        return held.seen

    # --- faults ----------------------------------------------------------------------------------

    def lose(self, host: Host, how: str) -> None:
        """The host dies. `how`: "gone" and "absent" show in looks; "reboot": nobody knows."""
        host.die()
        mine = [held for held in self.held.values() if held.host is host]
        for held in mine:
            if how == "gone":
                held.state, held.seen = SeenState.GONE, None
            elif how == "absent":
                self.died.add(held.lease)
                host.wipe(held.lease, released=False)
                self.freed(held.lease)
        if self.elastic and how == "absent":
            self.hosts.pop(host.name, None)
        self.world.say(host.name, "dies ({})", how)

    def fence(self, host: Host) -> None:
        """The fence of a host runs out: it ends all that runs there, and goes on itself."""
        for program in list(host.programs.values()):
            host.remove(program)
        for shelf in host.shelves.values():
            for kept in shelf.attempts.values():
                if kept.stage < Stage.ENDED:
                    kept.stage, kept.outcome = Stage.ENDED, Outcome.LOST
                    kept.cause, kept.healthy = "fenced", False
                    self.world.truth.ended(kept.id, Outcome.LOST, None, "fenced")
        self.world.say(host.name, "ends all: its fence is out")

    def give_up(self, host: Host) -> None:
        """It is certain that the fence of a host is out: what is there is gone."""
        for held in self.held.values():
            if held.host is host:
                held.state, held.seen = SeenState.GONE, None
        self.world.say(self.name, "gives {} up", host.name)

    def drain(self, host: Host) -> bool:
        """The host is about to be taken back; whether something of ours is there."""
        mine = [held for held in self.held.values() if held.host is host and not held.leaving]
        for held in mine:
            held.leaving, held.seen = "it is being drained", None
        self.world.say(host.name, "is about to go")
        return bool(mine)

    def host_back(self, host: Host) -> None:
        """A host of the pool is back: what was asked for there can be given now."""
        for held in self.held.values():
            if held.host is host and held.state is SeenState.PENDING:
                self.world.after(self.world.delay(0.1, 0.8), self.up, held)

    def is_gone(self, lease: LeaseId) -> bool:
        """Looks say that it is gone."""
        held = self.held.get(lease)
        return held is not None and held.state is SeenState.GONE

    def answering(self, lease: LeaseId, name: str) -> str:
        """The host of that name, if it holds the lease and could have answered for a while."""
        world, held = self.world, self.held.get(lease)
        host = held.host if held is not None else None
        steady = world.clock() - STEADY
        blind = self.blind_until > world.active - STEADY or world.server.chances.partial_look
        stale = world.server.chances.late_look or world.server.looking_since > steady
        if host is None or blind or stale or not host.heard() or host.back_at > steady:
            return ""
        if host.name != name:
            return ""  # a late acquire made it anew elsewhere
        return host.name if not host.cut_down else ""

    def is_silent(self, lease: LeaseId) -> bool:
        """The agent there could not be heard for long enough to be suspect."""
        world, held = self.world, self.held.get(lease)
        if held is None or held.host is None or not held.host.quiet_since:
            return False
        heard = world.server.hosts_heard.get(held.host.name, 0.0) - world.server.offset
        last = max(held.host.quiet_since, heard)
        return world.clock() - last > world.limits.suspect_after + 0.1

    def was_lost(self, lease: LeaseId) -> bool:
        """It was lost with its host, though a late acquire may have made it anew."""
        return lease in self.died or self.is_gone(lease)

    def heal(self) -> None:
        """All faults of this infra and its hosts are over."""
        self.shrunk, self.blind_until = 0.0, 0.0
        self.others.clear()
        self.refusing.clear()
        for host in list(self.hosts.values()):
            host.cut_up = host.cut_down = False
            host.thaw()
            if not host.alive and not self.elastic:
                host.boot_again()
            host.restart_agent()
            host.hearing()
        self.schedule_pending()

    def shrink(self, share: float) -> float:
        """Somebody else takes a part of what is free; how many cores."""
        if self.elastic:
            taken = max(0.0, self.free(None)) * share
            self.shrunk += taken
            return taken
        taken = 0.0
        for host in self.hosts.values():
            part = max(0.0, self.free(host)) * share
            self.others[host.name] = self.others.get(host.name, 0.0) + part
            taken += part
        return taken

    def grow_back(self) -> None:
        """What somebody else took is free again."""
        self.shrunk = 0.0
        self.others.clear()
        self.schedule_pending()

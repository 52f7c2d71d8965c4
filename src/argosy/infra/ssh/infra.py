"""One pool of SSH hosts: the five verbs, and what can be asked of it beside them.

What is leased stands on the hosts (agent/leases/book.py). A host that does not answer is no
evidence of anything: what was seen there last is shown as it was, and marked as not seen. So is
what was asked of a host that is in the pool no more. A lease is gone when its host answers with
another boot id.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from argosy.errors import ArgosyError, CapacityError, NotFound, Unreachable
from argosy.infra.api import Health, HostRef, HostView
from argosy.infra.ssh.bootstrap import Agents, Place
from argosy.infra.ssh.cards import capacity, indices_by_card, taken
from argosy.infra.ssh.config import PoolConfig
from argosy.infra.ssh.failures import as_refusal
from argosy.infra.ssh.host import SshHost
from argosy.infra.ssh.ledger import Ledger
from argosy.infra.ssh.stream import PipeStream
from argosy.model.action import LeaseRequest
from argosy.model.ids import InfraName, LeaseId, ServerId, group_lease, group_of
from argosy.model.needs import Capacity, Need
from argosy.model.observed import Look, SeenLease, SeenState
from argosy.model.plan import Offer
from argosy.model.volumes import Volume

IDLE_EXIT: Final = 600.0  # seconds until an agent with nothing to do ends
LOOK_SECONDS: Final = 3.0  # that one host may keep a look waiting
VOLUME_SECONDS: Final = 600.0  # to remove what may be large
ACQUIRE_SECONDS: Final = 60.0  # a first visit included
NOTHING: Final = Capacity()


@dataclass(frozen=True, slots=True)
class Settings:
    """What a pool is opened with."""

    home: Path  # $ARGOSY_HOME
    server: ServerId
    now: Callable[[], float]
    agent: Callable[[], Agents]  # blocks
    idle_exit: float = IDLE_EXIT


@dataclass(frozen=True, slots=True)
class _Sight:
    """What one host shows in one look. `blind`: what may be there, and could not be seen."""

    leases: tuple[SeenLease, ...]
    blind: frozenset[LeaseId] = frozenset()


class Ssh:
    """One pool of hosts."""

    hosts_apart = True  # no host reaches into an isolated network on another

    def __init__(self, pool: PoolConfig, settings: Settings) -> None:
        self.name: InfraName = f"ssh/{pool.name}"
        self._pool, self._now = pool, settings.now
        self.fence_after = pool.fence_after
        self._ledger = Ledger(settings.home / "infra" / "ssh" / pool.name)
        self._change = asyncio.Event()
        self._seen: dict[str, dict[LeaseId, SeenLease]] = {}  # by host, as last seen
        self._indices: dict[LeaseId, tuple[int, ...]] = {}
        self._asking: set[LeaseId] = set()  # an acquire is under way
        self._hosts = {
            host.name: SshHost(
                host,
                Place(
                    pool.agent_home,
                    f"{settings.server}/{pool.name}/{host.name}",
                    settings.server,
                    settings.idle_exit,
                    host.address,
                ),
                settings.agent,
                settings.home,
                changed=self._change.set,
                asked=functools.partial(self._ledger.of, host.name),
            )
            for host in pool.hosts
        }

    # --- the five verbs --------------------------------------------------------------------------

    async def offers(self, need: Need) -> Sequence[Offer]:
        """Every host, whatever the need is: the planner counts. One that does not answer offers
        nothing now, and says why.
        """
        answers = await self._ask_all("look")
        return tuple(self._offer(host, answer) for host, answer in answers.items())

    def _offer(self, host: SshHost, answer: dict[str, Any] | ArgosyError) -> Offer:
        total = capacity(host.facts) if host.facts else NOTHING  # as it was when it answered last
        if isinstance(answer, ArgosyError):
            why = f"{answer.text} ({answer.hints[0]})" if answer.hints else answer.text
            return Offer(self.name, host.name, NOTHING, total, 0, silent=why, apart=True)
        free = total.minus(taken(host.facts, answer))
        network = str(answer.get("network") or "")
        return Offer(self.name, host.name, free, total, network=network, apart=True)

    async def acquire(self, request: LeaseRequest) -> None:
        """Make the lease on its host, and see that an agent runs there. Raises CapacityError,
        AccessError, InfraError.
        """
        host = self._hosts.get(request.placement.host or "")
        if host is None:
            raise CapacityError(
                f"{self.name} has no host {request.placement.host!r}",
                code="ssh/no-such-host",
                hint="`argosy infra check` lists its hosts",
            )
        zero = group_lease(request.group)
        self._asking |= {request.lease, zero}
        try:
            await asyncio.to_thread(self._ledger.note, host.name, request.lease)
            await asyncio.to_thread(self._ledger.note, host.name, zero)
            desk = await host.desk(ACQUIRE_SECONDS)
            answer = await desk.ask("take", **_wanted(request, host.facts))
            self._indices[request.lease] = tuple(answer["lease"]["indices"])
        except CapacityError:
            await asyncio.to_thread(self._ledger.strike, host.name, request.lease)
            raise
        except ArgosyError as error:
            raise as_refusal(error) from error
        finally:
            self._asking -= {request.lease, zero}
            self._change.set()

    async def release(self, lease: LeaseId) -> None:
        """Tell every host that may have it to end it; returns once they know. Raises Unreachable
        for a host that cannot be told: it has to be asked for again.
        """
        noted = await asyncio.to_thread(self._ledger.hosts_of, lease)
        found = [
            host
            for name, host in self._hosts.items()
            if name in noted or lease in self._seen.get(name, {})
        ]
        answers = await asyncio.gather(
            *(self._release_on(host, lease) for host in found), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        for name in noted - self._hosts.keys():
            raise self._no_host(name)

    async def sightings(self) -> Look:
        """Everything on the hosts that answer; of the others, what was seen there last."""
        began = self._now()
        asked = await asyncio.to_thread(self._ledger.by_host)
        sights = await asyncio.gather(
            *(self._sight(host, asked.pop(name, frozenset())) for name, host in self._hosts.items())
        )
        leases = {one.lease: one for sight in sights for one in sight.leases}
        blind = frozenset().union(*(sight.blind for sight in sights), *asked.values())
        return Look(self.name, began, tuple(leases.values()), blind)

    async def attach(self, host: HostRef) -> PipeStream:
        """A stream to the agent of the host, which is started if need be. Raises Unreachable."""
        known = self._hosts.get(host.host)
        if known is None:
            raise self._no_host(host.host)
        return await known.attach()

    def _no_host(self, host: str, more: str = "") -> Unreachable:
        return Unreachable(
            f"{self.name} has no host {host!r}{more}",
            code="ssh/no-such-host",
            hint=(
                "`argosy infra check` lists its hosts: put it back into the pool",
                f"or, when it is gone for ever, `argosy infra lost {host}`",
            ),
        )

    # --- what else it can do ---------------------------------------------------------------------

    def gpu_indices(self, lease: LeaseId) -> tuple[int, ...]:
        """The cards that a lease holds on its host; () when it holds none, or is unknown."""
        return self._indices.get(lease, ())

    async def changed(self) -> None:
        """Returns after the next change that was heard of."""
        await self._change.wait()
        self._change.clear()

    async def hosts(self) -> Sequence[HostView]:
        """Its hosts, with what is free and who holds the rest, whoever that is."""
        answers = await self._ask_all("look")
        views = []
        for host, answer in answers.items():
            if isinstance(answer, dict):
                total = capacity(host.facts)
                free = total.minus(taken(host.facts, answer))
                views.append(HostView(host.name, total, free, "up", tuple(answer["holders"])))
            else:
                total = capacity(host.facts) if host.facts else NOTHING
                views.append(HostView(host.name, total, NOTHING, "unreachable"))
        return tuple(views)

    async def forget_host(self, host: str) -> None:
        """Strike the notes of a host: what is there is shown again only if it answers."""
        self._seen.pop(host, None)
        for lease in await asyncio.to_thread(self._ledger.of, host):
            await asyncio.to_thread(self._ledger.strike, host, lease)
        self._change.set()

    async def check(self) -> Health:
        """Which hosts can be used, and what the others lack."""
        answers = await self._ask_all("look", seconds=ACQUIRE_SECONDS)
        errors = [answer for answer in answers.values() if isinstance(answer, ArgosyError)]
        works = len(errors) < len(answers)
        asked = await asyncio.to_thread(self._ledger.by_host)
        beside = sorted(asked.keys() - self._hosts.keys())
        errors += [self._no_host(name, " any more; it may have nodes yet") for name in beside]
        pythons = sorted({str(host.facts["python"]) for host in answers if host.facts})
        looks = [answer for answer in answers.values() if isinstance(answer, dict)]
        networks = sorted({str(one.get("network") or "not tried yet") for one in looks})
        one_host = f"{' or '.join(networks)} on one host, " if networks else ""
        facts = [
            ("hosts", f"{len(looks)} of {len(answers)} answer"),
            *((("python", ", ".join(pythons)),) if pythons else ()),
            ("network", f"{one_host}host on several"),
        ]
        problems = [error.text for error in errors]
        hints = [hint for error in errors for hint in error.hints]
        if self.fence_after:
            fence = f"{self.fence_after:g} s after the last acknowledged heartbeat"
            facts.append(("fence", f"a host ends what runs there {fence}"))
        return Health(self.name, works, tuple(facts), tuple(problems), tuple(dict.fromkeys(hints)))

    async def ensure_volume(self, volume: Volume) -> None:
        """See that the host that it names is one of the pool's. Raises NotFound."""
        host = volume.spec.host
        if host and host not in self._hosts:
            raise NotFound(
                f"{self.name} has no host {host!r}",
                code="ssh/no-such-host",
                hint=f"one of {', '.join(sorted(self._hosts)[:20])}",
            )

    async def delete_volume(self, volume: Volume) -> None:
        """Have the host where its bytes are remove them, if they are ours. Raises Unreachable,
        InfraError.
        """
        if volume.infra != self.name or not volume.spec.ours:
            return
        host = self._hosts.get(volume.host)
        if host is None:
            raise Unreachable(
                f"{volume.host}, where its bytes are, is no host of {self.name} any more",
                code="ssh/no-such-host",
                hint="put the host back into the pool, and delete it again",
            )
        desk = await host.desk(ACQUIRE_SECONDS)
        await desk.ask("remove-volume", volume=volume.id, seconds=VOLUME_SECONDS)

    async def volumes(self) -> Sequence[str]:
        """The ids of all whose bytes are on a host that answers."""
        answers = await self._ask_all("volumes")
        looks = [answer for answer in answers.values() if isinstance(answer, dict)]
        return sorted(name for answer in looks for name in answer["volumes"])

    async def close(self) -> None:
        """Let go of everything; what runs goes on."""
        await asyncio.gather(*(host.close() for host in self._hosts.values()))

    # --- looking ---------------------------------------------------------------------------------

    async def _ask_all(
        self, op: str, seconds: float = LOOK_SECONDS
    ) -> dict[SshHost, dict[str, Any] | ArgosyError]:
        """What each host answers, or why it does not."""

        async def one(host: SshHost) -> dict[str, Any] | ArgosyError:
            try:
                return await (await host.desk(seconds)).ask(op, seconds=seconds)
            except ArgosyError as error:
                return error

        hosts = tuple(self._hosts.values())
        return dict(zip(hosts, await asyncio.gather(*map(one, hosts)), strict=True))

    async def _sight(self, host: SshHost, asked: frozenset[LeaseId]) -> _Sight:
        """What one host shows, of which that was asked, or showed when it was seen last."""
        before = self._seen.get(host.name, {})
        try:
            desk = await host.desk(LOOK_SECONDS)
            answer = await desk.ask("look", seconds=LOOK_SECONDS)
        except ArgosyError as error:
            known = tuple(replace(one, text=error.text) for one in before.values())
            return _Sight(known, asked | before.keys())
        seen = {one.lease: one for one in self._as_seen(host.name, answer)}
        self._seen[host.name] = seen
        for lease in before.keys() - seen.keys() - self._asking:
            self._indices.pop(lease, None)
        for lease in asked - seen.keys() - self._asking:
            # Noted, asked for and not there: refused, or ended while nobody looked.
            await asyncio.to_thread(self._ledger.strike, host.name, lease)
        return _Sight(tuple(seen.values()))

    def _as_seen(self, host: str, answer: dict[str, Any]) -> list[SeenLease]:
        found = []
        for name, entry in answer["leases"].items():
            lease = LeaseId(name)
            if lease == group_lease(group_of(lease)):
                found.append(SeenLease(lease, SeenState.UP))
                continue
            self._indices[lease] = tuple(entry["indices"])
            if entry["boot"] == answer["boot_id"]:
                found.append(SeenLease(lease, SeenState.UP, host=host))
            else:
                text = f"host {host} of {self.name} was started anew since"
                found.append(SeenLease(lease, SeenState.GONE, host=host, text=text))
        return found

    # --- releasing -------------------------------------------------------------------------------

    async def _release_on(self, host: SshHost, lease: LeaseId) -> None:
        desk = await host.desk(LOOK_SECONDS)
        answer = await desk.ask("release", lease=lease)
        if not answer["there"] and lease not in self._asking:
            self._seen.get(host.name, {}).pop(lease, None)
            self._indices.pop(lease, None)
            await asyncio.to_thread(self._ledger.strike, host.name, lease)


def _wanted(request: LeaseRequest, facts: dict[str, Any]) -> dict[str, Any]:
    """What the desk is asked for; which cards have the name is known here only."""
    card = request.placement.accelerator
    indices = indices_by_card(facts) if card else {}
    named = [name for name in indices if card and name.lower() == card.name.lower()]
    return {
        "lease": request.lease,
        "group": request.group,
        "group_lease": group_lease(request.group),
        "group_name": request.group_name,
        "cpus": request.placement.need.cpus or 0.0,
        "memory_gib": request.placement.need.memory_gib or 0.0,
        "gpus": card.count if card else 0,
        "choices": list(indices[named[0]]) if named else [],
    }

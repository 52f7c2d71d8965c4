"""The local infra: this machine as one host, or a pool of virtual hosts on it.

    $ARGOSY_HOME/infra/local/machine/        infra `local`
    $ARGOSY_HOME/infra/local/pools/NAME/     infra `local/NAME`
        leases/ lock                         leases.py
        hosts/HOST/                          the home of its agent
        shared/                              what all agents of the pool share: networks, folders
        broken/HOST                          "lost" or "frozen"
        owed/HOST/LEASE                      released while the host was lost: to be told later

A release first marks the lease, then its agent ends what runs (it is revived if need be), and only
then the lease is gone; whoever asks again continues where an earlier life stopped.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from argosy.errors import ArgosyError, InfraError, InputError, Unreachable
from argosy.infra.api import Health, HostRef, HostView, LogEnd
from argosy.infra.local import processes, volumes
from argosy.infra.local.agent import Launch, LocalAgent, SocketStream, clean_environment
from argosy.infra.local.cards import BookLocked, CardBook
from argosy.infra.local.hosts import LocalHost
from argosy.infra.local.leases import Held, LeaseFiles, translated
from argosy.infra.local.logs import log_end
from argosy.infra.local.shares import Shares, words
from argosy.infra.local.trial import network_found
from argosy.model.action import LeaseRequest
from argosy.model.ids import AttemptId, GroupId, InfraName, LeaseId, group_of
from argosy.model.needs import Need
from argosy.model.observed import Look, SeenLease, SeenState
from argosy.model.plan import Offer
from argosy.model.volumes import Volume

RELEASE_SECONDS: Final = 600.0  # that one try of a release may take: the longest grace, and more
RELEASE_TRIES: Final = 5
COMMAND_SECONDS: Final = 60.0  # of the agent's other commands
LOCK_TRIES: Final = 20  # to lock the machine's reservation file, which anybody may hold
LOCK_PAUSE: Final = 0.05  # seconds between them
LOG: Final = logging.getLogger("argosy.infra.local")
T = TypeVar("T")
LOST, FROZEN = "lost", "frozen"
WHAT: Final = ("kill-agent", "freeze", "thaw", "lose", "restore")


@dataclass(frozen=True, slots=True)
class Pool:
    """What a local infra is made of."""

    name: InfraName
    folder: Path
    hosts: tuple[LocalHost, ...]
    launch: Launch
    cards: CardBook


class Local:
    """One local infra: the five verbs, and what can be asked of it beside them."""

    def __init__(self, pool: Pool, now: Callable[[], float]) -> None:
        self.name = pool.name
        self._pool, self._now = pool, now
        self._hosts = {host.name: host for host in pool.hosts}
        self._files = LeaseFiles(pool.folder)
        self._shares = Shares(pool.name, pool.hosts, self._files, pool.cards)
        self._agents: dict[str, LocalAgent] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._change = asyncio.Event()
        self._looked: tuple[tuple[Held, ...], tuple[SeenLease, ...]] = ((), ())
        self._asked: list[tuple[LeaseRequest, asyncio.Future[Held]]] = []
        self._claimed = False  # this process has written down the cards of earlier leases

    # --- the five verbs --------------------------------------------------------------------------

    async def offers(self, need: Need) -> Sequence[Offer]:
        """Every host, whatever the need is: the planner counts. Raises InfraError, AccessError."""
        others = await _patiently(self._cards_of_others)
        network = network_found(self._pool.folder / "shared")
        return tuple(
            Offer(
                infra=self.name,
                host=host.name,
                free=self._shares.free(host, others),
                total=host.total,
                count=0 if self._broken(host.name) else 1,
                price_per_hour_usd=host.price_per_hour_usd,
                elastic_cpus=host.elastic,
                network=network,
                own_machine=True,
            )
            for host in self._hosts.values()
        )

    async def acquire(self, request: LeaseRequest) -> None:
        """Make the lease, and see that an agent runs for it. Raises CapacityError, InfraError."""
        held = await _patiently(lambda: self._take(request))
        try:
            if not held.released and not held.gone and not self._broken(held.host):
                self._agent(held.host).start()
        except ArgosyError as error:
            if not self._agent(held.host).untouched:
                return  # it holds what an agent made: whoever attaches hears the same error
            # Nothing can run here, so the acquire never was.
            await asyncio.to_thread(self._files.drop, held.lease)
            raise InfraError(error.text, code=error.code, hint=error.hints, retry=10.0) from error
        finally:
            self._change.set()

    async def release(self, lease: LeaseId) -> None:
        """Mark the lease, and let it be ended; returns at once."""
        held = await asyncio.to_thread(self._files.change, lease, released=True)
        if held is not None:
            self._spawn(f"release {lease}", self._end(held))

    async def sightings(self) -> Look:
        """Everything that is there, whoever made it. Raises InfraError."""
        began = self._now()
        if not self._claimed:
            self._claimed = True
            try:
                await self._cards_of_others()
            except BookLocked as error:
                self._claimed = False  # the next look tries again
                LOG.warning("%s: %s", self.name, error.text)
        leases = self._files.all()
        for host in {held.host for held in leases if held.host and not held.gone}:
            if self._broken(host) == LOST:  # an earlier life was killed while it lost the host
                self._spawn(f"lose {host}", self._lose(host))
        if self._looked[0] is not leases:
            self._looked = (leases, tuple(_seen(held) for held in leases))
        return Look(self.name, began, self._looked[1])

    async def attach(self, host: HostRef) -> SocketStream:
        """A stream to the agent of the host, which is started if need be. Raises Unreachable."""
        if state := self._broken(host.host):
            raise Unreachable(
                f"host {host.host} of {self.name} is {state}",
                code=f"host/{state}",
                hint=f"`argosy chaos {'restore-host' if state == LOST else 'thaw-host'}` mends it",
            )
        return await self._agent(host.host).attach()

    async def _take(self, request: LeaseRequest) -> Held:
        """The lease; all that a gang asks for in one breath are made under one lock."""
        answer: asyncio.Future[Held] = asyncio.get_running_loop().create_future()
        self._asked.append((request, answer))
        self._spawn("take", self._take_asked())
        return await answer

    async def _take_asked(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, []
            requests = [request for request, _ in asked]
            found: Sequence[Held | ArgosyError]
            try:
                found = await asyncio.to_thread(self._shares.take, requests, self._broken)
            except ArgosyError as error:
                found = [error] * len(asked)
            except OSError as error:
                found = [translated(error, self._pool.folder)] * len(asked)
            except BaseException:
                for _, answer in asked:
                    answer.cancel()
                raise
            for (_, answer), one in zip(asked, found, strict=True):
                if answer.done():  # nobody waits for it any more
                    continue
                if isinstance(one, ArgosyError):
                    answer.set_exception(one)
                else:
                    answer.set_result(one)

    # --- what else it can do ---------------------------------------------------------------------

    def gpu_indices(self, lease: LeaseId) -> tuple[int, ...]:
        """The cards that a lease holds on its host; () when it holds none, or is unknown."""
        held = self._files.find(lease)
        return held.indices if held is not None else ()

    async def changed(self) -> None:
        """Returns after the next change that this process makes."""
        await self._change.wait()
        self._change.clear()

    async def hosts(self) -> Sequence[HostView]:
        """Its hosts, with what is free and who holds the rest."""
        others = await _patiently(self._cards_of_others)
        leases = self._files.all()
        return tuple(
            HostView(
                host=host.name,
                total=host.total,
                free=self._shares.free(host, others),
                state=self._broken(host.name) or "up",
                holders=tuple(str(held.lease) for held in leases if held.host == host.name),
            )
            for host in self._hosts.values()
        )

    async def check(self) -> Health:
        """What works here, from a trial that an agent's command makes, and from its agents."""
        try:
            facts = await self._command("facts", "--home", str(self._pool.folder))
            health = _health(self.name, self._pool.hosts, json.loads(facts))
        except (ArgosyError, ValueError) as error:
            health = Health(
                self.name, False, problems=(str(error),), hints=("read the text above",)
            )
        ailing = [words for agent in self._agents.values() if (words := agent.ailing())]
        return _with_ailing(health, ailing, len(self._hosts))

    async def log_end(self, host: str, attempt: AttemptId, most: int) -> LogEnd | None:
        """The last bytes of an attempt's log as they lie on the disk, or None."""
        if "/" in attempt or host not in self._hosts:
            return None
        output = self._pool.folder / "hosts" / host / "attempts" / attempt / "output"
        return await asyncio.to_thread(log_end, output, most)

    async def ensure_volume(self, volume: Volume) -> None:
        """See that its folder is there, where it has to be. Raises NotFound."""
        await asyncio.to_thread(volumes.check, volume)

    async def delete_volume(self, volume: Volume) -> None:
        """Remove its bytes, where they are ours. Raises InfraError."""
        if volume.spec.ours:
            await asyncio.to_thread(volumes.remove, self._pool.folder / "shared", volume)

    async def volumes(self) -> Sequence[str]:
        """The ids of all whose bytes are here."""
        return await asyncio.to_thread(volumes.names, self._pool.folder / "shared")

    async def break_host(self, host: str, what: str) -> None:
        """Break a host on purpose, or mend it. Raises InputError for what it does not know."""
        if what not in WHAT:
            raise InputError(
                f"{what!r} is nothing to do to a host", hint=f"one of {', '.join(WHAT)}"
            )
        if host not in self._hosts:
            known = ", ".join(self._hosts)
            raise InputError(f"{self.name} has no host {host!r}", hint=f"one of {known}")
        agent = self._agent(host)
        match what:
            case "kill-agent":
                await asyncio.to_thread(processes.kill_one, agent.pid())
            case "freeze":
                self._mark_broken(host, FROZEN)
                await asyncio.to_thread(processes.freeze, agent.home, agent.pid())
            case "thaw":
                await self._thaw(host)
            case "lose":
                self._mark_broken(host, LOST)
                await self._lose(host)
            case "restore":
                await self._restore(host)
        self._change.set()

    async def forget_host(self, host: str) -> None:
        """Drop the leases of a host; its agent is told once it can be attached to."""
        for held in self._files.all():
            if held.host == host:
                if not self._agent(host).untouched:
                    _touch(self._pool.folder / "owed" / host / held.lease)
                await asyncio.to_thread(self._files.drop, held.lease)
        if not self._broken(host):
            self._spawn(f"settle {host}", self._settle(host))
        self._change.set()

    async def close(self) -> None:
        """Let go of everything; what runs goes on."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for agent in self._agents.values():
            agent.forget()

    # --- ending ----------------------------------------------------------------------------------

    async def _end(self, held: Held) -> None:
        """End a released lease. What fails is tried again when the release is asked for again."""
        if not held.host:
            await self._end_network(group_of(held.lease))
        elif held.gone or self._broken(held.host) == LOST:
            if not self._agent(held.host).untouched:
                _touch(self._pool.folder / "owed" / held.host / held.lease)
        elif not self._agent(held.host).untouched:
            await self._tell_release(held.host, held.lease)
        await asyncio.to_thread(self._files.drop, held.lease)
        self._change.set()

    async def _tell_release(self, host: str, lease: LeaseId) -> None:
        """Returns when the agent says that nothing of the lease is left.

        An agent that dies meanwhile is revived; so it is for a few times.
        """
        async with asyncio.timeout(RELEASE_SECONDS):
            for _ in range(RELEASE_TRIES):
                stream = await self.attach(HostRef(self.name, host))
                try:
                    order = {"op": "release", "lease": lease}
                    await stream.write(json.dumps(order).encode() + b"\n")
                    answer = await stream.readline()
                finally:
                    await stream.close()
                if answer:
                    break
        if not answer or "ok" not in json.loads(answer):
            raise Unreachable(f"the agent on {host} did not end {lease}: {answer!r}")

    async def _end_network(self, group: GroupId) -> None:
        """End what is group-wide, once no lease of the group is here."""
        if any(held.host and group_of(held.lease) == group for held in self._files.all()):
            raise InfraError(f"{group} still has leases on {self.name}", code="local/in-use")
        folder = self._pool.folder / "shared" / "groups" / group
        if any((folder / name).exists() for name in ("net", "volumes", "made.json")):
            await self._command("end-network", "--group", group)

    async def _command(self, name: str, *words: str) -> str:
        """Run a command of the agent; what it printed. Raises InfraError."""
        shared = str(self._pool.folder / "shared")
        command = self._pool.launch.command(name, *words, "--shared", shared)
        try:
            done = await asyncio.to_thread(
                subprocess.run,
                command,
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMMAND_SECONDS,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise InfraError(f"{name}: {error}", code="local/command", retry=2.0) from error
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()[-400:]
            raise InfraError(f"{name}: {said}", code="local/command", retry=2.0)
        return done.stdout.decode("utf-8", "replace")

    # --- breaking --------------------------------------------------------------------------------

    def _broken(self, host: str) -> str:
        """ "lost", "frozen", or "" """
        try:
            return (self._pool.folder / "broken" / host).read_text()
        except OSError:
            return ""

    def _mark_broken(self, host: str, state: str) -> None:
        path = self._pool.folder / "broken" / host
        if state:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_text(state)
        else:
            path.unlink(missing_ok=True)

    async def _lose(self, host: str) -> None:
        """Kill everything of the host; only then its leases are gone, so nothing runs twice."""
        agent = self._agent(host)
        left = await asyncio.to_thread(processes.kill, agent.home, agent.pid())
        if left:
            raise InfraError(
                f"processes {left} of {host} cannot be killed", code="local/unkillable"
            )
        for held in self._files.all():
            if held.host == host and not held.gone:
                text = f"host {host} of {self.name} was lost"
                await asyncio.to_thread(self._files.change, held.lease, gone=text)
        self._change.set()

    async def _thaw(self, host: str) -> None:
        if self._broken(host) == FROZEN:
            agent = self._agent(host)
            await asyncio.to_thread(processes.thaw, agent.home, agent.pid())
            self._mark_broken(host, "")
            self._spawn(f"settle {host}", self._settle(host))

    async def _restore(self, host: str) -> None:
        """Bring the host back, empty; its agent learns what was released meanwhile."""
        await self._thaw(host)
        self._mark_broken(host, "")
        self._spawn(f"settle {host}", self._settle(host))

    async def _settle(self, host: str) -> None:
        owed = self._pool.folder / "owed" / host
        for path in sorted(owed.iterdir()) if owed.exists() else ():
            await self._tell_release(host, LeaseId(path.name))
            path.unlink()

    # --- small things ----------------------------------------------------------------------------

    async def _cards_of_others(self) -> set[int]:
        return await asyncio.to_thread(self._shares.cards_of_others)

    def _agent(self, host: str) -> LocalAgent:
        if host not in self._agents:
            known = self._hosts.get(host)
            self._agents[host] = LocalAgent(
                home=self._pool.folder / "hosts" / host,
                shared=self._pool.folder / "shared",
                launch=self._pool.launch,
                capacity=known.capacity() if known is not None and not known.real else None,
            )
        return self._agents[host]

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Do it beside, once at a time; the only place where tasks begin."""
        if name in self._tasks:
            work.close()
            return

        async def quietly() -> None:
            try:
                await work
            except (ArgosyError, OSError, ValueError, TimeoutError) as error:
                # What it was to bring about is not seen, so it is asked for again.
                LOG.warning("%s %s: %s", self.name, name, error or type(error).__name__)
            finally:
                self._tasks.pop(name, None)

        self._tasks[name] = asyncio.create_task(quietly(), name=f"{self.name} {name}")


async def _patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Try again for a second while somebody else has the reservation file locked."""
    for _ in range(LOCK_TRIES - 1):
        try:
            return await work()
        except BookLocked:
            await asyncio.sleep(LOCK_PAUSE)
    return await work()


def _seen(held: Held) -> SeenLease:
    state = SeenState.GONE if held.gone else SeenState.UP
    return SeenLease(held.lease, state, host=held.host, text=held.gone)


def _touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch()


def _health(name: InfraName, hosts: Sequence[LocalHost], facts: dict[str, Any]) -> Health:
    """What the facts of an agent mean for people."""
    network = facts.get("network") or {}
    shown = [
        ("hosts", str(len(hosts))),
        _sizes(hosts),
        ("network", str(network.get("mode", "unknown"))),
        ("names", str(network.get("names", "unknown"))),
        ("way out", "yes" if network.get("way_out") else "no"),
        ("python", str(facts.get("python", ""))),
    ]
    works = network.get("mode") not in (None, "none")
    isolated = network.get("mode") == "isolated"
    failed = f"{network.get('failed_step')}: {network.get('reason')}"
    problems = () if isolated else (f"the network is not isolated ({failed})",)
    hint = str(network.get("hint") or "")
    hints = (hint,) if hint and not isolated else ()
    return Health(name, works, tuple(shown), problems, hints)


def _sizes(hosts: Sequence[LocalHost]) -> tuple[str, str]:
    """How large they are: each of them, or how many of each kind there are."""
    kinds = Counter(words(host.total) for host in hosts)
    if len(kinds) <= 1:
        return "each", next(iter(kinds), "")
    return "sizes", "; ".join(f"{count} x {what}" for what, count in kinds.items())


def _with_ailing(health: Health, ailing: Sequence[str], hosts: int) -> Health:
    """The same with what is known of agents that end again and again."""
    if not ailing:
        return health
    hint = (
        "mend what the last words name, or stop who sends the signal (the kernel, where memory is "
        "short); what ran goes on, and the next agent finds it again"
    )
    return replace(
        health,
        works=health.works and len(ailing) < hosts,
        problems=(*health.problems, *ailing),
        hints=(*health.hints, hint),
    )

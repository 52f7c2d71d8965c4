"""Which infras there are: names -> infra objects, from one frozen settings value.

An infra from outside is a package with an entry point in the group `argosy.infra`: a function that
takes `InfraSettings` and gives the infras it knows.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from argosy.errors import Conflict
from argosy.infra import configuration
from argosy.infra.api import Infra, Stream
from argosy.infra.config_file import user_home
from argosy.infra.local.agent import IDLE_EXIT, Launch, LocalAgent
from argosy.infra.local.cards import CardBook
from argosy.infra.local.hosts import this_machine
from argosy.infra.local.infra import Local, Pool
from argosy.infra.local.pools import read_pools
from argosy.infra.pack import compiled_agent, pod_files
from argosy.model.ids import InfraName, ServerId

READER_IDLE: Final = 20.0  # seconds that an agent stays which somebody had read kept logs


@dataclass(frozen=True, slots=True)
class InfraSettings:
    """What infras are made from."""

    home: Path  # $ARGOSY_HOME
    server: ServerId
    now: Callable[[], float]  # the server's clock
    idle_exit: float = IDLE_EXIT  # seconds until an agent with nothing to do ends


def open_infras(settings: InfraSettings) -> dict[InfraName, Infra]:
    """Every infra, by name. Raises InputErrors for a wrong configuration file. May block."""
    configuration.read(settings.home / configuration.FILE)  # all that is wrong, at once
    found: dict[InfraName, Infra] = {}
    makers = [
        _local,
        _ssh,
        _kubernetes,
        *(entry.load() for entry in entry_points(group=configuration.GROUP)),
    ]
    for make in makers:
        for infra in make(settings):
            if infra.name in found:
                raise Conflict(f"two packages bring an infra {infra.name!r}", code="infra/twice")
            found[infra.name] = infra
    return found


def _local(settings: InfraSettings) -> Iterable[Infra]:
    """`local`, and `local/NAME` for every virtual pool."""
    folder = settings.home / "infra" / "local"
    launch = _launch(settings, settings.idle_exit)
    cards = CardBook(settings.server)
    machine = Pool("local", folder / "machine", (this_machine(),), launch, cards)
    yield Local(machine, settings.now)
    for one in read_pools(settings.home / configuration.FILE):
        pool = Pool(f"local/{one.name}", folder / "pools" / one.name, one.hosts, launch, cards)
        yield Local(pool, settings.now)


def _launch(settings: InfraSettings, idle_exit: float) -> Launch:
    """How agents are started on this machine."""
    program = compiled_agent(settings.home / "agent")
    return Launch(sys.executable, program, settings.server, idle_exit)


def reader_of(launch: Launch) -> Callable[[Path], Awaitable[Stream]]:
    """How the kept logs in an agent's home are read: by an agent that is started there."""
    locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    async def reader(home: Path) -> Stream:
        # When a group has ended all its hosts are asked for at once: one starts the agent.
        async with locks.setdefault(home, asyncio.Lock()):
            # Never told to forget its child: that is collected when it has nothing to do any more.
            return await LocalAgent(home, home, launch, kept=True).attach()

    return reader


def _ssh(settings: InfraSettings) -> Iterable[Infra]:
    """`ssh/NAME` for every pool of hosts; loaded only where there is one."""
    from argosy.infra.ssh import config

    pools = config.read_pools(settings.home / configuration.FILE, user_home())
    if not pools:
        return
    from argosy.infra.ssh.bootstrap import Agents
    from argosy.infra.ssh.infra import Settings, Ssh

    @functools.cache
    def agent() -> Agents:
        return Agents.packed(settings.home / "agent")

    for pool in pools:
        yield Ssh(pool, Settings(settings.home, settings.server, settings.now, agent))


def _kubernetes(settings: InfraSettings) -> Iterable[Infra]:
    """`kubernetes/NAME` for every context in config.yaml, and for those of the kubeconfig, which
    are left alone until they are asked for; loaded only where there is one.
    """
    from argosy.infra.kubernetes.config import read_contexts
    from argosy.infra.kubernetes.kubeconfig import found_contexts

    named = read_contexts(settings.home / configuration.FILE)
    every, current = found_contexts(os.environ, user_home())
    found = [one for one in every if one.name not in {mine.name for mine in named}]
    if not named and not found:
        return
    from argosy.infra.kubernetes.door import Door
    from argosy.infra.kubernetes.infra import Kubernetes, Settings

    def agent() -> dict[str, bytes]:
        return pod_files(settings.home / "agent")

    reader = reader_of(_launch(settings, idle_exit=READER_IDLE))
    said = configuration.read(settings.home / configuration.FILE).get("server", {})
    address = str(said.get("advertise") or "")
    door = Door(address, settings.home / "infra" / "kubernetes") if address else None
    given = Settings(settings.home, settings.server, settings.now, agent, reader, door)
    for one in named:
        yield Kubernetes(one, given)
    for one in found:
        words = {f"kubernetes/{one.name}"}
        if one.name == current and not named:
            words |= {"kubernetes", "kubernetes/*"}
        yield Kubernetes(one, given, wakes_on=frozenset(words))

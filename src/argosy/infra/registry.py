"""Which infras there are: names -> infra objects, from one frozen settings value.

An infra from outside is a package with an entry point in the group `argosy.infra`: a function that
takes `InfraSettings` and gives the infras it knows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from argosy.errors import Conflict
from argosy.infra.api import Infra
from argosy.infra.local.agent import IDLE_EXIT, Launch
from argosy.infra.local.cards import CardBook
from argosy.infra.local.hosts import this_machine
from argosy.infra.local.infra import Local, Pool
from argosy.infra.local.pools import read_pools
from argosy.infra.pack import compiled_agent, packed_agent
from argosy.model.ids import InfraName, ServerId

GROUP: Final = "argosy.infra"


@dataclass(frozen=True, slots=True)
class InfraSettings:
    """What infras are made from."""

    home: Path  # $ARGOSY_HOME
    server: ServerId
    now: Callable[[], float]  # the server's clock
    idle_exit: float = IDLE_EXIT  # seconds until an agent with nothing to do ends


def open_infras(settings: InfraSettings) -> dict[InfraName, Infra]:
    """Every infra, by name. Raises InputErrors for a wrong configuration file. May block."""
    found: dict[InfraName, Infra] = {}
    makers = [_local, _ssh, *(entry.load() for entry in entry_points(group=GROUP))]
    for make in makers:
        for infra in make(settings):
            if infra.name in found:
                raise Conflict(f"two packages bring an infra {infra.name!r}", code="infra/twice")
            found[infra.name] = infra
    return found


def _local(settings: InfraSettings) -> Iterable[Infra]:
    """`local`, and `local/NAME` for every virtual pool."""
    folder = settings.home / "infra" / "local"
    launch = Launch(
        python=sys.executable,
        program=compiled_agent(settings.home / "agent"),
        server=settings.server,
        idle_exit=settings.idle_exit,
    )
    cards = CardBook(settings.server)
    machine = Pool("local", folder / "machine", (this_machine(),), launch, cards)
    yield Local(machine, settings.now)
    for one in read_pools(settings.home / "config.yaml"):
        pool = Pool(f"local/{one.name}", folder / "pools" / one.name, one.hosts, launch, cards)
        yield Local(pool, settings.now)


def _ssh(settings: InfraSettings) -> Iterable[Infra]:
    """`ssh/NAME` for every pool of hosts; loaded only where there is one."""
    from argosy.infra.ssh import config

    pools = config.read_pools(settings.home / "config.yaml", Path.home())
    if not pools:
        return
    from argosy.infra.ssh.bootstrap import Agent
    from argosy.infra.ssh.infra import Settings, Ssh

    def agent() -> Agent:
        return Agent.of(packed_agent(settings.home / "agent"))

    for pool in pools:
        yield Ssh(pool, Settings(settings.home, settings.server, settings.now, agent))

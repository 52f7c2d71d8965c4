"""What all attempts of one agent share: the loop, the journal, the launcher, the host's facts."""

from __future__ import annotations

from typing import Dict, Optional

from .environment import User
from .gpus import Reservations
from .groups import Group
from .journal import Journal
from .logs.tailer import Tailer
from .loop import Loop
from .probes import Prober
from .processes.execution import Launcher
from .processes.folder import Identity
from .records import dataclass, field
from .store.stock import Stock


@dataclass
class Place:
    """One host as its agent has it."""

    home: str
    shared: str
    boot: str
    me: Identity
    """The agent itself."""
    user: User
    gpus_on_host: int
    loop: Loop
    journal: Journal
    launcher: Launcher
    tailer: Tailer
    gpus: Reservations
    stock: Stock
    image: Optional[Dict[str, str]] = None
    """In a container of its own: what its image sets for all programs."""
    probers: Dict[str, Prober] = field(default_factory=dict)

    def prober(self, group: Group) -> Prober:
        """Who asks probes in the group's network."""
        name = str(group.facts["id"])
        assert group.network is not None
        if name not in self.probers:
            self.probers[name] = Prober(self.loop, group.network)
        self.probers[name].follow(group.network)
        return self.probers[name]

    def drop_prober(self, group: str) -> None:
        """The group is gone."""
        prober = self.probers.pop(group, None)
        if prober is not None:
            prober.close()

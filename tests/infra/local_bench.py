"""How the suite gets local infras: this machine, and a pool of virtual hosts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from argosy.infra.api import Breaks, Infra
from argosy.infra.local.infra import Local
from argosy.infra.local.processes import of_host
from argosy.infra.registry import InfraSettings, open_infras
from argosy.model.ids import NodeId, ServerId
from argosy.model.needs import Accelerator, Need
from argosy.model.plan import Placement

POOL = "local: {pools: {rack: {hosts: 3, cpus: 8, memory: 32, accelerators: H100:8, price: 2.5}}}\n"
IDLE_EXIT = 60.0


@dataclass
class LocalBench:
    """A bench over one local infra."""

    home: Path
    name: str
    infra: Local
    need: Need
    largest: Need
    beyond: Need
    part: str  # resources of which three nodes fit
    most: str  # of which three fit, and no fourth
    network: str = ""
    shared_sight: bool = True
    lost_at_once: bool = True
    lost_stay: bool = True
    opened: list[Local] = field(default_factory=list)

    @property
    def breaks(self) -> Breaks:
        return self.infra

    def placement(self, index: int) -> Placement:
        return self._place(index, self.need, None)

    def full(self) -> Placement:
        card = self.largest.accelerators[0] if self.largest.accelerators else None
        return self._place(0, self.largest, card)

    def never(self) -> Placement:
        return self._place(0, self.beyond, self.beyond.accelerators[0])

    def _place(self, index: int, need: Need, card: Accelerator | None) -> Placement:
        host = "localhost" if self.name == "local" else f"rack-{index}"
        return Placement(NodeId("t", index), self.name, host, need, card)

    async def again(self) -> Infra:
        self.opened.append(an_infra(self.home, self.name))
        return self.opened[-1]


def an_infra(home: Path, name: str) -> Local:
    """One infra of a home, as a server would open it."""
    settings = InfraSettings(home, ServerId("suite"), time.time, idle_exit=IDLE_EXIT)
    infra = open_infras(settings)[name]
    assert isinstance(infra, Local)
    return infra


def configure(home: Path) -> None:
    """A home with the pool."""
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(POOL)


@asynccontextmanager
async def local_bench(home: Path, name: str, network: str = "") -> AsyncIterator[LocalBench]:
    """A bench; afterwards its agents are ended, and nothing of their hosts may be left."""
    configure(home)
    h100 = Accelerator("H100", 8)
    bench = LocalBench(
        home,
        name,
        an_infra(home, name),
        need=Need() if name == "local" else Need(cpus=4.0),
        largest=Need() if name == "local" else Need(cpus=8.0, accelerators=(h100,)),
        beyond=Need(accelerators=(Accelerator("H100", 9),)),
        part=f"{{infra: {name}}}" if name == "local" else f"{{infra: {name}, cpus: 4}}",
        most=f"{{infra: {name}, cpus: 6}}",
        network=network,
    )
    try:
        yield bench
    finally:
        for infra in (bench.infra, *bench.opened):
            await infra.close()
        await asyncio.to_thread(end_agents, home)


def end_agents(home: Path) -> None:
    """End every agent of a home and look whether something of its hosts is left."""
    for folder in home.glob("infra/local/**/hosts/*"):
        for pid in agents_in(folder):
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(pid) == pid:  # a child of an agent finishes what it does
                    os.kill(pid, signal.SIGTERM)
        wait_until(lambda folder=folder: not agents_in(folder), f"an agent in {folder} goes on")
        wait_until(lambda folder=folder: not list(of_host(folder, 0)), f"{folder} has processes")


def agents_in(folder: Path) -> list[int]:
    """The agents of a host, one that is only being started included."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            if b"run" in words and str(folder).encode() in words and running(int(name)):
                found.append(int(name))
    return found


def running(pid: int) -> bool:
    """Whether the process is there, zombies not counted."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(true, what: str, seconds: float = 30.0) -> None:
    """Wait for a condition; fails with `what`."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)

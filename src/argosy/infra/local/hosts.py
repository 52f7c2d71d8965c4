"""The hosts of a local infra: what this machine has, and what a virtual host pretends to have."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any, Final

from argosy.infra.card_names import card_name
from argosy.model.needs import Accelerator, Capacity

THIS_MACHINE: Final = "localhost"
GIB: Final = float(1 << 30)
QUERY: Final = ("--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits")
QUERY_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Cards:
    """Cards of one kind, and the indices under which programs know them."""

    name: str
    indices: tuple[int, ...]
    memory_gib: float = 0.0  # of one card; 0: not known


@dataclass(frozen=True, slots=True)
class LocalHost:
    """One host of a local infra."""

    name: str
    cpus: float
    memory_gib: float
    cards: tuple[Cards, ...] = ()
    price_per_hour_usd: float = 0.0
    elastic: bool = False  # cores and memory are not counted: this machine itself
    real: bool = False  # the cards are there: they are shared with all users of the machine

    @property
    def total(self) -> Capacity:
        """What it has when nobody is there."""
        cards = tuple(Accelerator(one.name, len(one.indices), one.memory_gib) for one in self.cards)
        return Capacity(self.cpus, self.memory_gib, cards)

    def indices_of(self, accelerator: str) -> tuple[int, ...]:
        """The indices of the cards of that name, in any letter case."""
        wanted = accelerator.lower()
        return tuple(i for one in self.cards if one.name.lower() == wanted for i in one.indices)

    def capacity(self) -> dict[str, Any]:
        """What its agent is told that it has."""
        gpus = [
            {"index": index, "name": one.name, "memory_gib": one.memory_gib}
            for one in self.cards
            for index in one.indices
        ]
        return {"cpus": self.cpus, "memory_gib": self.memory_gib, "gpus": gpus}


def this_machine() -> LocalHost:
    """This machine. Blocking where it has GPUs: it asks `nvidia-smi`."""
    return LocalHost(
        name=THIS_MACHINE,
        cpus=float(len(os.sched_getaffinity(0))),
        memory_gib=_memory_gib(),
        cards=_real_cards(),
        elastic=True,
        real=True,
    )


def _memory_gib() -> float:
    """The machine's memory, or what a memory cgroup leaves of it."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:
                total = min(total, int(file.read()))
        except (OSError, ValueError):
            continue
    return total / GIB


def _real_cards() -> tuple[Cards, ...]:
    """The GPUs that `nvidia-smi` lists; () where there is none, or it does not answer."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ()
    try:
        done = subprocess.run(
            [command, *QUERY],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=QUERY_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return cards_of(done.stdout.decode("utf-8", "replace"))


def cards_of(listing: str) -> tuple[Cards, ...]:
    """The cards in a listing of `index, name, memory in MiB`, equal ones together."""
    found: dict[tuple[str, float], list[int]] = {}
    for line in listing.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 3 and parts[0].isdigit():
            digits = parts[2].replace(".", "", 1)
            memory = round(float(parts[2]) / 1024.0, 1) if digits.isdigit() else 0.0
            found.setdefault((card_name(parts[1], memory), memory), []).append(int(parts[0]))
    return tuple(Cards(name, tuple(some), memory) for (name, memory), some in found.items())

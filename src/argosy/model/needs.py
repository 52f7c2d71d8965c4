"""What a task requires of one node, and whether a host has it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Accelerator:
    """So many cards of one name. An empty name with `memory_gib`: any card at least that large."""

    name: str
    count: int = 1
    memory_gib: float = 0.0

    def __str__(self) -> str:
        return f"{self.name or f'{self.memory_gib:g}GB+'}:{self.count}"


@dataclass(frozen=True, slots=True)
class Need:
    """What one node of a task requires. None: the user said nothing about it."""

    infra: str | None = None  # "local", "ssh/lab", "kubernetes", "aws/us-east-1", with * wildcards
    cpus: float | None = None  # at least so many cores
    cpus_exact: bool = False
    memory_gib: float | None = None  # at least so much
    memory_exact: bool = False
    accelerators: tuple[Accelerator, ...] = ()  # any one of these; () means none
    accelerators_ordered: bool = False  # in order of preference, the first best
    use_spot: bool = False
    instance_type: str | None = None
    disk_gib: float | None = None
    image: str | None = None
    ports: tuple[str, ...] = ()  # "8080" or "1000-2000"
    labels: tuple[tuple[str, str], ...] = ()
    max_price_per_hour_usd: float | None = None
    other: tuple[tuple[str, str], ...] = ()  # parsed and checked; carried out by some infras only

    def describe(self) -> str:
        """The need in a few words: `4 cpus, 16 GiB, H100:8`."""
        parts = []
        if self.accelerators:
            parts.append(" or ".join(str(one) for one in self.accelerators))
        if self.cpus:
            parts.append(f"{self.cpus:g} cpu{'' if self.cpus == 1 else 's'}")
        if self.memory_gib:
            parts.append(f"{self.memory_gib:g} GiB")
        return ", ".join(parts) or "any host"


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a host has, or has free."""

    cpus: float = 0.0
    memory_gib: float = 0.0
    accelerators: tuple[Accelerator, ...] = field(default=())
    disk_gib: float | None = None  # for what nodes write; None: nobody counts it there

    def minus(self, used: Capacity) -> Capacity:
        """What is left after `used` is taken; may be negative for all but cards."""
        left = tuple(
            Accelerator(mine.name, mine.count - used.count_of(mine.name), mine.memory_gib)
            for mine in self.accelerators
        )
        disk = None if self.disk_gib is None else self.disk_gib - (used.disk_gib or 0.0)
        return Capacity(self.cpus - used.cpus, self.memory_gib - used.memory_gib, left, disk)

    def count_of(self, accelerator: str) -> int:
        """How many cards of that name, in any letter case."""
        wanted = accelerator.lower()
        return sum(one.count for one in self.accelerators if one.name.lower() == wanted)

    def which(self, choices: tuple[Accelerator, ...]) -> Accelerator | None:
        """The first of `choices` that is here, by the name the host gives it; None: none is."""
        for choice in choices:
            for mine in self.accelerators:
                named = mine.name.lower() == choice.name.lower()
                large = not choice.name and mine.memory_gib >= choice.memory_gib
                if (named or large) and mine.count >= choice.count:
                    return Accelerator(mine.name, choice.count, mine.memory_gib)
        return None


def fits(need: Need, free: Capacity, *, elastic_cpus: bool = False) -> bool:
    """Whether a host with `free` can take one node of `need`.

    `elastic_cpus`: cores and memory are not counted there (this machine as `local`).
    """
    if need.accelerators and free.which(need.accelerators) is None:
        return False
    if elastic_cpus:
        return True
    if need.disk_gib and free.disk_gib is not None and need.disk_gib > free.disk_gib:
        return False
    return (need.cpus or 0.0) <= free.cpus and (need.memory_gib or 0.0) <= free.memory_gib


def usage(need: Need, accelerator: Accelerator | None) -> Capacity:
    """What one node of `need` takes, once `accelerator` was chosen for it."""
    cards = (accelerator,) if accelerator else ()
    return Capacity(need.cpus or 0.0, need.memory_gib or 0.0, cards, need.disk_gib)

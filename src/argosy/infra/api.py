"""What every infra must be: five verbs, all of them "ensure" or "look".

The seven laws, each a test in `testing/infra_suite.py`: 1 acquire twice with one id is once. 2 What
acquire began is seen, or was never made. 3 Release may come before, during or long after acquire.
4 `sightings` shows what another process or an earlier life of this one made. 5 No verb waits for
capacity and none polls. 6 A refusal is CapacityError, AccessError or InfraError, with `retry` and a
hint. 7 The mark is on the thing from its creation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from argosy.model.action import LeaseRequest
from argosy.model.ids import AttemptId, InfraName, LeaseId
from argosy.model.needs import Capacity, Need
from argosy.model.observed import Look
from argosy.model.plan import Offer
from argosy.model.volumes import Volume


@dataclass(frozen=True, slots=True)
class HostRef:
    """A machine, VM or pod with our agent on it."""

    infra: InfraName
    host: str


class Stream(Protocol):
    """A byte stream to an agent, as asyncio has it."""

    async def read(self, most: int = 65536) -> bytes:
        """Up to so many bytes; b"" at the end."""

    async def readline(self) -> bytes:
        """One line with its newline; less, or b"", at the end.

        Whoever is cancelled loses nothing: the next call goes on where this one was.
        """

    async def write(self, data: bytes) -> None:
        """Send; waits while the other side is slow."""

    async def close(self) -> None:
        """End the stream; may be repeated."""


class Infra(Protocol):
    """A place that gives capacity with our agent on it."""

    name: InfraName

    async def offers(self, need: Need) -> Sequence[Offer]:
        """What could be had for one node of `need`; promises nothing."""

    async def acquire(self, request: LeaseRequest) -> None:
        """Ensure that the lease was asked for. Raises CapacityError, AccessError, InfraError."""

    async def release(self, lease: LeaseId) -> None:
        """Ensure that nothing of the lease is left; an unknown one is silent."""

    async def sightings(self) -> Look:
        """Everything that bears our mark."""

    async def attach(self, host: HostRef) -> Stream:
        """A stream to the agent on that host. Raises Unreachable."""


@dataclass(frozen=True, slots=True)
class Health:
    """What `argosy infra check` says of one infra."""

    name: InfraName
    works: bool
    facts: tuple[tuple[str, str], ...] = ()  # name, value: "network" -> "isolated"
    problems: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostView:
    """One host of a fixed pool, for people."""

    host: str
    total: Capacity
    free: Capacity
    state: str  # "up", "frozen", "lost"
    holders: tuple[str, ...] = ()  # leases


@runtime_checkable
class Checks(Protocol):
    """An infra that can say what works here."""

    async def check(self) -> Health:
        """Try it, do not guess."""

    async def hosts(self) -> Sequence[HostView]:
        """Its hosts, where it has a fixed set."""


@runtime_checkable
class Sleeps(Protocol):
    """An infra that is left alone until somebody names it."""

    async def named_check(self, name: str) -> tuple[Health, Sequence[HostView]]:
        """What `check` and `hosts` say when somebody names it so: where that means it, it is asked,
        this once.
        """


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of an attempt's log, read without its agent."""

    offset: int  # of the first byte, as the agent counts
    at: float  # when the last byte was written
    data: bytes


@runtime_checkable
class KeepsLogs(Protocol):
    """An infra whose hosts' disks can be read from here."""

    async def log_end(self, host: str, attempt: AttemptId, most: int) -> LogEnd | None:
        """The last bytes of a log, `most` at the most; None when there are none."""


@runtime_checkable
class Breaks(Protocol):
    """An infra whose hosts can be broken on purpose."""

    async def break_host(self, host: str, what: str) -> None:
        """`what`: "kill-agent", "freeze", "thaw", "lose", "restore"."""


@runtime_checkable
class Forgets(Protocol):
    """An infra that keeps notes of what is on a host, beside what the host itself says."""

    async def forget_host(self, host: str) -> None:
        """Give up all that is there: it is shown no more, unless the host is seen again."""


@runtime_checkable
class Volumes(Protocol):
    """An infra that has something to do for volumes beside mounting them.

    `volume.spec` is complete. What was made bears `volume.id`; nothing else is ever removed.
    """

    async def ensure_volume(self, volume: Volume) -> None:
        """Make it, or see that it can be made when it is mounted. Raises InputError, NotFound,
        InfraError.
        """

    async def delete_volume(self, volume: Volume) -> None:
        """Remove its bytes where they are ours (`volume.spec.ours`); an unknown one is silent.
        Raises Unreachable, InfraError.
        """

    async def volumes(self) -> Sequence[str]:
        """The ids of all whose bytes are here."""


@runtime_checkable
class Exports(Protocol):
    """An infra that can show what it would make of leases."""

    name: InfraName

    async def manifests(self, requests: Sequence[LeaseRequest], *, whole: bool) -> str:
        """All that it would make, as text in its own format; nothing is made.

        `whole`: with the agent's bytes, so that it could be used as it is; else made to be read.
        """


@runtime_checkable
class Watches(Protocol):
    """An infra that tells of changes."""

    async def changed(self) -> None:
        """Returns when a look would differ from the last one, or at any earlier time."""

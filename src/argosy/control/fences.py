"""When a host that is out of reach has ended what ran there, because its fence has run out.

Where a user sets a fence, a watchdog on the host ends everything so many seconds after the
*sending* of the last heartbeat that was acknowledged. Here it is known of each host how long its
fence may be at most, and when a heartbeat of it was acknowledged last; the two together are
evidence, which is shown as a look shows it: the leases there are GONE.

What must hold (docs/decisions/0009): `held` is never less than what the host has, and `acked`
never earlier than the sending of any heartbeat that the host may see acknowledged. So `held` is
written down before a longer fence is asked for, and lowered only by the word of the host; and
`acked` begins with this server, since an earlier one may have acknowledged until then. A host may
have been left alone for long before it takes a lease: the silence about a lease begins when it was
held, for nothing was assigned to it before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from argosy.infra.api import HostRef
from argosy.model.action import Reason
from argosy.model.group import Lease, LeaseState
from argosy.model.ids import InfraName
from argosy.model.observed import Look, SeenLease, SeenState

FILE: Final = "fences.json"
KILL_SECONDS: Final = 3.0  # that the watchdog may need, on a host that is busy
MARGIN: Final = 2.0
DRIFT: Final = 1e-3  # of the fence: the clocks of two machines differ by less
SUSPECT: Final = "agent-suspect"  # the code of the reason that `decide` gives
HINT: Final = (
    "what ran there is ended by the host itself by then, and is replaced elsewhere; "
    "if it answers before, all goes on"
)


@runtime_checkable
class HasFence(Protocol):
    """An infra whose hosts are to have a fence."""

    fence_after: float  # seconds; 0: none


class Fences:
    """The fences of all hosts, of one server."""

    def __init__(self, folder: Path | None, began_at: float) -> None:
        """`folder` keeps what must outlive the server; None: nothing does. Raises OSError."""
        self._file = folder / FILE if folder is not None else None
        self._began_at = began_at
        self._held: dict[HostRef, float] = _read(self._file)
        self._acked: dict[HostRef, float] = {}

    def of(self, infra: object, host: HostRef) -> HostFence:
        """What the link to that host has to do with it."""
        return HostFence(self, host, infra.fence_after if isinstance(infra, HasFence) else 0.0)

    def ask(self, host: HostRef, seconds: float) -> None:
        """The host is about to be told its fence. Raises OSError when that can't be kept."""
        if host in self._held:
            self._keep(host, max(self._held[host], seconds) if seconds else 0.0)

    def told(self, host: HostRef, seconds: float, now: float) -> None:
        """The host says which fence it has (0: none), in a heartbeat or when it introduces itself.

        Raises OSError.
        """
        self._acked[host] = now
        self._keep(host, seconds)

    def _keep(self, host: HostRef, seconds: float) -> None:
        if self._held.get(host, 0.0) == seconds:
            return
        held = {**self._held, host: seconds}
        held = {one: value for one, value in held.items() if value > 0}
        if self._file is not None:
            _write(self._file, held)
        self._held = held

    # What follows

    def silent_since(self, host: HostRef, held_at: float = 0.0) -> float:
        """When a heartbeat of that host may have been acknowledged last, that counts for a lease
        which is held since `held_at`.
        """
        return max(self._acked.get(host, 0.0), self._began_at, held_at)

    def due(self, host: HostRef, held_at: float = 0.0) -> float:
        """When it is certain that nothing of a lease runs there that is held since `held_at`,
        unless the host is heard before; infinity: never by itself.
        """
        seconds = self._held.get(host)
        if seconds is None:
            return float("inf")
        since = self.silent_since(host, held_at)
        return since + seconds * (1 + DRIFT) + KILL_SECONDS + MARGIN

    def shown(self, look: Look, leases: Iterable[Lease], now: float) -> Look:
        """The look, with what was on hosts whose fence has run out."""
        gone = {}
        for lease in leases if self._held else ():
            host = _host_of(lease, look.infra)
            if host is not None and now > self.due(host, lease.held_at):
                text = f"the fence of {words(self._held[host])} ran out"
                gone[lease.id] = SeenLease(lease.id, SeenState.GONE, lease.host, text)
        if not gone:
            return look
        others = (one for one in look.leases if one.lease not in gone)
        return replace(look, leases=(*others, *gone.values()), blind=look.blind - gone.keys())

    def explained(
        self, reasons: Sequence[Reason], leases: Iterable[Lease], now: float, after: float
    ) -> tuple[Reason, ...]:
        """The reasons, with when hosts are given up that are silent for longer than `after`."""
        told: dict[str, Reason] = {}
        for lease in leases if self._held else ():
            host = _host_of(lease, lease.placement.infra)
            if host is None or host not in self._held:
                continue
            since = self.silent_since(host, lease.held_at)
            if now - since <= after:
                continue
            due = self.due(host, lease.held_at)
            at = datetime.fromtimestamp(due, UTC).strftime("%H:%M:%S UTC")
            fence = words(self._held[host])
            text = f"{lease.host} is silent: given up at {at}, when its fence of {fence} is out"
            node = str(lease.placement.node)
            told[node] = Reason(SUSPECT, node, text, since, HINT)
        if not told:
            return tuple(reasons)
        others = (one for one in reasons if one.code != SUSPECT or one.about not in told)
        return (*others, *told.values())


class HostFence:
    """The fence of one host, as the link to it sees it. `seconds`: what the host is to have."""

    def __init__(self, fences: Fences, host: HostRef, seconds: float) -> None:
        self.seconds = seconds
        self._fences, self._host = fences, host

    def ask(self) -> None:
        """The host is about to be told. Raises OSError."""
        self._fences.ask(self._host, self.seconds)

    def told(self, seconds: float, now: float) -> None:
        """The host said which fence it has. Raises OSError."""
        self._fences.told(self._host, seconds, now)


def words(seconds: float) -> str:
    """A fence as one writes it in a file: `10m`."""
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s"


def _host_of(lease: Lease, infra: InfraName) -> HostRef | None:
    """Where a lease is that may yet be lost; None when it is none."""
    there = lease.state is LeaseState.HELD and not lease.lost and lease.host
    return HostRef(infra, lease.host) if there and lease.placement.infra == infra else None


def _read(file: Path | None) -> dict[HostRef, float]:
    """What is kept. A file that can't be read says nothing: then nobody is given up."""
    try:
        body: Mapping[str, Mapping[str, float]] = json.loads(file.read_text()) if file else {}
        return {
            HostRef(infra, host): float(seconds)
            for infra, hosts in body.items()
            for host, seconds in hosts.items()
        }
    except (FileNotFoundError, ValueError, AttributeError, TypeError):
        return {}


def _write(file: Path, held: Mapping[HostRef, float]) -> None:
    """By rename, and on the disk when this returns."""
    body: dict[str, dict[str, float]] = {}
    for host, seconds in held.items():
        body.setdefault(host.infra, {})[host.host] = seconds
    fresh = file.with_suffix(".part")
    with fresh.open("w") as out:
        json.dump(body, out)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)  # a shorter fence that comes back with the old name gives up too early
    finally:
        os.close(folder)

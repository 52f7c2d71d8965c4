"""Which leases were asked of which host, kept here: what to look for while a host is out of reach.

    $ARGOSY_HOME/infra/ssh/POOL/HOST/LEASE     an empty file, made before the host is asked

What a lease is stands on its host alone. Everything here blocks, as long as a small file takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from argosy.errors import InfraError
from argosy.model.ids import LeaseId


@dataclass(frozen=True, slots=True)
class Ledger:
    """The leases of one pool."""

    folder: Path

    def note(self, host: str, lease: LeaseId) -> None:
        """The host is about to be asked for it. Raises InfraError."""
        if "/" in lease or lease.startswith("."):
            raise InfraError(f"{lease!r} is no lease", code="ssh/strange-lease")
        try:
            (self.folder / host).mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.folder / host / lease).touch()
        except OSError as error:
            raise InfraError(
                f"a lease cannot be written down: {error}",
                code="ssh/ledger",
                hint=f"make {self.folder} writable, or free some space",
                retry=10.0,
            ) from error

    def strike(self, host: str, lease: LeaseId) -> None:
        """Nothing of it is there any more; silent when it was not written down."""
        (self.folder / host / lease).unlink(missing_ok=True)

    def of(self, host: str) -> frozenset[LeaseId]:
        """What was asked of a host."""
        try:
            return frozenset(LeaseId(path.name) for path in (self.folder / host).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()

    def by_host(self) -> dict[str, frozenset[LeaseId]]:
        """What was asked of each host of which something was, be it in the pool still or not."""
        try:
            names = [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return {}
        return {name: found for name in names if (found := self.of(name))}

    def hosts_of(self, lease: LeaseId) -> frozenset[str]:
        """The hosts that a lease was asked of."""
        return frozenset(path.parent.name for path in self.folder.glob(f"*/{lease}"))

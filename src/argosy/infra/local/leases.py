"""The leases of a local infra: one file each, changed under a lock, so that any process sees them.

    POOL/lock                 flocked while capacity is counted and taken
    POOL/leases/LEASE.json    written whole, by rename; the file name is the mark

A file is there from the moment a lease is made until nothing of it runs. `released` and `gone` are
set once and stay: a released lease is not given again, a lost one does not come back.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from argosy.clock import wall
from argosy.errors import AccessError, InfraError
from argosy.model.ids import LeaseId
from argosy.model.needs import Accelerator, Capacity

SUFFIX: Final = ".json"
SETTLED_SECONDS: Final = 0.1  # a folder that changed later than so may change again unseen


@dataclass(frozen=True, slots=True)
class Held:
    """One lease, as its file has it."""

    lease: LeaseId
    host: str = ""  # "": group-wide
    node: str = ""
    group_name: str = ""
    cpus: float = 0.0
    memory_gib: float = 0.0
    card: str = ""
    indices: tuple[int, ...] = ()
    released: bool = False  # not needed any more; gone once nothing of it runs
    gone: str = ""  # why it was lost; "": it was not

    @property
    def use(self) -> Capacity:
        """What it takes of its host."""
        cards = (Accelerator(self.card, len(self.indices)),) if self.card else ()
        return Capacity(self.cpus, self.memory_gib, cards)


class LeaseFiles:
    """The files of one pool. Everything here blocks, for as long as a small file takes."""

    def __init__(self, pool: Path) -> None:
        self._pool = pool
        self._folder = pool / "leases"
        self._seen: tuple[Held, ...] = ()
        self._seen_at = -1  # modification time of the folder when it was read

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who changes leases, in this and any other process."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(self._pool / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise translated(error, self._pool) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def all(self) -> tuple[Held, ...]:
        """Every lease, by name. Cheap when nothing has changed. Raises InfraError."""
        try:
            changed = self._folder.stat().st_mtime_ns
        except FileNotFoundError:
            return ()
        if changed != self._seen_at:
            self._seen = self._read()
            settled = wall() - changed / 1e9 > SETTLED_SECONDS
            self._seen_at = changed if settled else -1
        return self._seen

    def _read(self) -> tuple[Held, ...]:
        found = []
        for name in sorted(os.listdir(self._folder)):
            if name.endswith(SUFFIX) and not name.startswith("."):
                held = self.find(LeaseId(name.removesuffix(SUFFIX)))
                if held is not None:
                    found.append(held)
        return tuple(found)

    def find(self, lease: LeaseId) -> Held | None:
        """One lease; None when there is none. Raises InfraError when its file is damaged."""
        path = self._path(lease)
        try:
            fields = json.loads(path.read_bytes())
            return Held(**{**fields, "indices": tuple(fields["indices"])})
        except FileNotFoundError:
            return None
        except OSError as error:
            raise translated(error, path) from error
        except (ValueError, TypeError, KeyError) as error:
            raise InfraError(
                f"{path} is damaged: {error}",
                code="local/damaged-lease",
                hint=f"`argosy infra clean local`, or remove {path} when nothing of it runs",
            ) from error

    def put(self, held: Held) -> None:
        """Write a lease; the caller holds the lock. Raises InfraError."""
        path = self._path(held.lease)
        fresh = path.with_name(f".{path.name}.new")
        try:
            fresh.write_text(json.dumps(asdict(held)))
            os.rename(fresh, path)
        except OSError as error:
            raise translated(error, path) from error
        self._seen_at = -1

    def change(self, lease: LeaseId, *, released: bool = False, gone: str = "") -> Held | None:
        """Mark a lease that is there as released or gone; what it is then. Takes the lock."""
        with self.locked():
            held = self.find(lease)
            if held is None:
                return None
            changed = replace(held, released=held.released or released, gone=held.gone or gone)
            if changed != held:
                self.put(changed)
            return changed

    def drop(self, lease: LeaseId) -> None:
        """Forget a lease of which nothing runs any more; silent when there is none."""
        self._path(lease).unlink(missing_ok=True)
        self._seen_at = -1

    def _path(self, lease: LeaseId) -> Path:
        if "/" in lease or lease.startswith("."):
            raise InfraError(f"{lease!r} is no lease", code="local/strange-lease")
        return self._folder / (lease + SUFFIX)


def translated(error: OSError, path: Path) -> InfraError | AccessError:
    """What a file operation on the state folder failed of, in words."""
    about = f"{error.filename or path}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return InfraError(
            f"no room for a lease: {about}",
            code="local/disk-full",
            hint="free some space under $ARGOSY_HOME",
            retry=10.0,
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return AccessError(
            f"the state folder cannot be written: {about}",
            code="local/not-writable",
            hint="make it writable, or set ARGOSY_HOME to a folder that is",
        )
    return InfraError(f"the state folder does not work: {about}", code="local/files", retry=10.0)

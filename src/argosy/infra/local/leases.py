"""The leases of a local infra: one file each, changed under a lock, so that any process sees them.

    POOL/lock                 flocked while capacity is counted and taken; counts the changes
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
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from argosy.errors import AccessError, InfraError
from argosy.model.ids import LeaseId

SUFFIX: Final = ".json"
STALE: Final = -1


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


class LeaseFiles:
    """The files of one pool, and a copy of them in memory that is known to be fresh or not.

    The lock file counts the changes: odd while one is being made, so that whoever reads without the
    lock knows whether the copy still holds. Everything here blocks, as long as a small file takes.
    """

    def __init__(self, pool: Path) -> None:
        self._pool = pool
        self._folder = pool / "leases"
        self._guard = threading.RLock()  # of what follows, within this process
        self._known: dict[LeaseId, Held] = {}
        self._all: tuple[Held, ...] | None = None  # the values of `_known`; None: changed since
        self._count = STALE  # of changes, when `_known` was right
        self._fd = -1  # of the lock file, while it is held

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who changes leases, in this and any other process. Raises InfraError."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(self._pool / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise translated(error, self._pool) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            with self._guard:
                self._refresh()
                self._fd = fd
                try:
                    yield
                finally:
                    self._fd = -1
                    self._settle(fd)
        finally:
            os.close(fd)

    def all(self) -> tuple[Held, ...]:
        """Every lease; the same object when nothing has changed. Raises InfraError."""
        with self._guard:
            self._refresh()
            if self._all is None:
                self._all = tuple(self._known.values())
            return self._all

    def find(self, lease: LeaseId) -> Held | None:
        """One lease; None when there is none. Raises InfraError."""
        with self._guard:
            self._refresh()
            return self._known.get(lease)

    def put(self, held: Held) -> None:
        """Write a lease; the caller holds the lock. Raises InfraError."""
        path = self._path(held.lease)
        fresh = path.with_name(f".{path.name}.new")
        try:
            self._begin()
            fresh.write_text(json.dumps(asdict(held)))
            os.rename(fresh, path)
        except OSError as error:
            raise translated(error, path) from error
        self._known[held.lease] = held

    def change(self, lease: LeaseId, *, released: bool = False, gone: str = "") -> Held | None:
        """Mark a lease that is there as released or gone; what it is then. Takes the lock."""
        if self.find(lease) is None:
            return None
        with self.locked():
            held = self.find(lease)
            if held is None:
                return None
            changed = replace(held, released=held.released or released, gone=held.gone or gone)
            if changed != held:
                self.put(changed)
            return changed

    def drop(self, lease: LeaseId) -> None:
        """Forget a lease of which nothing runs any more; silent when there is none. Locks."""
        with self.locked():
            if lease in self._known:
                self._begin()
                self._path(lease).unlink(missing_ok=True)
                del self._known[lease]

    def _refresh(self) -> None:
        """Read everything again, unless the copy is known to be right."""
        count = self._counted()
        if self._fd >= 0 or (count == self._count and count != STALE):
            return
        self._known = self._read()
        self._all = None
        right = count % 2 == 0 and self._counted() == count
        self._count = count if right else STALE

    def _begin(self) -> None:
        """The files are about to differ from what others know."""
        assert self._fd >= 0, "a lease is changed without the lock"
        self._all = None
        if self._count % 2 == 0 or self._count == STALE:
            self._count = max(self._counted(), 0) | 1
            os.pwrite(self._fd, b"%020d" % self._count, 0)

    def _settle(self, fd: int) -> None:
        """The change is over: files and copy are the same again."""
        if self._count == STALE:
            self._count = max(self._counted(), 0) | 1  # somebody was killed amid a change
        if self._count % 2:
            self._count += 1
            os.pwrite(fd, b"%020d" % self._count, 0)

    def _counted(self) -> int:
        """How many changes there were; STALE when nobody knows."""
        try:
            return int((self._pool / "lock").read_bytes())
        except (OSError, ValueError):
            return STALE

    def _read(self) -> dict[LeaseId, Held]:
        try:
            names = sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise translated(error, self._folder) from error
        leases = [LeaseId(name.removesuffix(SUFFIX)) for name in names if name.endswith(SUFFIX)]
        found = {lease: self._read_one(lease) for lease in leases}
        return {lease: held for lease, held in found.items() if held is not None}

    def _read_one(self, lease: LeaseId) -> Held | None:
        """One file; None when it is gone meanwhile."""
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
                hint=f"remove {path} once nothing of it runs, then restart the server",
                retry=10.0,
            ) from error

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

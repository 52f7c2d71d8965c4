"""The files of a running server in its home: the lock, the socket, and who it is.

server.lock   held by flock while a server runs; holds its pid
server.json   pid, start time, version; gone after a clean stop
server.sock   the API, mode 0600
server.log    JSON lines
store.db      the store
store.reserve room that a full disk gets
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Final

import argosy
from argosy.errors import AccessError, Conflict

PATH_BYTES_MOST: Final = 107  # of a unix socket's address, without its final zero
BACKLOG: Final = 512


class Home:
    """The folder of one server. `lock` first; `close` lets go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = -1

    @property
    def store(self) -> Path:
        """The store's file."""
        return self.folder / "store.db"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.folder / "server.log"

    @property
    def address(self) -> Path:
        """The socket of the API."""
        return self.folder / "server.sock"

    def lock(self) -> None:
        """Make the folder and take its lock. Raises Conflict that names the server that has it."""
        path = self.folder / "server.lock"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            held = self._lock >= 0 and error.errno in (errno.EAGAIN, errno.EACCES)
            raise self._taken() if held else self._unusable(error) from error

    def close(self) -> None:
        """Remove what names this server, and let go of the lock. May be repeated."""
        if self._lock >= 0:
            for name in ("server.sock", "server.json"):
                (self.folder / name).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1

    def announce(self, started_at: float) -> None:
        """Write `server.json`, whole or not at all."""
        told = {
            "pid": os.getpid(),
            "start_time": start_time(),
            "started_at": started_at,
            "version": argosy.__version__,
        }
        temporary = self.folder / "server.json.new"
        temporary.write_text(json.dumps(told) + "\n", encoding="utf-8")
        temporary.replace(self.folder / "server.json")

    def listen(self) -> socket:
        """The socket, listening; only its owner may connect. The lock must be held."""
        self.address.unlink(missing_ok=True)  # of a server that was killed
        listener = socket(AF_UNIX, SOCK_STREAM)
        folder = -1
        try:
            address = os.fsencode(self.address)
            if len(address) > PATH_BYTES_MOST:
                folder = os.open(self.folder, os.O_PATH | os.O_DIRECTORY)
                address = b"/proc/self/fd/%d/server.sock" % folder
            listener.bind(address)
            self.address.chmod(0o600)
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            raise self._unusable(error) from error
        finally:
            if folder >= 0:
                os.close(folder)
        return listener

    def _taken(self) -> Conflict:
        pid = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip()
        os.close(self._lock)
        self._lock = -1
        if (self.folder / "server.json").exists() and not self.address.exists():
            return Conflict(
                f"a server runs on {self.folder} (pid {pid or 'unknown'}), but its socket is gone",
                code="server/running",
                hint="`argosy server stop` ends it, programs go on",
            )
        return Conflict(
            f"a server runs on {self.folder} already: pid {pid or 'unknown'}",
            code="server/running",
            hint=(
                "use it: every `argosy` command finds it",
                "or stop it with `argosy server stop`; set ARGOSY_HOME for a second one",
            ),
        )

    def _unusable(self, error: OSError) -> AccessError:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        return AccessError(
            f"the folder for Argosy's state, {self.folder}, can't be used: "
            f"{error.strerror or error}",
            code="home/not-writable",
            hint="set ARGOSY_HOME to a folder on a local disk that you may write",
        )


def start_time() -> int:
    """When this process started, in clock ticks since the boot: with the pid, who it is."""
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])

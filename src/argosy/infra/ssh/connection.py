"""One connection to one host: OpenSSH's master, and what is run over it.

The first who comes opens the master; all others, and other processes of the same home, go through
it. What is run is a script for `sh`, sent on standard input before the data: the command line that
the user's login shell sees there is the same short one for all shells, and holds no word of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from argosy.errors import AccessError, ArgosyError, Unreachable
from argosy.infra.ssh.config import HostConfig
from argosy.infra.ssh.failures import translated
from argosy.infra.ssh.stream import PipeStream
from argosy.infra.stream import READ_AHEAD

CONNECT_SECONDS: Final = 10
OPEN_SECONDS: Final = 30.0  # for the master: the way there may lead over other hosts
PERSIST_SECONDS: Final = 60  # an idle master ends after so long
FOLDER_MAX: Final = 60  # bytes; the socket's path may have 90, its name has 20
OPTIONS: Final[Mapping[str, str]] = {
    "BatchMode": "yes",
    "ConnectTimeout": str(CONNECT_SECONDS),
    "ServerAliveInterval": "2",
    "ServerAliveCountMax": "3",
    "ControlPersist": str(PERSIST_SECONDS),
    "ClearAllForwardings": "yes",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "EscapeChar": "none",
    "LogLevel": "ERROR",
}


class Connection:
    """The way to one host. `home` tells the masters of several servers of one user apart."""

    def __init__(self, host: HostConfig, home: Path) -> None:
        self.host = host
        key = "\0".join((str(home), host.host, host.user, str(host.port), host.identity_file))
        self._name = hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
        self._path: Path | None = None  # of the master's socket; None: nobody has asked yet
        self._guard = asyncio.Lock()
        self._doubted = True  # the socket may be one that nobody listens at

    async def stream(self, script: str) -> PipeStream:
        """Start a script that writes a line before it waits for anything; its pipes. Where `ssh`
        could not connect, they end, and its exit code is EXIT_SSH. Raises Unreachable, AccessError.
        """
        async with self._guard:
            if self._doubted or not self._socket.exists():
                return await self._first(script)
        return await self._run("no", script)

    async def _first(self, script: str) -> PipeStream:
        """The same, and a master is opened on the way, unless there is one."""
        stream = await self._run("auto", script)
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                self._doubted = not await stream.begins()
        except BaseException as error:
            await stream.close()
            if not isinstance(error, TimeoutError):
                raise
            text = f"{self.host.name} did not answer within {OPEN_SECONDS:g} s"
            raise Unreachable(text, code="ssh/no-answer", retry=5.0) from error
        return stream

    async def _run(self, master: str, script: str) -> PipeStream:
        body = script.encode()
        stream = await self._child(master, f"exec sh -c '{_reader(len(body))}'")
        try:
            with contextlib.suppress(Unreachable):  # it has ended: its exit code says why
                await stream.write(body)
        except BaseException:
            await stream.close()
            raise
        return stream

    def failed(self, said: str) -> ArgosyError:
        """The error for what an `ssh` that exited with 255 had said; the master is doubted now."""
        self._doubted = True
        return translated(said, self.host)

    async def close(self) -> None:
        """End the master, where there is one."""
        if not self._socket.exists():
            return
        command = self._command("no", "-O", "exit")
        child = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    await child.wait()
        finally:
            if child.returncode is None:
                child.kill()

    @property
    def _socket(self) -> Path:
        if self._path is None:
            self._path = control_folder() / self._name
        return self._path

    async def _child(self, master: str, *words: str) -> PipeStream:
        said = os.memfd_create("ssh-said", os.MFD_CLOEXEC)  # a pipe would be held by the master
        try:
            child = await asyncio.create_subprocess_exec(
                *self._command(master),
                *words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=said,
                limit=READ_AHEAD,
                start_new_session=True,  # a Ctrl-C at the terminal is not for it
            )
        except BaseException as error:
            os.close(said)
            if not isinstance(error, OSError):
                raise
            raise AccessError(
                f"`ssh` cannot be started: {error.strerror}",
                code="ssh/no-ssh",
                hint="install OpenSSH's client: `apt-get install openssh-client`",
            ) from error
        return PipeStream(child, said)

    def _command(self, master: str, *more: str) -> list[str]:
        path = str(self._socket).replace("%", "%%")  # a blank ends a value that is not quoted
        options = {**OPTIONS, "ControlMaster": master, "ControlPath": f'"{path}"'}
        if self.host.accept_new:
            options["StrictHostKeyChecking"] = "accept-new"
        words = ["ssh", "-T", *more]
        for name, value in options.items():
            words += ["-o", f"{name}={value}"]
        if self.host.user:
            words += ["-l", self.host.user]
        if self.host.port:
            words += ["-p", str(self.host.port)]
        if self.host.identity_file:
            words += ["-i", self.host.identity_file]
        return [*words, "--", self.host.host]


def control_folder() -> Path:
    """Where the masters' sockets lie: short, and nobody else's. Raises AccessError."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    folder = Path(given, "argosy-ssh") if given else Path(f"/tmp/argosy-ssh-{os.getuid()}")
    if len(os.fsencode(folder)) > FOLDER_MAX or (given and not os.access(given, os.W_OK)):
        folder = Path(f"/tmp/argosy-ssh-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise AccessError(
            f"{folder} is not a folder of your own that is closed to others",
            code="ssh/control-folder",
            hint=f"remove {folder}",
        )
    return folder


def _reader(size: int) -> str:
    """For `sh`: take so many bytes of standard input, not one more, and do what they say."""
    return f'eval "$(dd bs=1 count={size} 2>/dev/null)"'

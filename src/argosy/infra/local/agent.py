"""The agent of one host of this machine: started when needed, reached over its unix socket.

An agent is started detached (a session of its own, a clean environment, no descriptor of ours),
since it outlives the server. Its own lock sees to it that a folder has one agent: starting twice is
harmless.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from argosy.errors import Unreachable
from argosy.infra.local.processes import started
from argosy.infra.stream import READ_AHEAD, Lines

REAP_AGAIN: Final = 0.1  # seconds
START_SECONDS: Final = 20.0  # until a started agent must answer
OTHER_SECONDS: Final = 0.5  # that an agent which another process starts gets before it is doubted
EXIT_CONFLICT: Final = 7  # of an agent that found another one in its folder
STARTS_MAX: Final = 3  # in one call
PAUSES: Final = (0.005, 0.005, 0.01, 0.01, 0.02)  # between tries to connect, then the last for ever
IDLE_EXIT: Final = 300.0  # an agent with nothing to do ends by itself after so long
KEPT_VARIABLES: Final = ("HOME", "USER", "LOGNAME", "TZ", "XDG_RUNTIME_DIR")
CRASHES_MANY: Final = 3  # ends of agents within CRASH_SECONDS that are told
CRASH_SECONDS: Final = 120.0
LOG_TAIL: Final = 400  # characters that are shown
LOG_MAX: Final = 10 << 20  # bytes; a running agent keeps to the same
_SIGNALS: Final = {one.value: one.name for one in signal.Signals}
OLDER: Final = ".1"  # ends the name of the log before


class _Reader(asyncio.StreamReader):
    """One for which a reset is an end: what came before it can be read. An agent that hangs up on
    somebody who still sends has said why.
    """

    def set_exception(self, exc: Exception) -> None:
        """Called when the connection is lost."""
        if isinstance(exc, ConnectionError):
            self.feed_eof()
        else:
            super().set_exception(exc)


class SocketStream(Lines):
    """A stream over a connection."""

    @classmethod
    async def to(
        cls, path: str | None = None, *, sock: socket.socket | None = None, limit: int = READ_AHEAD
    ) -> SocketStream:
        """Connect to that path, or take a socket that is connected. Raises OSError."""
        loop = asyncio.get_running_loop()
        reader = _Reader(limit=limit, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.create_unix_connection(lambda: protocol, path, sock=sock)
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def close(self) -> None:
        """End the stream; may be repeated."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass


@dataclass(frozen=True, slots=True)
class Launch:
    """How agents are started here."""

    python: str
    program: Path  # the packed agent
    server: str
    idle_exit: float = IDLE_EXIT

    def command(self, *words: str) -> list[str]:
        """The command line of an agent's command."""
        return [self.python, "-I", "-S", str(self.program), *words]


@dataclass(slots=True)
class LocalAgent:
    """One host's agent. `home` and `shared` are its folders, `capacity` what it is told it has."""

    home: Path
    shared: Path
    launch: Launch
    capacity: dict[str, Any] | None = None  # None: what the machine has
    kept: bool = False  # it only has logs of hosts that are gone, and runs nothing
    _child: int = 0  # pid of the one that this process started and has not reaped; 0: none
    _started: int = 0  # how often, since the last connection
    _wait_until: float = 0.0  # another process is starting it
    _reapers: dict[int, int] = field(default_factory=dict)  # pidfd -> pid
    _crashes: deque[tuple[float, int]] = field(  # when, with which exit code (signal: negative)
        default_factory=lambda: deque(maxlen=CRASHES_MANY)
    )

    def pid(self) -> int:
        """The living agent's pid, whoever started it; 0 when there is none.

        Told by what the agent wrote, not by its lock: to try the lock could keep an agent out.
        """
        try:
            fields = json.loads((self.home / "agent.json").read_bytes())
            pid, since = int(fields["pid"]), int(fields["start_time"])
        except (OSError, ValueError, KeyError, TypeError):
            return self._child
        return pid if started(pid) == since else self._child

    @property
    def untouched(self) -> bool:
        """No agent ever ran here, so there is nothing to tell one."""
        return not (self.home / "journal").exists() and not self.pid()

    def start(self) -> None:
        """Start it unless one lives, or is being started; never waits for it."""
        if self.pid():
            return
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.shared.mkdir(parents=True, exist_ok=True, mode=0o700)
        words = ["run", "--home", str(self.home), "--shared", str(self.shared)]
        words += ["--server-id", self.launch.server, "--idle-exit", f"{self.launch.idle_exit:g}"]
        if self.capacity is not None:
            words += ["--capacity", json.dumps(self.capacity)]
        if self.kept:
            words.append("--kept")
        _turn(self._log)
        self._child = _spawn(self.launch.command(*words), self._log)
        self._started += 1
        self._watch(self._child)

    def _watch(self, pid: int) -> None:
        """Collect the child when it ends: nobody else may."""
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return
        self._reapers[fd] = pid
        asyncio.get_running_loop().add_reader(fd, self._reap, fd)

    def _reap(self, fd: int) -> None:
        loop = asyncio.get_running_loop()
        pid = self._reapers[fd]
        try:
            collected, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            collected, status = pid, 0
        if self._child == pid:
            self._child = 0
        loop.remove_reader(fd)
        if not collected:  # dead, and a tracer has it still
            loop.call_later(REAP_AGAIN, self._reap_later, fd)
            return
        del self._reapers[fd]
        os.close(fd)
        code = os.waitstatus_to_exitcode(status)
        if code == EXIT_CONFLICT:
            # Somebody else is starting one just now: that one will answer.
            self._started -= 1
            self._wait_until = loop.time() + OTHER_SECONDS
        elif code:
            self._crashes.append((loop.time(), code))

    def _reap_later(self, fd: int) -> None:
        if fd in self._reapers:
            self._reap(fd)

    def forget(self) -> None:
        """Watch it no more; it goes on."""
        loop = asyncio.get_running_loop()
        for fd in self._reapers:
            loop.remove_reader(fd)
            os.close(fd)
        self._reapers.clear()

    async def attach(self) -> SocketStream:
        """A stream to it; starts it when it does not run. Raises Unreachable."""
        self._started = 0
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_SECONDS
        for tries in range(1 << 30):
            stream = await self._connect()
            if stream is not None:
                return stream
            if self._started >= STARTS_MAX and not self._child:
                raise self._dead("ends as soon as it is started")
            if loop.time() > deadline:
                raise self._dead(f"did not answer within {START_SECONDS:g} s")
            if loop.time() >= self._wait_until:
                self.start()
            await asyncio.sleep(PAUSES[min(tries, len(PAUSES) - 1)])
        raise AssertionError

    async def _connect(self) -> SocketStream | None:
        """A connection, by a path through the folder's descriptor: a socket's path is short."""
        try:
            folder = os.open(self.home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            path = f"/proc/self/fd/{folder}/agent.sock"
            return await SocketStream.to(path)
        except (FileNotFoundError, ConnectionError):
            return None
        finally:
            os.close(folder)

    def ailing(self) -> str:
        """What ails an agent that was started again and again, with its last words; "" else."""
        ago = asyncio.get_running_loop().time() - CRASH_SECONDS
        recent = [code for when, code in self._crashes if when > ago]
        if len(recent) < CRASHES_MANY:
            return ""
        code, words = recent[-1], " | ".join(self._last_words().splitlines())
        signalled = _SIGNALS.get(-code, f"signal {-code}")
        ended = f"by {signalled}" if code < 0 else f"with exit code {code}"
        return (
            f"the agent in {self.home} ended {len(recent)} times within {CRASH_SECONDS:g} s "
            f"and was started again, the last time {ended}; its last words: {words}"
        )

    def _dead(self, what: str) -> Unreachable:
        return Unreachable(
            f"the agent in {self.home} {what}: {self._last_words()}",
            code="agent/does-not-start",
            hint=f"read {self.home / 'agent.log'}; `argosy infra check` tries what an agent needs",
        )

    def _last_words(self) -> str:
        text = _end_of(self._log.with_name(self._log.name + OLDER)) + _end_of(self._log)
        return text.decode(errors="replace").strip()[-LOG_TAIL:] or "it said nothing"

    @property
    def _log(self) -> Path:
        return self.home / "agent.log"


def clean_environment() -> dict[str, str]:
    """What an agent gets, whoever started the server."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8", **kept}  # fmt: skip


def _turn(log: Path) -> None:
    """Put a full log aside: an agent that never comes to life does not do so itself."""
    try:
        if log.stat().st_size > LOG_MAX:
            log.rename(log.with_name(log.name + OLDER))
    except OSError:
        pass  # there is none, or it is shown by the start that fails


def _end_of(log: Path) -> bytes:
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4 * LOG_TAIL))
            return file.read()
    except OSError:
        return b""


def _spawn(command: Sequence[str], log: Path) -> int:
    """Start a program detached; its pid. Raises Unreachable when that is impossible."""
    every = set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        return os.posix_spawn(
            command[0],
            list(command),
            clean_environment(),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=sorted(every),
        )
    except OSError as error:
        raise Unreachable(
            f"no agent can be started by {command[0]}: {error.strerror}",
            code="agent/cannot-start",
            hint="`argosy infra check` tries what an agent needs",
            retry=2.0,
        ) from error

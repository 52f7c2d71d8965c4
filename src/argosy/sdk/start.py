"""Starts the user's server when none runs; two starters at once make one server."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from argosy.errors import AccessError, ArgosyError, Conflict, InfraError, InputError, Unreachable
from argosy.sdk.home import log_file
from argosy.sdk.lost import lost_server
from argosy.sdk.wire import NoServer, open_socket

START_TIMEOUT = 30.0  # seconds until the socket answers
LAST_WORDS_BYTES = 4000
SERVER = (sys.executable, "-P", "-m", "argosy.server.main")  # -P: no module of the folder here
_STEP = 0.01  # seconds between two looks at the socket
_AGAIN = 0.2  # seconds until a server that found another one is tried again


def ensure_server(
    home: Path, timeout: float = START_TIMEOUT, command: Sequence[str] = SERVER
) -> bool:
    """Returns once a server answers; True when this call started it.

    `command` is what serves; `--home DIR` is put behind it.
    Raises AccessError when the home can't be written, InfraError when its disk is full,
    InputErrors when its config.yaml is wrong, Unreachable with the end of its log when the server
    ends or does not answer in time.
    """
    if answers(home):
        return False
    deadline = time.monotonic() + timeout
    _make_home(home)
    with _alone(home, deadline):
        if answers(home):
            return False
        while not _started(home, deadline, command):
            time.sleep(_AGAIN)
        return True


def answers(home: Path) -> bool:
    """Whether somebody accepts connections on the socket."""
    try:
        open_socket(home).close()
    except NoServer:
        return False
    return True


def last_words(home: Path, lines_most: int = 12, since: int = 0) -> str:
    """The end of the server's log, from byte `since` on; "" when there is none."""
    try:
        with log_file(home).open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(since, log.tell() - LAST_WORDS_BYTES))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines_most:])


def _make_home(home: Path) -> None:
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(home, os.W_OK | os.X_OK):
            raise PermissionError(13, "not writable")
    except OSError as error:
        raise AccessError(
            f"the folder for Argosy's state, {home}, can't be used: {error.strerror or error}",
            code="home/not-writable",
            hint="set `ARGOSY_HOME` to a folder that you may write",
        ) from error


@contextmanager
def _alone(home: Path, deadline: float) -> Iterator[None]:
    """Holds the starters' lock; who waited for it finds a server that runs."""
    try:
        descriptor = os.open(home / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise AccessError(
            f"can't write in {home}: {error.strerror or error}",
            code="home/not-writable",
            hint="free some room there, or set `ARGOSY_HOME` to another folder",
        ) from error
    try:
        while not _locked(descriptor):
            if time.monotonic() > deadline:
                raise Unreachable(
                    "another command is starting the server and does not get on",
                    code="server/start-timeout",
                    hint=f"look into {log_file(home)}",
                )
            time.sleep(_STEP)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _started(home: Path, deadline: float, command: Sequence[str]) -> bool:
    """Whether it answers; False: the one before has the home still, and is just ending."""
    log = os.open(log_file(home), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    since = os.fstat(log).st_size
    try:
        process = subprocess.Popen(
            [*command, "--home", str(home)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(log)
    while not answers(home):
        if process.poll() is not None:
            if process.returncode == InputError.exit_code:
                _refuse_wrong_configuration(home)
            ending = process.returncode == Conflict.exit_code and lost_server(home) is None
            if ending and time.monotonic() < deadline:
                return False
            raise _failed(home, f"it ended with {process.returncode}", since)
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise _failed(home, "its socket did not answer in time", since)
        time.sleep(_STEP)
    process.returncode = 0  # it lives on as its own; nobody here waits for it
    return True


def _refuse_wrong_configuration(home: Path) -> None:
    """Raises InputErrors for a config.yaml that no server starts with, each with its place."""
    from argosy.infra import configuration
    from argosy.infra.config_file import user_home

    configuration.read(home / configuration.FILE)
    configuration.sky_pools(user_home())


def _failed(home: Path, why: str, since: int) -> ArgosyError:
    if _full(home):  # then it could not say so in its log
        return InfraError(
            f"the server did not start: there is no space left on the disk of {home}",
            code="home/full",
            hint="free some space there, or set `ARGOSY_HOME` to a folder on another disk",
        )
    words = _complaint(last_words(home, since=since))
    told = f"; the end of its log:\n{words}" if words else ""
    return Unreachable(
        f"the server did not start: {why}{told}",
        code="server/start-failed",
        hint=(f"the whole log is {log_file(home)}", "`argosy doctor` looks for what is missing"),
    )


def _full(home: Path) -> bool:
    disk = os.statvfs(home)
    return (disk.f_bavail if os.geteuid() else disk.f_bfree) == 0


def _complaint(words: str) -> str:
    """The newest `error:` and what follows it; all of the words when there is none."""
    _, found, rest = f"\n{words}".rpartition("\nerror: ")
    return f"error: {rest}" if found else words

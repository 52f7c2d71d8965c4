"""The server as a process: it starts, is alone, stops, and comes back."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from argosy.errors import Unreachable
from argosy.sdk.client import Client
from argosy.sdk.wire import NoServer
from tests.cli.typed import argosy
from tests.store.small_disk import on_a_tmpfs

DEADLINE_S = 60.0


def until(true: Callable[[], bool]) -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "argosy.server.main", "--home", str(folder), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def answers(client: Client) -> bool:
    try:
        client.server()
    except Unreachable:
        return False
    return True


def gone(pid: int) -> bool:
    """No such process, or one that only waits to be collected."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return text.rpartition(")")[2].split()[0] in "ZX"


@pytest.fixture
def client(folder: Path) -> Client:
    return Client(folder, start=False)


@pytest.fixture
def server(folder: Path, client: Client) -> Iterator[subprocess.Popen[str]]:
    """A server process that answers."""
    process = start(folder)
    try:
        until(lambda: process.poll() is not None or answers(client))
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_server_answers_and_ends_cleanly_at_sigterm(
    server: subprocess.Popen[str], folder: Path, client: Client
) -> None:
    view = client.server()
    assert view.pid == server.pid
    assert view.home == str(folder)
    told = json.loads((folder / "server.json").read_text())
    assert told["pid"] == server.pid
    assert stat.S_IMODE((folder / "server.sock").stat().st_mode) == 0o600
    server.terminate()
    assert server.wait(DEADLINE_S) == 0
    assert not (folder / "server.sock").exists()
    assert not (folder / "server.json").exists()
    lines = (folder / "server.log").read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert events[0] == "server-ready"
    assert events[-1] == "server-stopped"


def test_what_a_server_writes_is_its_owners_alone(
    server: subprocess.Popen[str], folder: Path
) -> None:
    assert server.poll() is None
    for path in folder.iterdir():
        assert not path.stat().st_mode & 0o077, path


def test_a_request_stops_it(server: subprocess.Popen[str], client: Client) -> None:
    client.stop_server()
    assert server.wait(DEADLINE_S) == 0
    with pytest.raises(NoServer):
        client.server()


def test_a_second_server_is_refused_and_told_the_pid(
    server: subprocess.Popen[str], folder: Path, client: Client
) -> None:
    second = start(folder)
    _, said = second.communicate(timeout=DEADLINE_S)
    assert second.returncode == 7
    assert f"pid {server.pid}" in said
    assert "hint: " in said
    assert client.server().pid == server.pid


def test_a_server_without_its_socket_is_named_and_can_be_stopped(
    server: subprocess.Popen[str], folder: Path
) -> None:
    until((folder / "server.json").exists)
    (folder / "server.sock").unlink()
    named = f"a server runs (pid {server.pid}), but its socket is gone"
    mending = "`argosy server stop` ends it, programs go on"
    shown = argosy("server", "status", ARGOSY_HOME=str(folder))
    assert (shown.returncode, shown.stdout) == (8, f"{named}: {mending}\n")
    looked = argosy("doctor", "-o", "json", ARGOSY_HOME=str(folder))
    found = next(one for one in json.loads(looked.stdout) if one["what"] == "server")
    assert (found["state"], found["text"], found["hints"]) == ("bad", named, [mending])
    refused = argosy("status", ARGOSY_HOME=str(folder))
    assert f"(pid {server.pid}), but its socket is gone" in refused.stderr
    assert mending in refused.stderr
    assert argosy("server", "stop", ARGOSY_HOME=str(folder)).returncode == 0
    assert gone(server.pid)
    assert server.wait(DEADLINE_S) == 0
    shown = argosy("server", "status", ARGOSY_HOME=str(folder))
    assert "no server runs" in shown.stdout


def test_a_killed_server_is_followed_by_the_next(
    server: subprocess.Popen[str], folder: Path, client: Client
) -> None:
    first = client.server()
    server.kill()
    server.wait()
    next_one = start(folder)
    try:
        until(lambda: answers(client))
        second = client.server()
        assert second.server_id == first.server_id
        assert second.life > first.life
    finally:
        next_one.terminate()
        next_one.communicate()


def test_a_detached_server_answers_when_its_starter_returns(folder: Path, client: Client) -> None:
    starter = start(folder, "--detach")
    _, said = starter.communicate(timeout=DEADLINE_S)
    assert (starter.returncode, said) == (0, "")
    pid = client.server().pid
    try:
        assert os.getsid(pid) == pid
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
    finally:
        os.kill(pid, signal.SIGTERM)
        until(lambda: gone(pid))


def test_a_detached_server_that_fails_says_why(server: subprocess.Popen[str], folder: Path) -> None:
    starter = start(folder, "--detach")
    starter.communicate(timeout=DEADLINE_S)
    assert starter.returncode == 7
    assert f"pid {server.pid}" in (folder / "server.log").read_text()


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [("size=1m,ro", 5, "Read-only file system"), ("size=4k", 6, "the disk is full")],
)
def test_a_home_without_room_is_a_clear_error(
    folder: Path, options: str, status: int, words: str
) -> None:
    home = folder / "home"
    command = (sys.executable, "-m", "argosy.server.main", "--home", str(home))
    done = on_a_tmpfs(home, options, *command)
    assert words in done.stderr
    assert "hint: " in done.stderr
    assert done.returncode == status


def test_a_broken_store_is_a_clear_error(folder: Path) -> None:
    (folder / "store.db").write_bytes(b"nonsense" * 1000)
    process = start(folder)
    _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 70
    assert "store.db is damaged" in said
    assert "move it away" in said
    assert (folder / "store.db").read_bytes().startswith(b"nonsense")

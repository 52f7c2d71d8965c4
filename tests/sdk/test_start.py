"""Starting a server: once, by whoever comes first, and with its last words when it fails."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.errors import AccessError, Unreachable
from argosy.infra.registry import InfraSettings, open_infras
from argosy.model.ids import ServerId
from argosy.sdk.home import home_folder
from argosy.sdk.start import answers, ensure_server, last_words

# Serves nothing but accepts connections; says that it was started.
LISTENS = """
import os, socket, sys, time
home = sys.argv[2]
with open(home + "/starts", "a") as starts:
    starts.write(f"{os.getpid()}\\n")
time.sleep(0.1)
listener = socket.socket(socket.AF_UNIX)
os.chdir(home)
listener.bind("server.sock")
listener.listen(64)
while True:
    listener.accept()
"""
FAILS = "import sys; print('starting'); print('error: the store is broken'); sys.exit(6)"
BUSY_TWICE = (
    """
import pathlib, sys
tries = pathlib.Path(sys.argv[2], "tries")
tries.write_text((tries.read_text() if tries.exists() else "") + ".")
if len(tries.read_text()) < 3:
    sys.exit(7)
"""
    + LISTENS
)
SLEEPS = "import time; time.sleep(600)"


def command(program: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program)


def started(home: Path) -> list[int]:
    return [int(line) for line in (home / "starts").read_text().split()]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "deep" / "home"
    yield home
    if (home / "starts").exists():
        for pid in started(home):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_server_is_started_once(home: Path) -> None:
    assert ensure_server(home, command=command(LISTENS)) is True
    assert ensure_server(home, command=command(LISTENS)) is False
    assert len(started(home)) == 1
    assert home.stat().st_mode & 0o777 == 0o700


def test_two_starters_at_once_make_one_server(home: Path) -> None:
    results: list[bool] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(ensure_server(home, command=command(LISTENS)))
        )
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False, False, False, False, True]
    assert len(started(home)) == 1


def test_socket_left_by_a_killed_server_is_no_server(home: Path) -> None:
    home.mkdir(parents=True)
    (home / "server.sock").touch()
    assert not answers(home)


def test_server_that_fails_is_told_with_its_last_words(home: Path) -> None:
    with pytest.raises(Unreachable, match="ended with 6") as raised:
        ensure_server(home, command=command(FAILS))
    assert raised.value.text.endswith("error: the store is broken")
    assert "starting" in last_words(home)
    assert any(str(home / "server.log") in hint for hint in raised.value.hints)


def test_one_that_is_just_ending_is_waited_for(home: Path) -> None:
    assert ensure_server(home, command=command(BUSY_TWICE)) is True
    assert (home / "tries").read_text() == "..."


def test_one_that_never_ends_is_told_when_the_time_is_over(home: Path) -> None:
    with pytest.raises(Unreachable, match="did not start"):
        ensure_server(home, timeout=0.3, command=command("import sys; sys.exit(7)"))


def test_server_that_does_not_answer_in_time_is_ended(home: Path) -> None:
    with pytest.raises(Unreachable, match="in time"):
        ensure_server(home, timeout=0.3, command=command(SLEEPS))


def test_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AccessError, match="can't be used") as raised:
        ensure_server(tmp_path / "file", command=command(LISTENS))
    assert "ARGOSY_HOME" in raised.value.hints[0]


def test_a_user_without_a_home_needs_argosy_home_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(_: int) -> None:
        raise KeyError("uid not found")

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.delenv("ARGOSY_HOME", raising=False)
    with pytest.raises(AccessError, match="no home folder") as caught:
        home_folder()
    assert "ARGOSY_HOME" in caught.value.hints[0]
    monkeypatch.setenv("ARGOSY_HOME", str(tmp_path))
    assert home_folder() == tmp_path
    settings = InfraSettings(tmp_path, ServerId("0123456789ab"), lambda: 0.0)
    assert "local" in open_infras(settings)

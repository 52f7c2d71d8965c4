"""One server a home: its lock, its socket, who it is."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket

import pytest

from argosy.errors import AccessError, Conflict
from argosy.sdk.wire import open_socket
from argosy.server.home import Home


def test_the_second_server_on_one_home_is_refused_and_told_the_pid(folder: Path) -> None:
    first, second = Home(folder), Home(folder)
    first.lock()
    with pytest.raises(Conflict) as caught:
        second.lock()
    assert caught.value.code == "server/running"
    assert f"pid {os.getpid()}" in caught.value.text
    assert "argosy server stop" in caught.value.hints[1]
    first.close()
    second.lock()
    second.close()


def test_a_home_that_cannot_be_made_is_a_clear_error(folder: Path) -> None:
    (folder / "file").touch()
    with pytest.raises(AccessError) as caught:
        Home(folder / "file" / "home").lock()
    assert caught.value.code == "home/not-writable"
    assert "ARGOSY_HOME" in caught.value.hints[0]


def test_only_the_owner_may_connect_and_an_old_socket_is_replaced(folder: Path) -> None:
    home = Home(folder)
    home.lock()
    old = socket(AF_UNIX, SOCK_STREAM)
    old.bind(str(home.address))
    old.close()
    listener = home.listen()
    assert stat.S_IMODE(home.address.stat().st_mode) == 0o600
    open_socket(folder).close()
    listener.close()
    home.close()
    assert not home.address.exists()


def test_a_home_with_a_long_path_works(folder: Path) -> None:
    deep = folder / ("d" * 100) / ("e" * 100)
    home = Home(deep)
    home.lock()
    listener = home.listen()
    open_socket(deep).close()
    listener.close()
    home.close()


def test_the_announcement_says_which_process_it_is_and_goes_with_it(folder: Path) -> None:
    home = Home(folder)
    home.lock()
    home.announce(12.5)
    told = json.loads((folder / "server.json").read_text())
    assert told["pid"] == os.getpid()
    assert told["started_at"] == 12.5
    assert told["start_time"] > 0
    home.close()
    home.close()
    assert not (folder / "server.json").exists()

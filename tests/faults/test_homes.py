"""Homes that cannot be used as they should: full, read-only, or another server's already."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from argosy.store.room import ROUND_BYTES
from tests.faults.scene import (
    agent_pids,
    detach,
    ended,
    events,
    follow,
    group,
    lives,
    nap,
    node,
    refused,
    running,
    server_pid,
    sleeper,
    stages,
    task,
    until,
    write,
)
from tests.whole.home import Home

pytestmark = pytest.mark.whole


@contextmanager
def small_disk(home: Home, folder: Path, megabytes: int) -> Iterator[None]:
    """A file system of its own, so small that it is soon full; nothing may use it at the end."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    size = f"size={megabytes}m,mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "argosy-test", str(folder)], check=True)
    try:
        yield
    finally:
        end(home)
        subprocess.run(["umount", str(folder)], check=True)


def end(home: Home) -> None:
    """End everything of a home, so that its disk can be taken away."""
    if (home.path / "server.json").exists():
        for one in json.loads(home.argosy("status", "-o", "json").good().out):
            home.argosy("cancel", one["name"], "--now").good()
        home.argosy("server", "stop").good()
    for pid in agent_pids(home):
        os.kill(pid, signal.SIGTERM)
        until("the agent ends", lambda pid=pid: not lives(pid))


def mounting(test: Callable[[Home], None]) -> Callable[..., None]:
    """A test that mounts: an ordinary user runs it in a user namespace, as root there."""
    if os.geteuid() == 0:
        return test

    def again() -> None:
        words = [sys.executable, "-m", "pytest", "-q", f"{__file__}::{test.__name__}"]
        said = subprocess.run(["unshare", "-U", "-r", "-m", *words], capture_output=True, text=True)
        assert said.returncode == 0, said.stdout + said.stderr

    again.__name__ = test.__name__
    return again


def fill(file: Path) -> None:
    """Take what room there is."""
    with file.open("wb", buffering=0) as filling:
        try:
            while True:
                filling.write(b"\0" * 65536)
        except OSError:
            pass
    with file.open("ab", buffering=0) as filling:
        try:
            while True:
                filling.write(b"\0" * 512)
        except OSError:
            pass


def test_a_second_server_is_refused_with_the_pid_of_the_first(home: Home) -> None:
    home.argosy("server", "start").good()
    first = server_pid(home)
    second = subprocess.run(
        [sys.executable, "-m", "argosy.server.main", "--home", str(home.path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert second.returncode == 7, second.stderr
    assert f"pid {first}" in second.stderr
    assert "hint: " in second.stderr
    assert "argosy server stop" in second.stderr
    assert server_pid(home) == first
    home.argosy("status").good()


def test_a_home_that_is_a_file_is_refused(home: Home) -> None:
    home.path.write_text("")
    refused(home.argosy("status"), 5, "can't be used", "ARGOSY_HOME")


def test_a_home_that_may_not_be_written_is_refused(home: Home) -> None:
    """For root, who may write everywhere, on a file system that is read-only."""
    words = ("can't be used", "set `ARGOSY_HOME` to a folder")
    if os.geteuid():
        home.path.mkdir(mode=0o555)
        refused(home.argosy("status"), 5, *words)
        refused(home.argosy("launch", "-y", write(home, "g", "run: 'true'\n")), 5, *words)
        return
    with small_disk(home, home.path, 1):
        subprocess.run(["mount", "-o", "remount,ro", str(home.path)], check=True)
        refused(home.argosy("status"), 5, *words)
        refused(home.argosy("launch", "-y", write(home, "g", "run: 'true'\n")), 5, *words)


@mounting
def test_a_full_store_gets_a_clear_error_and_running_groups_go_on(home: Home) -> None:
    with small_disk(home, home.path, 8):
        running(home, "old", group("old", task("work", f"exec sleep {nap(home)}")))
        pid = sleeper(home)
        fill(home.path / "filling")
        said = home.argosy("launch", "-y", "-d", write(home, "new", "name: new\nrun: 'true'\n"))
        assert said.code in (5, 6), said.told()
        refused(said, said.code, "full", "free")
        assert lives(pid)
        assert stages(home, "old") == {"RUNNING"}
        (home.path / "filling").unlink()
        follow(home, "new", "name: new\nrun: 'true'\n").ended().good()
        home.argosy("cancel", "old", "--now").good()
        assert not lives(pid)


@mounting
def test_a_group_that_fills_the_disk_can_be_cancelled(home: Home) -> None:
    """Whatever is freed it takes at once: the store has room of its own."""
    with small_disk(home, home.path, 64):
        home.argosy("status").good()
        log = home.path / "store.db-wal"
        until("it has its room", lambda: log.exists() and log.stat().st_size >= ROUND_BYTES)
        work = "exec 2>/dev/null; while :; do head -c 500000 /dev/urandom | base64; done"
        running(home, "greedy", group("greedy", task("work", work)))
        until("the disk is full", lambda: free(home.path) == 0, 60.0)
        (home.path / "store.reserve").unlink(missing_ok=True)
        until("it is full again", lambda: free(home.path) == 0, 60.0)
        home.argosy("cancel", "greedy", "--now", "--wait").good()
        assert ended(home, "greedy")["phase"] == "CANCELLED"
        home.argosy("rm", "greedy").good()
        assert free(home.path) > 0


def free(folder: Path) -> int:
    """Bytes that an ordinary program finds free there."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


@mounting
def test_a_server_that_starts_on_a_full_disk_says_so(home: Home) -> None:
    with small_disk(home, home.path, 1):
        fill(home.path / "filling")
        said = home.argosy("status")
        assert said.code in (5, 6, 8), said.told()
        refused(said, said.code, "no space left", "ARGOSY_HOME")


@mounting
def test_a_full_log_directory_loses_output_and_no_exit_code(home: Home) -> None:
    """The program sees its writes fail, as on any full disk; what it exits with is known."""
    with small_disk(home, home.path / "infra", 8):
        text = group(
            "full",
            task(
                "writer",
                "head -c 20000000 /dev/zero | tr '\\0' x || exit 7; exit 9",
            ),
        )
        detach(home, "full", text)
        found = ended(home, "full")
        assert found["phase"] == "FAILED"
        assert node(home, "full", "writer-0")["exit_code"] in (7, 9)
        told = [one for one in events(home, "full") if one["code"] == "log-write-failed"]
        said = home.argosy("logs", "full", "--tail", "1").good()
        assert told, events(home, "full")
        assert "x" in said.out
        # With room again the next group runs as if nothing had been.
        for file in home.path.glob("infra/local/machine/hosts/*/attempts/*/output"):
            file.write_text("")
        assert "fine" in follow(home, "next", "name: next\nrun: echo fine\n").ended(60).good().out


def test_a_broken_store_gets_a_clear_error(home: Home) -> None:
    home.path.mkdir()
    (home.path / "store.db").write_bytes(b"this is no database, and never was\n" * 400)
    said = home.argosy("status")
    assert said.code in (6, 8), said.told()
    refused(said, said.code, "store.db")
    until("no server is left", lambda: not (home.path / "server.json").exists())

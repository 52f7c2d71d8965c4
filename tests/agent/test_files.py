"""Working directories, mounts, GPU reservations, environment: what lies before a
start.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from argosy.agent import environment, gpus
from argosy.agent.attempt import files
from argosy.agent.attempt.guests import Guest, Inside
from argosy.agent.loop import Loop
from argosy.agent.naming import safe_name
from argosy.agent.processes.folder import Identity, boot_id, identity_of
from tests.agent.rig import eventually


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in (
        "main.py",
        "notes.txt",
        "data/big.bin",
        "data/keep.bin",
        "out/a/b.log",
        ".git/HEAD",
    ):
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "source" / "link").symlink_to("main.py")
    return tmp_path / "source"


def test_workdir_is_copied_with_links_as_links(source: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    files.put(str(work), str(source), [], str(tmp_path))
    assert tree(work) == tree(source)
    assert (work / "link").is_symlink()
    (work / "main.py").write_text("changed")
    files.put(str(work), str(source), [], str(tmp_path))  # what is there is kept
    assert (work / "main.py").read_text() == "changed"


def test_what_a_snapshot_holds_is_copied_whatever_ignore_files_say(
    source: Path, tmp_path: Path
) -> None:
    (source / ".gitignore").write_text("*.log\n")
    (source / "out" / ".gitignore").write_text("!b.log\n")
    files.put(str(tmp_path / "work"), str(source), [], str(tmp_path))
    assert tree(tmp_path / "work") == tree(source)


def test_what_is_discarded_is_away_at_once_and_removed_beside_the_loop(
    source: Path, tmp_path: Path
) -> None:
    loop, done = Loop(), threading.Event()
    files.discard(loop, str(tmp_path), [str(source), str(tmp_path / "none")], done.set)
    assert not source.exists()
    deadline = time.monotonic() + 30
    while not done.is_set():
        assert time.monotonic() < deadline
        loop.once(0.1)
    assert list((tmp_path / "trash").iterdir()) == []
    loop.close()


def test_mounts_go_where_they_say(source: Path, tmp_path: Path) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    mounts = [
        {"destination": "conf/main.py", "source": str(source / "main.py")},
        {"destination": "~/data", "source": str(source / "data")},
        {"destination": f"{tmp_path}/abs/", "source": str(source / "notes.txt")},
    ]
    for _ in range(2):
        files.put(str(work), "", mounts, str(home))
    assert tree(work) == {"conf/main.py"}
    assert tree(home) == {"data/big.bin", "data/keep.bin"}
    assert tree(tmp_path / "abs") == {"notes.txt"}


def test_a_single_file_in_a_folder_that_is_there_has_its_own_name(
    source: Path, tmp_path: Path
) -> None:
    """What a mount names may be a snapshot, which is called by its hash."""
    snapshot = tmp_path / "5eed01"
    snapshot.write_text("notes")
    work = tmp_path / "work"
    mount = {"destination": "data", "source": str(snapshot), "name": "notes.txt"}
    files.put(str(work), str(source), [mount], str(tmp_path))
    assert (work / "data" / "notes.txt").read_text() == "notes"


def test_missing_source_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(files.FilesError, match="/no/such"):
        files.put(str(tmp_path / "w"), "", [{"destination": "x", "source": "/no/such"}], "/")
    with pytest.raises(files.FilesError, match="/no/such"):
        files.put(str(tmp_path / "v"), "/no/such", [], "/")


def test_gpu_reservations_are_exclusive_and_end_with_their_holder(tmp_path: Path) -> None:
    boot = boot_id()
    sleeper = subprocess.Popen(["sleep", "1000"])
    holder = identity_of(sleeper.pid, boot)
    me = identity_of(os.getpid(), boot)
    assert holder is not None
    assert me is not None
    path = str(tmp_path / "gpus.json")
    loop = Loop()
    one, two = gpus.Reservations(path, boot, loop), gpus.Reservations(path, boot, loop)
    assert one.take([0, 1], "A", me) == ""
    assert "GPU 1 is held by A" in two.take([1, 2], "B", me)
    assert one.take([0, 1], "A", holder) == ""  # handed on
    assert two.take([2], "B", me) == ""
    sleeper.kill()
    sleeper.wait()
    assert two.take([0], "B", me) == ""
    two.give("B")
    assert one.take([0, 2], "C", me) == ""
    reused = Identity(boot, me.pid, me.started + 1)
    assert one.take([5], "D", reused) == ""
    assert two.take([5], "E", me) == ""


def test_a_locked_reservation_file_stops_nobody(tmp_path: Path) -> None:
    """Another user may hold the lock for ever: the loop goes on, and what is owed is written."""
    me = identity_of(os.getpid(), boot_id())
    other = identity_of(os.getppid(), boot_id())
    assert me is not None
    assert other is not None
    path = tmp_path / "gpus.json"
    loop = Loop()
    held = gpus.Reservations(str(path), boot_id(), loop)
    for mark, index in (("A", 0), ("B", 1)):
        assert held.take([index], mark, me) == ""
    before = set(os.listdir("/proc/self/fd"))
    with open(path) as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        assert "another process has" in held.take([2], "C", me)
        held.hand_on([0], "A", other)
        held.hand_on([1], "B", other)
        held.give("B")
        loop.once(0.1)
        assert json.loads(path.read_text())["0"]["pid"] == me.pid
    eventually(lambda: loop.once(0.1) or json.loads(path.read_text()).keys() == {"0"})
    assert json.loads(path.read_text())["0"]["pid"] == other.pid
    assert held.take([1, 2], "C", me) == ""
    loop.close()
    assert set(os.listdir("/proc/self/fd")) <= before


def test_what_is_owed_has_one_timer(tmp_path: Path) -> None:
    me = identity_of(os.getpid(), boot_id())
    assert me is not None
    path = tmp_path / "gpus.json"
    loop = Loop()
    held = gpus.Reservations(str(path), boot_id(), loop)
    assert held.take([0], "A", me) == ""
    with open(path) as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        for _ in range(3):
            held.give("A")
        assert len(loop._timers) == 1
    eventually(lambda: loop.once(0.1) or path.read_text() == "{}")
    assert loop.idle()
    loop.close()


def test_a_damaged_reservation_file_stops_nobody(tmp_path: Path) -> None:
    me = identity_of(os.getpid(), boot_id())
    assert me is not None
    path = tmp_path / "gpus.json"
    held = gpus.Reservations(str(path), boot_id(), Loop())
    for text in ("[1]", '{"0": {}, "1": 5, "2": {"mark": 1}}', "{", ""):
        path.write_text(text)
        held.give("A")
        assert held.take([0, 1], "A", me) == ""


@pytest.mark.parametrize("size", [None, (24, 80)])
def test_a_command_that_cannot_be_forked_leaves_no_descriptor(
    size: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> int:
        raise OSError(11, "no more processes")

    loop = Loop()
    monkeypatch.setattr(os, "fork", refused)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="no more processes"):
        Guest(loop, Inside(1, {}, "/"), ["true"], size)
    assert set(os.listdir("/proc/self/fd")) == before
    loop.close()


def test_environment_is_clean_and_the_files_values_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAK", "1")
    env = environment.compose(
        environment.User("ann", "/home/ann"),
        {"id": "1", "name": "g", "job_id": 4, "user": "ann"},
        {"env": {"LANG": "de", "N": 1}, "secrets": {"TOKEN": "x"}, "num_nodes": 2, "gpus": 1},
        {
            "attempt": "A", "node": "web-1", "task": "web", "index": 1, "number": 3,
            "incarnation": 2, "restart_reason": "lost", "gpu_indices": [4, 5],
        },
        environment.addresses({
            "nodes": [
                {"task": "web", "index": 1, "node": "web-1", "address": "10.0.0.2"},
                {"task": "web", "index": 0, "node": "web-0", "address": "10.0.0.1"},
                {"task": "data-x", "index": 0, "node": "data-x-0", "address": "10.0.0.3"},
            ]
        }),
        environment.Where("/work", "/peers", "web-1.g", "/ckpt", "/shared", 8),
    )  # fmt: skip
    assert "LEAK" not in env
    assert env["LANG"] == "de"
    assert env["N"] == "1"
    assert env["TOKEN"] == "x"
    assert env["SKYPILOT_NODE_IPS"] == env["ARGOSY_NODE_IPS"] == "10.0.0.1\n10.0.0.2"
    assert env["ARGOSY_HOST_DATA_X_0"] == "10.0.0.3"
    assert env["CUDA_VISIBLE_DEVICES"] == "4,5"
    assert (env["ARGOSY_NODE_RANK"], env["ARGOSY_NUM_NODES"]) == ("1", "2")
    assert (env["ARGOSY_ATTEMPT"], env["ARGOSY_RESTART_REASON"]) == ("3", "lost")
    assert env["PATH"] == environment.LOGIN_PATH
    assert "MASTER_ADDR" not in env


def test_the_head_is_the_master_where_a_launcher_asks_for_one() -> None:
    book = {"nodes": [
        {"task": "web", "index": 1, "address": "10.0.0.2", "ports": [80]},
        {"task": "web", "index": 0, "address": "10.0.0.1", "ports": ["90-99"]},
    ]}  # fmt: skip
    order = {"attempt": "A", "node": "web-1", "task": "web", "index": 1, "number": 1,
             "incarnation": 1}  # fmt: skip
    where = environment.Where("/work", "/peers", "web-1.g", "/ckpt", "/shared")
    user = environment.User("ann", "/home/ann")
    known = environment.addresses(book)
    env = environment.compose(user, {}, {"launcher": "torchrun"}, order, known, where)
    assert env["MASTER_ADDR"] == "10.0.0.1"
    told = environment.peers({}, 1, book, {})
    assert [node["ports"] for node in told["nodes"]] == [[80], ["90-99"]]


@pytest.mark.parametrize(
    ("held", "on_host", "expected"), [([], 0, None), ([], 4, ""), ([2], 4, "2"), ([0], 0, "0")]
)
def test_visible_devices(held: list[int], on_host: int, expected: str | None) -> None:
    assert environment.visible_devices(held, on_host) == expected


def test_safe_names_differ_and_are_files() -> None:
    texts = ["a", "A", "../x", "a/b", "a%2fb", "", "é", ".", "~a", "x" * 300, "x" * 301, "a b"]
    names = [safe_name(text) for text in texts]
    assert len(set(names)) == len(texts)
    for name in names:
        assert "/" not in name
        assert name not in ("", ".", "..")
        assert len(name.encode()) <= 255

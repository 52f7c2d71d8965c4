"""Volumes of real agents, on the oldest Python and on this one: written, sealed, gone with the
group; and where programs have no mounts of their own, links.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from argosy.agent.attempt import volumes
from argosy.agent.attempt.volumes import Scene, VolumeError, put
from argosy.agent.net.linux import mounts
from tests.agent.rig import Agent

NewAgent = Callable[[], Agent]


def volume(destination: str, place: str = "group", path: str = "v", **more: Any) -> dict[str, Any]:
    """A volume as an assignment has it."""
    return {
        "destination": destination, "place": place, "path": path, "make": place != "host",
        "mount": False, "sub_path": "", "read_only": False, "shares": False, **more,
    }  # fmt: skip


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    for name in ("shared", "home", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "shared" / "groups" / "g1").mkdir(parents=True)
    return Scene(
        str(tmp_path / "shared"), str(tmp_path / "shared" / "groups" / "g1"),
        str(tmp_path / "shared" / "agent"), str(tmp_path / "home"), str(tmp_path / "work"),
        True, "g1",
    )  # fmt: skip


def without_mounts(scene: Scene) -> Scene:
    return Scene(scene.shared, scene.group, scene.home, scene.user_home, scene.work, False, "g1")


def message(scene: Scene, one: dict[str, Any]) -> str:
    with pytest.raises(VolumeError) as found:
        put([one], scene)
    return str(found.value)


def test_a_full_disk_does_not_forget_what_was_made(scene: Scene, tmp_path: Path) -> None:
    put([volume(f"{tmp_path}/first")], scene)
    most, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = os.stat(os.path.join(scene.group, volumes.MADE)).st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 8, hard))
    try:
        text = message(scene, volume(f"{tmp_path}/second"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    assert "File too large" in text
    volumes.leave(scene.group)
    assert not (tmp_path / "first").exists()


def test_each_place_has_a_folder_of_its_own(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    found = put(
        [
            volume("data"), volume("~/cache", "shared", "data-1", read_only=True),
            volume(f"{tmp_path}/x", "host", f"{tmp_path}/there"),
        ],
        scene,
    )  # fmt: skip
    assert sorted(found["binds"]) == sorted(
        [
            (f"{scene.group}/volumes/v", f"{scene.work}/data", False),
            (f"{scene.shared}/volumes/data-1", f"{scene.user_home}/cache", True),
            (f"{tmp_path}/there", f"{tmp_path}/x", False),
        ]
    )
    for source, target, _ in found["binds"]:
        assert os.path.isdir(source)
        assert os.path.isdir(target)
    volumes.leave(scene.group)
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "home" / "cache").exists()
    assert not (Path(scene.group) / "volumes").exists()
    assert (Path(scene.shared) / "volumes" / "data-1").is_dir()
    assert volumes.names(scene.shared) == ["data-1"]
    volumes.remove(scene.shared, "data-1")
    volumes.remove(scene.shared, "data-1")  # may be repeated
    assert volumes.names(scene.shared) == []


def test_a_volume_inside_a_volume_comes_after_it(scene: Scene) -> None:
    found = put([volume("data/inner", path="b"), volume("data", path="a")], scene)
    assert [target for _, target, _ in found["binds"]] == [
        f"{scene.work}/data", f"{scene.work}/data/inner",
    ]  # fmt: skip


def test_what_cannot_be_mounted_is_said(scene: Scene, tmp_path: Path) -> None:
    gone = f"{tmp_path}/gone"
    assert f"the volume at data: {gone} is not there on this host" in message(
        scene, volume("data", "host", gone)
    )
    Path(gone).write_text("x")
    assert "is no folder" in message(scene, volume("data", "host", gone))
    assert "nothing is mounted at /usr" in message(
        scene, volume("data", "host", "/usr", mount=True)
    )
    (tmp_path / "vol").mkdir()
    (tmp_path / "vol" / "out").symlink_to("/etc")
    assert "out leads out of it" in message(
        scene, volume("data", "host", f"{tmp_path}/vol", sub_path="out")
    )
    assert "has no folder new, and is read-only" in message(
        scene, volume("data", "host", f"{tmp_path}/vol", sub_path="new", read_only=True)
    )
    assert "would hide" in message(scene, volume(str(tmp_path)))
    Path(scene.work, "file").write_text("x")
    assert "is no folder" in message(scene, volume("file"))


def test_without_mounts_a_link_stands_for_a_writable_volume(scene: Scene) -> None:
    bare = without_mounts(scene)
    found = put([volume("data"), volume("~/cache", path="c")], bare)
    assert found["binds"] == []
    (Path(scene.work) / "data" / "a").write_text("a")
    assert (Path(scene.group) / "volumes" / "v" / "a").read_text() == "a"
    assert put([volume("data")], bare)["binds"] == []  # may be repeated
    assert "cannot be read-only" in message(bare, volume("ro", read_only=True))
    assert "choose a path in the working directory" in message(bare, volume("/srv/x-y-z"))
    (Path(scene.work) / "full").mkdir()
    (Path(scene.work) / "full" / "a").write_text("x")
    assert "is not empty" in message(bare, volume("full"))
    volumes.leave(scene.group)
    assert not os.path.lexists(f"{scene.user_home}/cache")


def test_a_shared_volume_gives_the_group_a_folder_with_its_rights(
    scene: Scene, tmp_path: Path
) -> None:
    (tmp_path / "nfs").mkdir()
    (tmp_path / "nfs").chmod(0o1777)
    found = put([volume("data", "host", f"{tmp_path}/nfs", shares=True)], scene)
    assert found["exchange"] == f"{scene.work}/data/.argosy-g1"
    made = tmp_path / "nfs" / ".argosy-g1"
    assert (made / "shared").stat().st_mode & 0o7777 == 0o1777
    assert volumes.forgotten(scene.shared, "g1") == [str(made), scene.group]
    there = volume(f"{tmp_path}/nfs", "there", f"{tmp_path}/nfs", make=False, shares=True)
    assert put([there], scene) == {"binds": [], "exchange": str(made)}


def test_mount_points_of_others_stay(tmp_path: Path) -> None:
    """A folder that somebody has a mount on is not removed, nor is one with something in it."""
    point = tmp_path / "point"
    point.mkdir()
    script = "mount --bind /usr/share $0 && echo ready && read -r _"
    words = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, str(point)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        assert not mounts.remove_point(str(point))
        assert point.is_dir()
        other.communicate(b"\n")
    (point / "a").write_text("x")
    assert not mounts.remove_point(str(point))
    (point / "a").unlink()
    assert mounts.remove_point(str(point))
    assert mounts.remove_point(str(point))
    assert not point.exists()


def test_paths_of_programs_are_found(tmp_path: Path) -> None:
    binds = [["/a", "/data", False], ["/b", "/data/in", True]]
    assert volumes.translated("/data/x", binds) == ("/a/x", False)
    assert volumes.translated("/data/in/x", binds) == ("/b/x", True)
    assert volumes.translated("/database", binds) == ("/database", False)


WRITES = """
echo one > data/a; cat data/a; cat /etc/hostname > /dev/null
echo two > ro/b && echo written; echo ro=$?
ls ro; echo "inner $(cat data/inner/x 2>/dev/null)"; echo in > data/inner/x
"""


@pytest.mark.parametrize("network", ["host", "isolated"])
def test_programs_read_and_write_and_what_is_read_only_refuses(
    new_agent: NewAgent, tmp_path: Path, network: str
) -> None:
    """Also for a second program, for `exec`, and for files that are copied in and out."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "there").write_text("x")
    agent = new_agent()
    agent.start()
    absolute = tmp_path / "made" / "point"
    wanted = [
        volume("data"), volume("data/inner", path="w"),
        volume("ro", "host", str(kept), read_only=True),
        volume(str(absolute), "shared", "named-1"),
    ]  # fmt: skip
    run = WRITES + f"echo kept > {absolute}/k; echo done; read -r _ < <(sleep 600)"
    agent.assign(("one", 30), run=run, volumes=wanted, network=network)
    agent.stage("one", 30)
    agent.until(lambda: b"done" in agent.log("one") or agent.next(), "it writes")
    text = agent.log("one").decode()
    assert "Read-only file system" in text
    assert "written" not in text
    assert "ro=1\nthere\ninner" in text
    shared = agent.home / "groups" / agent.word / "volumes"
    assert (shared / "v" / "a").read_text() == "one\n"
    assert (agent.home / "volumes" / "named-1" / "k").read_text() == "kept\n"
    assert not (absolute / "k").exists()  # it is in the program's own mounts only

    answer = agent.ask(op="exec", attempt=agent.id("one"), argv=["cat", "data/a"], tty=False)
    assert answer[-1] == {"exit_code": 0}
    back = agent.ask(op="get", attempt=agent.id("one"), path="data/inner/x")
    assert back[-1]["end"] is True
    refused = agent.ask(op="put", attempt=agent.id("one"), path="ro/new", mode=0o644)
    assert "read-only" in refused[0]["text"]
    assert agent.stop("one", run=run, volumes=wanted, network=network)[0] == "stopped"

    agent.assign(("two", 30), run="cat data/a data/inner/x", volumes=wanted, network=network)
    assert agent.end("two") == ("succeeded", 0, None, "exit")
    assert agent.log("two") == b"one\nin\n"
    left(agent, network, absolute)


def left(agent: Agent, network: str, absolute: Path) -> None:
    """After the end of the group nothing of it is there; what has a name is."""
    assert agent.control is not None
    agent.control.send({"op": "release", "lease": "L1"})
    agent.until(lambda: not agent.leases, "released")
    words = [agent.python, "-I", "-S", str(agent.pyz), "end-network"]
    words += ["--shared", str(agent.home), "--group", agent.word]
    subprocess.run(words, check=True)
    assert not (agent.home / "groups" / agent.word / "volumes").exists()
    assert not absolute.parent.exists()
    assert (agent.home / "volumes" / "named-1" / "k").exists()


def test_a_volume_that_is_not_there_is_an_end_with_words(new_agent: NewAgent) -> None:
    agent = new_agent()
    agent.start()
    agent.assign(("one", 30), run="true", volumes=[volume("data", "host", "/nowhere/at/all")])
    assert agent.end("one") == ("failed", None, None, "volume-failed")
    assert "/nowhere/at/all is not there on this host" in agent.attempts[agent.id("one")]["text"]


def test_the_shared_folder_is_in_the_volume_that_all_mount(
    new_agent: NewAgent, tmp_path: Path
) -> None:
    (tmp_path / "nfs").mkdir()
    agent = new_agent()
    agent.start()
    one = volume("data", "host", str(tmp_path / "nfs"), shares=True)
    run = 'echo a > "$ARGOSY_SHARED_DIR/x"; echo b > "$ARGOSY_CHECKPOINT_DIR/y"'
    agent.assign(("one", 30), run=run, volumes=[one])
    assert agent.end("one") == ("succeeded", 0, None, "exit")
    exchange = tmp_path / "nfs" / f".argosy-{agent.word}"
    assert (exchange / "shared" / "x").read_text() == "a\n"
    assert (exchange / "checkpoints" / "a" / "y").read_text() == "b\n"
    assert agent.control is not None
    agent.control.send({"op": "release", "lease": "L1"})
    agent.until(lambda: not agent.leases, "released")
    assert agent.ask(op="forget", group=agent.word) == [{"ok": True}]
    assert not exchange.exists()


@pytest.mark.parametrize("network", ["host", "isolated"])
def test_ordinary_users_have_volumes_too(pyz: Path, folder: Path, word: str, network: str) -> None:
    """In a user namespace; what is mounted inside a volume comes along, and is sealed with it."""
    if os.geteuid() != 0:
        pytest.fail("this test becomes another user: run it as root")
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.fail("no Python that every user may execute: install Debian's python3")
    folder.chmod(0o755)
    own = folder / "agent.pyz"
    own.write_bytes(pyz.read_bytes())
    home, kept = folder / "home", folder / "kept"
    for path in (home, kept, kept / "inner"):
        path.mkdir()
        os.chown(path, 54323, 54323)
    agent = Agent(python, own, home, word)
    become = (
        f"mount -t tmpfs -o mode=777,nosuid,nodev tmpfs {kept}/inner && mkdir {kept}/inner/deep &&"
        " mount -t tmpfs tmpfs /dev/net && mknod -m 666 /dev/net/tun c 10 200 &&"
        ' exec setpriv --reuid 54323 --regid 54323 --clear-groups "$@"'
    )
    agent.prefix = ["unshare", "--mount", "sh", "-c", become, "sh"]
    run = (
        "id -u; touch rw/a rw/inner/b && echo wrote; touch ro/c; touch ro/inner/d; ls ro/inner;"
        " mount -o remount,rw,bind ro || echo sealed"
    )
    wanted = [
        volume("rw", "host", str(kept)), volume("ro", "host", str(kept), read_only=True),
    ]  # fmt: skip
    try:
        agent.start()
        agent.assign(("one", 30), run=run, volumes=wanted, network=network)
        assert agent.end("one") == ("succeeded", 0, None, "exit")
        text = agent.log("one").decode()
        assert text.startswith("54323\nwrote\n")
        assert text.count("Read-only file system") == 2
        assert "\nb\ndeep\n" in text
        assert text.endswith("sealed\n")
        assert (kept / "a").exists()
        refused = [volume("/argosy-no-such-place/x", path="n")]
        agent.assign(("two", 30), run="true", volumes=refused, network=network, lease="L2")
        assert agent.end("two")[3] == "volume-failed"
        said = agent.attempts[agent.id("two")]["text"]
        assert "/argosy-no-such-place cannot be made on this host" in said
    finally:
        agent.close()

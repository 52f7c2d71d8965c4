"""Logs of pods that are gone: taken from a real `agent keep`, read by a real agent afterwards."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from argosy.errors import InfraError
from argosy.infra.api import Stream
from argosy.infra.kubernetes.kept import Kept
from argosy.infra.kubernetes.marks import pod_name
from argosy.infra.local.agent import Launch
from argosy.infra.local.processes import of_host
from argosy.infra.pack import packed_agent
from argosy.infra.registry import reader_of
from argosy.model.ids import LeaseId
from tests.agent.rig import DEADLINE, Agent, eventually, marked

SECRET = "hunter2-never-elsewhere"
IDLE_EXIT = 1.0


class Written:
    """A stream whose other side has written all this, and hung up."""

    def __init__(self, data: bytes, piece: int = 50_000) -> None:
        self._data, self._piece = data, piece

    async def read(self, most: int = 65536) -> bytes:
        found = self._data[: min(most, self._piece)]
        self._data = self._data[len(found) :]
        return found

    async def readline(self) -> bytes:
        line, newline, self._data = self._data.partition(b"\n")
        return line + newline


class Scene:
    """A pod's agent, and the server's folder for what is kept of it."""

    def __init__(self, folder: Path) -> None:
        self.word = f"g{uuid.uuid4().hex[:10]}-1-1"
        self.pyz = packed_agent(folder / "agent")
        self.folder = folder / "kept"
        self.kept = Kept(self.folder, reader_of(self._launch()))
        self.agents: list[Agent] = []
        self._place = folder

    def _launch(self) -> Launch:
        return Launch(sys.executable, self.pyz, self.word, IDLE_EXIT)

    @property
    def home(self) -> Path:
        """Where the group's logs are kept."""
        return self.folder / self.word

    def lease(self, number: int) -> str:
        return f"{self.word}.1-{number}"

    def pod(self, number: int = 1) -> str:
        return pod_name(LeaseId(self.lease(number)))

    def agent(self) -> Agent:
        """The agent of a new pod."""
        home = self._place / f"pod{len(self.agents)}"
        home.mkdir()
        self.agents.append(Agent(sys.executable, self.pyz, home, self.word))
        self.agents[-1].start()
        return self.agents[-1]

    def said(self, agent: Agent) -> bytes:
        """What `agent keep` writes there."""
        words = [sys.executable, "-I", "-S", self.pyz, "keep", "--home", agent.home]
        return subprocess.run(words, stdout=subprocess.PIPE, check=True, timeout=DEADLINE).stdout

    def take(self, data: bytes, number: int = 1) -> None:
        asyncio.run(self.kept.take(self.pod(number), Written(data)))

    def ask(self, number: int = 1, **first: Any) -> list[dict[str, Any]]:
        """All lines that the agent answers which has the pod's logs."""

        async def asked() -> list[dict[str, Any]]:
            stream = await self.kept.attach(self.pod(number))
            try:
                return await lines(stream, first)
            finally:
                await stream.close()

        return asyncio.run(asked())

    def log(self, name: str, number: int = 1, **more: Any) -> bytes:
        said = self.ask(number, op="logs", attempt=f"{self.word}-{name}", **more)
        return b"".join(base64.b64decode(line["data"]) for line in said if "data" in line)

    def history(self, number: int = 1) -> dict[str, Any]:
        (said,) = self.ask(number, op="history", group=self.word)
        return {one["attempt"].rpartition("-")[2]: one for one in said["attempts"]}

    def everything(self) -> set[str]:
        """Every file and folder that is kept."""
        return {str(one.relative_to(self.folder)) for one in self.folder.rglob("*")}


async def lines(stream: Stream, first: dict[str, Any]) -> list[dict[str, Any]]:
    """The answer to one question."""
    await stream.write(json.dumps(first).encode() + b"\n")
    found = []
    while line := await stream.readline():
        found.append(json.loads(line))
        if "end" in found[-1] or "attempts" in found[-1] or "error" in found[-1]:
            break
        if found[-1].get("ok"):
            break
    return found


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    for agent in made.agents:
        agent.close()
    for process in of_host(made.home, made.home):
        eventually(lambda pid=process: not Path(f"/proc/{pid}").exists() or is_zombie(pid))
    assert not marked(made.word)


def is_zombie(pid: int) -> bool:
    """Whether it has ended and waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return False


# The way there and back


def test_logs_are_read_as_if_the_pod_were_there(scene: Scene) -> None:
    agent = scene.agent()
    agent.assign(("A", 30), lease=scene.lease(1), run="for i in $(seq 9); do echo line $i; done")
    agent.end("A")
    agent.assign(("A", 50), ("B", 30), lease=scene.lease(1), run="echo again; exit 4")
    agent.end("B")
    assert not scene.kept.has(scene.pod())
    scene.take(scene.said(agent))
    assert scene.kept.has(scene.pod())
    assert scene.log("A") == b"".join(b"line %d\n" % i for i in range(1, 10))
    assert scene.log("A", tail=2) == b"line 8\nline 9\n"
    assert scene.log("A", grep="[35]$") == b"line 3\nline 5\n"
    assert scene.log("A", follow=True).endswith(b"line 9\n")
    assert scene.log("B") == b"again\n"
    ended = {name: (one["outcome"], one["exit_code"]) for name, one in scene.history().items()}
    assert ended == {"A": ("succeeded", 0), "B": ("failed", 4)}


def test_what_was_written_after_a_time_is_found(scene: Scene, tmp_path: Path) -> None:
    agent = scene.agent()
    go = tmp_path / "go"
    run = f"echo early; while [ ! -e {go} ]; do sleep 0.02; done; sleep 1.5; echo late"
    agent.run("A", run, lease=scene.lease(1))
    eventually(lambda: agent.log("A") == b"early\n")
    go.touch()
    agent.end("A")
    scene.take(scene.said(agent))
    at = [line["at"] for line in scene.ask(op="logs", attempt=agent.id("A")) if "at" in line]
    assert scene.log("A", since=at[-1] + 60) == b""
    late = scene.history()["A"]["at"]
    assert b"late\n" in scene.log("A", since=late - 1.0)
    assert b"early\n" not in scene.log("A", since=late - 1.0)


def test_what_was_freed_of_a_log_stays_a_gap(scene: Scene) -> None:
    agent = scene.agent()
    run = "for i in $(seq 1 20000); do echo line $i of what is written down here; done"
    agent.assign(("A", 30), lease=scene.lease(1), run=run, log_cap_bytes=256 << 10)
    agent.end("A")
    agent.log("A", tail=1)
    before = agent.ask(op="logs", attempt=agent.id("A"), offset=0)
    scene.take(scene.said(agent))
    after = scene.ask(op="logs", attempt=agent.id("A"), offset=0)
    assert after[0] == before[0]
    assert set(after[0]) == {"gap"}
    assert after[-1] == before[-1]
    assert scene.log("A", tail=1) == b"line 20000 of what is written down here\n"


def test_a_pod_without_attempts(scene: Scene) -> None:
    agent = scene.agent()
    scene.take(scene.said(agent))
    assert scene.kept.has(scene.pod())
    assert scene.history() == {}


def test_two_pods_of_a_group_and_a_reader_that_came_before_the_second(scene: Scene) -> None:
    for number, name in ((1, "A"), (2, "B")):
        agent = scene.agent()
        agent.assign((name, 30), lease=scene.lease(number), run=f"echo {name}")
        agent.end(name)
        scene.take(scene.said(agent), number)
        assert scene.log(name, number) == f"{name}\n".encode()
        assert name in scene.history(number)
    assert set(scene.history()) == {"A", "B"}


def test_forgotten_logs_are_gone(scene: Scene) -> None:
    for number, name in ((1, "A"), (2, "B")):
        agent = scene.agent()
        agent.assign((name, 30), lease=scene.lease(number), run=f"echo {name}")
        agent.end(name)
        scene.take(scene.said(agent), number)
        assert scene.log(name, number)
    assert scene.ask(op="forget", group=scene.word) == [{"ok": True}]
    assert not list((scene.home / "attempts").iterdir())
    assert scene.history() == {}
    eventually(lambda: not (scene.home / "agent.sock").exists(), "the reader has nothing to do")
    scene.kept.sweep()
    assert not scene.home.exists()


def test_sweeping_leaves_what_was_not_forgotten(scene: Scene) -> None:
    agent = scene.agent()
    agent.assign(("A", 30), lease=scene.lease(1), run="echo A")
    agent.end("A")
    scene.take(scene.said(agent))
    (scene.folder / f".{scene.pod(2)}.part" / "attempts" / "half").mkdir(parents=True)
    scene.kept.sweep()
    assert scene.log("A") == b"A\n"
    assert not list(scene.folder.glob(".*"))


def test_a_reader_that_has_ended_is_collected(scene: Scene) -> None:
    agent = scene.agent()
    agent.assign(("A", 30), lease=scene.lease(1), run="echo A")
    agent.end("A")
    scene.take(scene.said(agent))

    async def read_and_wait() -> None:
        stream = await scene.kept.attach(scene.pod())
        pid: int = json.loads((scene.home / "agent.json").read_text())["pid"]
        await stream.close()
        deadline = asyncio.get_running_loop().time() + DEADLINE
        while os.path.exists(f"/proc/{pid}"):  # noqa: ASYNC240
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.02)

    asyncio.run(read_and_wait())


def test_nothing_else_is_answered_there(scene: Scene) -> None:
    agent = scene.agent()
    agent.assign(("A", 30), lease=scene.lease(1), run="echo A")
    agent.end("A")
    scene.take(scene.said(agent))
    name = f"{scene.word}-A"
    for first in (
        {"op": "control", "protocol": 1, "server": "s", "life": 1},
        {"op": "exec", "attempt": name, "argv": ["true"]},
        {"op": "put", "attempt": name, "path": "x"},
        {"op": "forward", "attempt": name, "port": 1},
    ):
        (said,) = scene.ask(**first)
        assert said["code"] == "agent/host-gone"


def test_no_secret_of_a_task_is_kept(scene: Scene) -> None:
    agent = scene.agent()
    agent.assign(
        ("A", 30), lease=scene.lease(1), run="echo ran", env={"PLAIN": SECRET},
        secrets={"TOKEN": SECRET}, order={"env": {"OWN": SECRET}},
    )  # fmt: skip
    agent.end("A")
    scene.take(scene.said(agent))
    files = [one for one in scene.folder.rglob("*") if one.is_file()]
    assert any(b"ran\n" in one.read_bytes() for one in files)
    assert not [one for one in files if SECRET.encode() in one.read_bytes()]
    assert scene.home.stat().st_mode & 0o077 == 0


# What a pod may not do


def test_a_stream_that_is_cut_anywhere_leaves_nothing(scene: Scene) -> None:
    agent = scene.agent()
    agent.assign(("A", 30), lease=scene.lease(1), run="echo some words")
    agent.end("A")
    whole = scene.said(agent)
    cuts = {0, 1, whole.index(b"some") + 2, len(whole) // 2, len(whole) - 20, len(whole) - 1}
    for cut in sorted(cuts):
        with pytest.raises(InfraError):
            scene.take(whole[:cut])
        assert scene.everything() == set()
        assert not scene.kept.has(scene.pod())
    scene.take(whole)
    assert scene.log("A") == b"some words\n"


def test_one_that_is_cancelled_leaves_nothing(scene: Scene) -> None:
    class Slow(Written):
        """Says no more after a while."""

        async def read(self, most: int = 65536) -> bytes:
            found = await super().read(most)
            if not found:
                await asyncio.Event().wait()
            return found

    async def cancelled() -> None:
        data = said(record(scene), a_file(scene, size=100)) + b"only this"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await scene.kept.take(scene.pod(), Slow(data))

    asyncio.run(cancelled())
    assert scene.everything() == set()


def record(scene: Scene, **changes: Any) -> dict[str, Any]:
    """What a pod says of its attempt."""
    fields = {
        "lease": scene.lease(1), "group": scene.word, "stage": 50, "at": 1.0, "gone": True,
        "order": {"attempt": "a", "node": "a-0", "task": "a", "index": 0, "number": 1,
                  "incarnation": 1, "goal": 30},
    }  # fmt: skip
    return {"attempt": "a", "folder": "a", "record": {**fields, **changes}}


def a_file(scene: Scene, **changes: Any) -> dict[str, Any]:
    """What a pod says before the bytes of a file."""
    return {"folder": "a", "name": "output", "at": 0, "size": 0, **changes}


def said(*messages: dict[str, Any]) -> bytes:
    """Lines, as a pod writes them."""
    return b"".join(json.dumps(one).encode() + b"\n" for one in messages)


END = {"end": True}
Hostile = Callable[[Scene], bytes]


@pytest.mark.parametrize(
    "hostile",
    [
        lambda s: said(record(s), a_file(s, folder="../../x")),
        lambda s: said({**record(s), "folder": ".."}, a_file(s, folder="..")),
        lambda s: said({**record(s), "folder": "/etc"}, a_file(s, folder="/etc")),
        lambda s: said({**record(s), "folder": ""}, a_file(s, folder="")),
        lambda s: said({**record(s), "folder": "a\0b"}, a_file(s, folder="a\0b")),
        lambda s: said(record(s), a_file(s, name="../journal")),
        lambda s: said(record(s), a_file(s, name="run.sh")),
        lambda s: said(record(s), a_file(s, folder="b")),
        lambda s: said(a_file(s)),
        lambda s: said(record(s), a_file(s, size=-5)),
        lambda s: said(record(s), a_file(s, at=-5)),
        lambda s: said(record(s), a_file(s, size=1 << 50)),
        lambda s: said(record(s), a_file(s, at=1 << 62)),
        lambda s: said(record(s), a_file(s, size="many")),
        lambda s: said(record(s, lease="g1-1-1.1-1")),
        lambda s: said(record(s, at="yesterday")),
        lambda s: said(record(s, at=float("inf"), stage=float("inf"))),
        lambda s: said({**record(s), "attempt": ["a"]}),
        lambda s: said({"record": None}),
        lambda s: said(record(s, order=7)),
        lambda s: b"[1, 2]\n",
        lambda s: b"\xff\xfe\n",
        lambda s: b"[" * 100_000 + b"\n",
    ],
)
def test_a_pod_that_says_something_else_is_refused(scene: Scene, hostile: Hostile) -> None:
    before = sorted(os.listdir(scene.folder.parent))
    with pytest.raises(InfraError) as caught:
        scene.take(hostile(scene) + said(END))
    assert caught.value.code == "kubernetes/strange-log"
    assert scene.everything() == set()
    assert set(os.listdir(scene.folder.parent)) - set(before) <= {"kept"}


def test_a_record_can_neither_start_nor_remove_anything(scene: Scene, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    bad = record(
        scene, gone=False, stage=30, group="g2-2-2", work=str(mine), boot="b", spec={"env": {}},
        prepared=True, dropped=True,
    )  # fmt: skip
    scene.take(said(bad, END))
    assert scene.ask(op="forget", group=scene.word) == [{"ok": True}]
    assert mine.is_dir()
    assert scene.history() == {}

"""Files on their way to a host: the server's side of real streams to a real store."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from argosy.agent.store.receive import ReceiveError, Wire, receive
from argosy.agent.store.trees import Store
from argosy.control.delivery import Delivery
from argosy.control.entry import Entry
from argosy.infra.api import HostRef
from argosy.infra.local.agent import SocketStream
from argosy.model.group import Group, LeaseState
from argosy.model.spec import FileMount, Workdir
from argosy.storage import snapshot
from argosy.testing.builders import a_group, a_lease, a_task
from tests.agent.store.odd import odd_folder, seen
from tests.control.bench import Skewed, until

pytestmark = pytest.mark.anyio

HOST = HostRef("local", "h1")
LARGE = 64 << 20  # bytes: many frames


class Counting(socket.socket):
    """Counts what is received."""

    count = 0

    def recv(self, size: int, flags: int = 0) -> bytes:
        """As it is, counted."""
        data = super().recv(size, flags)
        self.count += len(data)
        return data


@dataclass
class World:
    """A server's side with one group; and a host whose agent is its store alone."""

    folder: Path
    group: Group
    entries: dict[Any, Entry] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)  # what the agent was told that can't come
    cut: int = 0  # streams yet to be cut after some bytes
    full: bool = False  # the host's disk
    received: int = 0  # bytes, of all streams
    opened: int = 0
    threads: list[threading.Thread] = field(default_factory=list)
    name: str = "local"
    clock: Skewed = field(default_factory=Skewed)

    def __post_init__(self) -> None:
        self.entries[self.group.id] = Entry(self.group)
        self.store = Store(str(self.folder / "store"))
        self.delivery = Delivery({"local": self}, self.clock, self)  # type: ignore[dict-item]

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> object:
        self.tasks.append(asyncio.create_task(work, name=name))
        return self.tasks[-1]

    def news(self, entry: Entry) -> None:
        pass

    async def attach(self, host: HostRef) -> SocketStream:
        assert host == HOST
        self.opened += 1
        ours, theirs = socket.socketpair()
        thread = threading.Thread(target=self._agent, args=(theirs,))
        self.threads.append(thread)
        thread.start()
        return await SocketStream.to(sock=ours)

    def _agent(self, sock: socket.socket) -> None:
        sock = Counting(fileno=sock.detach())
        wire = Wire(sock)
        try:
            first = wire.line()
            if "failed" in first:
                self.told.append(first["failed"])
                wire.say({"ok": True})
                return
            take = wire.take

            def cut(size: int) -> bytes:
                if size > 1000 and self.full:
                    raise OSError(errno.ENOSPC, "No space left on device", "/store")
                if size > 1000 and self.cut:  # a frame
                    self.cut -= 1
                    take(1000)
                    sock.shutdown(socket.SHUT_RDWR)  # nor can it say why any more
                    raise ReceiveError("cut")
                return take(size)

            wire.take = cut  # type: ignore[method-assign]
            receive(self.store, first["tree"], wire, lambda here, total: None)
        except ReceiveError:
            pass
        finally:
            self.received += sock.count
            sock.close()

    @property
    def paths(self) -> list[str]:
        task = self.group.spec.tasks[0]
        assert task.workdir is not None
        return [task.workdir.path, *(mount.source for mount in task.file_mounts)]

    def need(self, path: str = "", lease: str = "", host: HostRef = HOST) -> str:
        """The agent asks; the tree."""
        path = path or self.paths[0]
        tree = os.path.basename(path)
        lease = lease or self.group.leases[0].id
        self.delivery.need(host, {"type": "need", "lease": lease, "tree": tree, "path": path})
        return tree

    async def settled(self) -> None:
        """All transfers have come to their end."""
        await asyncio.gather(*self.tasks)
        for thread in self.threads:
            await asyncio.to_thread(thread.join)

    @property
    def events(self) -> list[tuple[str, str]]:
        return [(one.code, one.text) for one in self.entries[self.group.id].events]


def a_world(folder: Path, **lease: Any) -> World:
    """`trainer` on h1, with an odd folder as its workdir and a key as a mount; `other` is not."""
    plain = a_group(a_task("trainer"), a_task("other"))
    code, key = odd_folder(folder / "code"), folder / "key"
    key.write_text("key")
    foreign = folder / "foreign"
    foreign.mkdir()
    (foreign / "secret").write_text("secret")
    taken = snapshot.take(folder / "home", plain.id, [str(code), str(key), str(foreign)])
    mounts = (FileMount("~/key", taken[str(key)]),)
    trainer = a_task("trainer", workdir=Workdir(taken[str(code)]), file_mounts=mounts)
    other = a_task("other", workdir=Workdir(taken[str(foreign)]))
    held = a_lease("trainer-0", group=plain.id, **lease)
    return World(folder, a_group(trainer, other, leases=(held,)))


def as_it_is(path: Path) -> Any:
    """A folder with all that is in it, or a file."""
    return seen(path) if path.is_dir() else (path.read_bytes(), path.stat().st_mode)


async def test_a_host_gets_what_it_needs(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    trees = [world.need(path) for path in world.paths]
    await world.settled()
    for tree, path in zip(trees, world.paths, strict=True):
        world.store.build(tree, str(tmp_path / tree))
        assert as_it_is(tmp_path / tree) == as_it_is(Path(path))
    assert [code for code, _ in world.events] == ["files-sent", "files-sent"]
    assert " 0 bytes were there" in world.events[0][1]


async def test_who_asks_again_meanwhile_gets_it_once(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    for _ in range(3):
        world.need()
    await world.settled()
    assert world.opened == 1
    world.need()
    await world.settled()
    assert [code for code, _ in world.events] == ["files-sent"]  # nothing was sent this time


async def test_a_stream_that_is_cut_goes_on_when_it_is_asked_for_again(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    world.cut = 1
    tree = world.need()
    await world.settled()
    assert not world.store.has(tree)
    world.need()  # too soon
    assert world.opened == 1
    world.clock.slept += 10.0
    world.need()
    await world.settled()
    assert world.store.has(tree)
    assert [code for code, _ in world.events] == ["files-sent"]


@pytest.mark.parametrize("what", ["other-task", "other-host", "no-lease", "no-path", "outside"])
async def test_nobody_gets_what_is_not_for_him(tmp_path: Path, what: str) -> None:
    world = a_world(tmp_path)
    other = world.group.spec.tasks[1].workdir
    assert other is not None
    match what:
        case "other-task":
            world.need(other.path)
        case "other-host":
            world.need(host=HostRef("local", "h2"))
        case "no-lease":
            world.need(lease="g1-1.1-9")
        case "no-path":
            world.need("/etc/passwd")
        case _:
            world.need(f"{world.paths[0]}/../{os.path.basename(other.path)}")
    assert (world.tasks, world.opened) == ([], 0)


async def test_a_lease_that_is_let_go_gets_nothing(tmp_path: Path) -> None:
    world = a_world(tmp_path, state=LeaseState.RELEASING)
    world.need()
    assert world.tasks == []


async def test_a_snapshot_that_is_gone_is_told(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    snapshot.drop(tmp_path / "home", world.group.id)
    world.need()
    await world.settled()
    assert len(world.told) == 1
    assert "cannot be read" in world.told[0]


async def test_why_it_does_not_come_is_told_once(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    (Path(world.paths[0]) / "main.py").write_bytes(b"PRINT(1)\n")
    for _ in range(2):
        world.need()
        await world.settled()
        world.clock.slept += 10.0
    assert [code for code, _ in world.events] == ["files-not-sent"]
    assert "another one" in world.events[0][1]


async def test_a_host_that_is_full_says_so_and_is_sent_no_more(tmp_path: Path) -> None:
    plain = a_group(a_task("trainer"))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "weights").write_bytes(os.urandom(LARGE))
    code = str(tmp_path / "code")
    taken = snapshot.take(tmp_path / "home", plain.id, [code])[code]
    held = a_lease("trainer-0", group=plain.id)
    world = World(tmp_path, a_group(a_task("trainer", workdir=Workdir(taken)), leases=(held,)))
    world.full = True
    world.need()
    await world.settled()
    ((code, text),) = world.events
    assert code == "files-not-sent"
    assert "/store: No space left on device" in text
    assert world.received < LARGE / 2


async def test_ten_thousand_files_are_one_conversation(tmp_path: Path) -> None:
    plain = a_group(a_task("trainer"))
    code = tmp_path / "code"
    for number in range(10_000):
        path = code / f"{number % 100:02}" / f"{number}.py"
        if number < 100:
            path.parent.mkdir(parents=True)
        path.write_text(f"print({number})\n")
    taken = snapshot.take(tmp_path / "home", plain.id, [str(code)])[str(code)]
    held = a_lease("trainer-0", group=plain.id)
    world = World(tmp_path, a_group(a_task("trainer", workdir=Workdir(taken)), leases=(held,)))
    tree = world.need()
    await until(lambda: all(task.done() for task in world.tasks))
    await world.settled()
    world.store.build(tree, str(tmp_path / "built"))
    assert seen(tmp_path / "built") == seen(taken)
    assert world.opened == 1

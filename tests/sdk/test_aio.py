"""The client for asyncio: against a whole server in this process, and against recorded answers."""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from argosy.errors import Broken, Conflict, InputErrors, NotFound, Unreachable
from argosy.sdk import aio, client, wire
from argosy.sdk.aio import wire as aio_wire
from argosy.sdk.aio.channels import Channel
from argosy.sdk.channels import packed
from argosy.sdk.client import LogQuery
from argosy.sdk.wire import NoServer
from argosy.views.shapes import Overview
from tests.sdk.answering import Answering, Refused, Stream, answering
from tests.server.rig import DEADLINE_S, FILE, a_server

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A home whose socket can be reached by its plain path."""
    with tempfile.TemporaryDirectory(prefix="argosy-") as made:
        yield Path(made)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Answering]:
    with answering(tmp_path / "home") as running:
        yield running


def verbs(kind: type) -> dict[str, list[str]]:
    return {
        name: list(inspect.signature(one).parameters)
        for name, one in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") or name == "__init__"
    }


def test_both_clients_have_the_same_verbs() -> None:
    assert verbs(aio.Client) == verbs(client.Client)


async def test_a_group_is_launched_watched_and_ended(folder: Path) -> None:
    async with a_server(folder), asyncio.timeout(DEADLINE_S):
        here = aio.Client(folder, start=False)
        body = {"file": "demo.yaml", "text": FILE, "base": str(folder)}
        assert (await here.plan(body)).fits
        accepted = await here.launch(body)
        async for view in here.watch(accepted.id):
            if view.phase == "RUNNING":
                break
        assert (await here.group("demo")).phase == "RUNNING"
        assert [row.id for row in await here.groups()] == [accepted.id]
        assert (await here.server()).groups == 1
        with pytest.raises(Conflict):
            await here.launch(body)
        await here.cancel("demo", now=True)
        ended = await here.wait("demo")
        assert ended is not None
        assert ended.exit_code == 103
        codes = [event.code async for event in here.events("demo", follow=True)]
        assert codes[0] == "group-submitted"
        assert codes[-1] == "group-ended"
        assert (await here.explain("demo")).phase == "CANCELLED"
        await here.remove("demo")
        with pytest.raises(NotFound):
            await here.group("demo")


async def test_a_wrong_file_is_all_its_errors(folder: Path) -> None:
    async with a_server(folder), asyncio.timeout(DEADLINE_S):
        here = aio.Client(folder, start=False)
        with pytest.raises(InputErrors) as caught:
            await here.plan({"file": "g.yaml", "text": "rnu: x\nnum_nodes: y\n"})
        assert len(caught.value.errors) == 2


async def test_a_command_gets_its_input_and_gives_output_and_code(folder: Path) -> None:
    async with a_server(folder) as rig, asyncio.timeout(DEADLINE_S):
        await rig.running()
        here = aio.Client(folder, start=False)
        query: dict[str, object] = {"task": "worker", "index": 1, "argv": '["echo","a b"]'}
        channel = await here.channel("demo", "exec", query)
        assert await channel.receive() == {"stdout": packed(b"echo a b")}
        await channel.send({"stdin": packed(b"typed")})
        assert await channel.receive() == {"stdout": packed(b"typed")}
        await channel.send({"stdin_end": True})
        assert await channel.receive() == {"exit_code": 7}
        assert await channel.receive() is None
        with pytest.raises(Unreachable, match="has ended"):
            await channel.send({"stdin_end": True})
        await channel.close()
        with pytest.raises(NotFound):
            await here.channel("demo", "exec", {**query, "task": "nobody"})


def calls() -> set[asyncio.Task[object]]:
    """The tasks of clients and connections: what the control plane does beside them has a name."""
    return {one for one in asyncio.all_tasks() if one.get_name().startswith("Task-")}


async def test_a_wait_that_is_given_up_leaves_nothing_waiting(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        here = aio.Client(folder, start=False)
        before = calls()
        waiting = asyncio.create_task(here.wait("demo"))
        following = asyncio.create_task(anext(here.logs("demo", LogQuery(follow=True, grep="no"))))
        await rig.until(lambda: len(calls()) > len(before) + 2)  # the server has them
        for task in (waiting, following):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await rig.until(lambda: calls() <= before)
        assert (await here.group("demo")).phase == "RUNNING"


async def test_nobody_listens_is_no_server(tmp_path: Path) -> None:
    with pytest.raises(NoServer, match="no server runs"):
        await aio.Client(tmp_path / "nowhere", start=False).server()


async def test_a_missing_server_is_started_by_the_first_call(folder: Path) -> None:
    here = aio.Client(folder)
    view = await here.server()
    await here.stop_server()
    await asyncio.to_thread(os.waitpid, view.pid, 0)
    assert view.home == str(folder)


async def test_a_slow_server_is_told(server: Answering) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(_: dict[str, str]) -> dict[str, object]:
        loop.call_soon_threadsafe(asked.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(DEADLINE_S)
        return {}

    server.answers["GET /v1/server"] = slow
    try:
        with pytest.raises(Unreachable, match="does not answer"):
            await aio.Client(server.home, start=False, timeout=0.2).server()
        assert asked.is_set()
    finally:
        go_on.set()


async def test_what_is_wrong_with_an_answer_is_told_as_by_the_other_client(
    server: Answering,
) -> None:
    here = aio.Client(server.home, start=False)
    line = asdict(Overview("g1", "demo", "RUNNING"))
    server.answers["GET /v1/groups/demo/watch"] = Stream([line], cut=True)
    views = here.watch("demo")
    assert (await anext(views)).phase == "RUNNING"
    with pytest.raises(Unreachable, match="cut off"):
        await anext(views)
    server.answers["GET /v1/groups/demo/wait"] = Refused(408, line)
    assert await here.wait("demo", timeout=0.5) is None
    server.answers["GET /v1/server"] = b"hello"
    with pytest.raises(Broken, match="not JSON"):
        await here.server()
    with pytest.raises(Broken, match="404"):
        await here.group("demo")


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """A server's socket in that home, at which nobody answers."""
    path = wire.socket_file(tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
        made.listen()
        made.settimeout(DEADLINE_S)
        yield made


async def test_a_channel_whose_opening_is_cancelled_leaves_no_socket(
    tmp_path: Path, listener: socket.socket
) -> None:
    opening = asyncio.create_task(Channel.open(tmp_path, "/v1/x"))
    theirs, _ = await asyncio.to_thread(listener.accept)
    with theirs:
        await asyncio.to_thread(theirs.recv, 1 << 16)  # the handshake has begun
        opening.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await opening
        theirs.settimeout(DEADLINE_S)
        assert theirs.recv(1 << 16) == b""
    assert cancelled  # and with it whatever it refers to


async def test_a_request_that_cannot_be_made_leaves_no_socket(
    tmp_path: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise OSError(24, "no more descriptors")

    monkeypatch.setattr(asyncio, "open_unix_connection", refused)
    with pytest.raises(Unreachable) as caught:
        await aio_wire.call(tmp_path, "GET", "/v1/x", None, DEADLINE_S)
    theirs, _ = listener.accept()
    with theirs:
        theirs.settimeout(DEADLINE_S)
        assert theirs.recv(1) == b""
    assert caught  # and with it whatever it refers to

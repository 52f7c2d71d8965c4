"""Two-way streams into a node, over a real websocket."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from argosy.errors import Conflict, InputError, NotFound, Unreachable
from argosy.sdk.channels import packed, unpacked
from tests.server.rig import a_server

pytestmark = pytest.mark.anyio


async def test_a_command_gets_its_input_and_gives_output_and_code(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        channel = await rig.channel(
            'groups/demo/exec?task=worker&index=1&argv=["echo","a%20b"]&tty=1'
        )

        def talk() -> list[object]:
            first = channel.receive()
            channel.send({"stdin": packed(b"typed")})
            second = channel.receive()
            channel.send({"stdin_end": True})
            return [first, second, channel.receive(), channel.receive()]

        assert await asyncio.to_thread(talk) == [
            {"stdout": packed(b"echo a b")},
            {"stdout": packed(b"typed")},
            {"exit_code": 7},
            None,
        ]
        await asyncio.to_thread(channel.close)


async def test_bytes_are_forwarded_both_ways(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        channel = await rig.channel("groups/demo/forward?task=trainer&port=8000")
        sent = bytes(range(256)) * 5000

        def talk() -> bytes:
            channel.send_bytes(sent)
            found = b""
            while len(found) < len(sent):
                part = channel.receive_raw()
                assert isinstance(part, bytes)
                found += part
            return found

        assert await asyncio.to_thread(talk) == sent
        await asyncio.to_thread(channel.close)


async def test_files_go_there_and_come_back(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        there = await rig.channel("groups/demo/copy?task=trainer&path=f.txt&direction=put")

        def put() -> object:
            there.send({"data": packed(b"con")})
            there.send({"data": packed(b"tent")})
            there.send({"end": True})
            return there.receive()

        assert await asyncio.to_thread(put) == {"ok": True}
        await asyncio.to_thread(there.close)
        assert rig.infra.files == {"f.txt": b"content"}
        back = await rig.channel("groups/demo/copy?task=trainer&path=f.txt&direction=get")
        first, last = await asyncio.to_thread(lambda: (back.receive(), back.receive()))
        assert first is not None
        assert unpacked(first["data"]) == b"content"
        assert last == {"end": True, "mode": 0o644}
        await asyncio.to_thread(back.close)


async def test_an_error_of_the_agent_reaches_the_client(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        back = await rig.channel("groups/demo/copy?task=trainer&path=none&direction=get")
        with pytest.raises(NotFound) as caught:
            await asyncio.to_thread(back.receive)
        assert caught.value.code == "agent/no-file"
        await asyncio.to_thread(back.close)


async def test_what_cannot_begin_is_refused_with_the_error(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        with pytest.raises(NotFound):
            await rig.channel("groups/demo/exec?task=nobody&argv=%5B%22a%22%5D")
        with pytest.raises(InputError):
            await rig.channel("groups/demo/exec?task=trainer&argv=ls")
        with pytest.raises(InputError) as wrong:
            await rig.channel("groups/demo/exec?task=trainer")
        assert wrong.value.code == "server/request"
        with pytest.raises(Unreachable) as caught:
            await rig.channel("groups/demo/forward?task=trainer&port=1")
        assert caught.value.text == "nobody listens"
        await rig.post("groups/demo/cancel", {"now": True})
        await rig.get("groups/demo/wait?timeout=30")
        with pytest.raises(Conflict) as ended:
            await rig.channel("groups/demo/exec?task=trainer&argv=%5B%22a%22%5D")
        assert ended.value.code == "server/not-running"


async def test_a_stopping_server_ends_sessions(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        channel = await rig.channel("groups/demo/forward?task=trainer&port=8000")
        rig.web.stop()
        assert await asyncio.to_thread(channel.receive_raw) is None
        await asyncio.to_thread(channel.close)

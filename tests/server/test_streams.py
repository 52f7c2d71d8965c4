"""Streams of a group: changes, events, logs."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from argosy.errors import InputError, NotFound, Unreachable
from argosy.sdk import wire
from argosy.server.agents import Doors
from tests.server.rig import Rig, a_server

pytestmark = pytest.mark.anyio


def text_of(lines: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """(node@attempt, text) of each chunk."""
    return [
        (f"{one['task']}-{one['index']}@{one['attempt']}", base64.b64decode(one["data"]).decode())
        for one in lines
        if "data" in one
    ]


async def chunk(stream: Any) -> tuple[str, str]:
    """The next chunk of a stream."""
    line = await stream.next()
    assert line is not None
    (found,) = text_of([line])
    return found


async def end_all(rig: Rig, exit_code: int = 0) -> None:
    for node in ("trainer-0", "worker-0", "worker-1"):
        await rig.infra.end(node, exit_code)


async def test_watching_shows_the_group_now_and_at_its_end(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        watch = rig.stream("groups/demo/watch")
        first = await watch.next()
        assert first is not None
        assert first["phase"] == "RUNNING"
        await end_all(rig)
        seen = [first]
        while (line := await watch.next()) is not None:
            seen.append(line)
        assert seen[-1]["phase"] == "SUCCEEDED"
        versions = [line["version"] for line in seen]
        assert versions == sorted(versions)


async def test_watching_says_a_group_again_that_only_grows_older(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("argosy.server.streams.AGAIN_S", 0.05)
    async with a_server(folder) as rig:
        await rig.running()
        watch = rig.stream("groups/demo/watch")
        seen = [await watch.next()]
        ages: list[float] = []
        while len(ages) < 3:  # a change that comes late starts anew
            line = await watch.next()
            assert line is not None
            alike = seen[-1] is not None and seen[-1]["version"] == line["version"]
            ages = [*ages, line["age"]] if alike else []
            seen.append(line)
        assert ages == sorted(set(ages))
        await end_all(rig)
        while (line := await watch.next()) is not None:
            seen.append(line)
        assert seen[-1] is not None
        assert seen[-1]["phase"] == "SUCCEEDED"


async def test_events_come_once_each_and_follow_to_the_end(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        before = await rig.lines("groups/demo/events")
        following = rig.stream(f"groups/demo/events?follow=1&since={before[-1]['seq']}")
        await end_all(rig)
        after = []
        while (line := await following.next()) is not None:
            after.append(line)
        assert [*before, *after] == await rig.lines("groups/demo/events")
        sequence = [line["seq"] for line in [*before, *after]]
        assert sequence == sorted(set(sequence))


async def test_logs_are_merged_by_time(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        await rig.infra.write("worker-1", b"three\n", at=3.0)
        await rig.infra.write("worker-1", b"four\n", at=4.0)
        await rig.infra.write("trainer-0", b"one\n", at=1.0)
        await rig.infra.write("trainer-0", b"five\n", at=5.0)
        await rig.infra.write("worker-0", b"two\n", at=2.0)
        lines = await rig.lines("groups/demo/logs")
        assert [text for _, text in text_of(lines)] == [
            "one\n", "two\n", "three\n", "four\n", "five\n",
        ]  # fmt: skip
        assert [line["offset"] for line in lines] == [0, 0, 0, 6, 4]
        only = await rig.lines("groups/demo/logs?task=worker&index=1")
        assert text_of(only) == [("worker-1@1", "three\n"), ("worker-1@1", "four\n")]


async def test_following_sends_what_comes_and_ends_with_the_group(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        await rig.infra.write("trainer-0", b"old\n", at=1.0)
        logs = rig.stream("groups/demo/logs?follow=1")
        assert await chunk(logs) == ("trainer-0@1", "old\n")
        await rig.infra.write("worker-0", b"new\n", at=2.0)
        assert await chunk(logs) == ("worker-0@1", "new\n")
        await rig.infra.write("trainer-0", b"newer\n", at=3.0)
        assert await chunk(logs) == ("trainer-0@1", "newer\n")
        await end_all(rig)
        assert await logs.next() is None


async def test_a_new_attempt_joins_who_follows(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        await rig.infra.write("trainer-0", b"first\n", at=1.0)
        logs = rig.stream("groups/demo/logs?follow=1&task=trainer")
        assert await chunk(logs) == ("trainer-0@1", "first\n")
        await rig.post("groups/demo/restart", {"task": "trainer", "index": 0})
        await rig.until(lambda: rig.infra.program("trainer-0").order["number"] == 2)
        await rig.infra.write("trainer-0", b"second\n", at=2.0, number=2)
        assert await chunk(logs) == ("trainer-0@2", "second\n")
        assert text_of(await rig.lines("groups/demo/logs?task=trainer")) == [
            ("trainer-0@1", "first\n"), ("trainer-0@2", "second\n"),
        ]  # fmt: skip
        assert text_of(await rig.lines("groups/demo/logs?task=trainer&previous=1")) == [
            ("trainer-0@1", "first\n")
        ]
        assert text_of(await rig.lines("groups/demo/logs?task=trainer&attempt=2")) == [
            ("trainer-0@2", "second\n")
        ]
        await end_all(rig)
        assert await logs.next() is None


async def test_a_broken_stream_to_an_agent_is_taken_up_where_it_was(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        await rig.infra.write("trainer-0", b"one\n", at=1.0)
        logs = rig.stream("groups/demo/logs?follow=1&task=trainer")
        assert await chunk(logs) == ("trainer-0@1", "one\n")
        await rig.infra.close()
        await rig.infra.write("trainer-0", b"two\n", at=2.0)
        assert await chunk(logs) == ("trainer-0@1", "two\n")
        await end_all(rig)
        assert await logs.next() is None


async def test_an_agent_that_cannot_be_reached_is_told_not_waited_for(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        rig.infra.deaf = True
        lines = await rig.lines("groups/demo/logs?task=trainer")
        assert [line["task"] for line in lines] == ["trainer"]
        assert "cannot be read" in lines[0]["note"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents are asked soon whether they are there."""
    monkeypatch.setattr("argosy.server.logs.SILENT_S", 0.2)
    monkeypatch.setattr("argosy.server.agents.KNOCK_S", 1.0)


@pytest.mark.usefixtures("impatient")
async def test_a_frozen_agent_is_told_and_its_log_read_from_the_disk(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        await rig.infra.write("trainer-0", b"one\n", at=1.0)
        rig.infra.frozen = True
        (line,) = await rig.lines("groups/demo/logs?task=trainer")
        assert line["note"] == "the log of trainer-0 cannot be read: host h1 does not answer"
        rig.infra.disk["trainer-0"] = b"one\ntwo\nthree"
        note, *chunks = await rig.lines("groups/demo/logs?task=trainer")
        assert note["note"].startswith("host h1 does not answer: what follows is the end")
        assert text_of(chunks) == [("trainer-0@1", "one\ntwo\nthree")]
        note, chunk = await rig.lines("groups/demo/logs?task=trainer&tail=2")
        assert text_of([chunk]) == [("trainer-0@1", "two\nthree")]
        assert chunk["offset"] == 104
        rig.infra.disk["trainer-0"] = b"one\n10%\r20%\nthree"
        note, chunk = await rig.lines("groups/demo/logs?task=trainer&tail=2")
        assert text_of([chunk]) == [("trainer-0@1", "10%\r20%\nthree")]
        (line,) = await rig.lines("groups/demo/logs?task=trainer&grep=t")
        assert "cannot be read" in line["note"]  # to filter is the agent's work


@pytest.mark.usefixtures("impatient")
async def test_following_a_frozen_agent_says_so_once_and_goes_on_after_it(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        await rig.infra.write("trainer-0", b"one\n", at=1.0)
        logs = rig.stream("groups/demo/logs?follow=1&task=trainer")
        assert await chunk(logs) == ("trainer-0@1", "one\n")
        rig.infra.frozen = True
        await rig.infra.close()  # the streams that were open before
        line = await logs.next()
        assert line is not None
        assert "host h1 does not answer" in line["note"]
        rig.infra.frozen = False
        await rig.infra.write("trainer-0", b"two\n", at=2.0)
        assert await chunk(logs) == ("trainer-0@1", "two\n")
        await end_all(rig)
        assert await logs.next() is None


@pytest.mark.usefixtures("impatient")
async def test_a_quiet_log_is_no_frozen_agent(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        logs = rig.stream("groups/demo/logs?follow=1&task=trainer")
        before = rig.infra.streams_taken
        await rig.until(lambda: rig.infra.streams_taken >= before + 4)  # asked and answered
        await rig.infra.write("trainer-0", b"late\n", at=2.0)
        assert await chunk(logs) == ("trainer-0@1", "late\n")
        await end_all(rig)
        assert await logs.next() is None


@pytest.mark.usefixtures("impatient")
async def test_all_who_wait_for_an_agent_share_one_knock(folder: Path) -> None:
    async with a_server(folder) as rig:
        group = rig.control.find(await rig.running())

        async def knocks(fresh: float) -> tuple[int, list[object]]:
            before = rig.infra.streams_taken
            asked = (doors.knock(rig.control, one, fresh) for one in group.attempts)
            found = await asyncio.gather(*asked, return_exceptions=True)
            return rig.infra.streams_taken - before, [type(one) for one in found]

        doors = Doors()
        assert await knocks(0.0) == (1, [type(None)] * 3)
        assert await knocks(1000.0) == (0, [type(None)] * 3)  # that answer is fresh
        rig.infra.frozen = True
        assert await knocks(0.0) == (1, [Unreachable] * 3)
        rig.infra.frozen = False
        assert await knocks(1000.0) == (1, [type(None)] * 3)  # what failed is tried again


async def test_what_an_agent_cannot_read_is_a_sentence(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        rig.infra.refusal = {"error": "InfraError", "code": "agent/log-unreadable", "text": "EIO"}
        logs = rig.stream("groups/demo/logs?follow=1&task=trainer")
        line = await logs.next()
        assert line is not None
        assert line["note"] == "the log of trainer-0 cannot be read: EIO"
        await end_all(rig)
        assert await logs.next() is None
        follow = rig.stream("groups/demo/logs?follow=1&task=worker&index=0")
        line = await follow.next()
        assert line is not None
        assert "EIO" in line["note"]
        assert await follow.next() is None


@pytest.mark.parametrize("query", ["", "&follow=1"])
async def test_a_pattern_that_an_agent_refuses_is_the_readers_error(
    folder: Path, query: str
) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        rig.infra.refusal = {
            "error": "InputError", "code": "agent/grep-too-slow", "text": "it takes too long",
        }  # fmt: skip
        with pytest.raises(InputError, match="it takes too long"):
            await rig.lines(f"groups/demo/logs?task=trainer&grep=x{query}")


@pytest.mark.parametrize("query", ["", "?follow=1"])
async def test_a_slow_reader_holds_the_agents_back(folder: Path, query: str) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        for node in ("trainer-0", "worker-0"):
            for number in range(400):
                await rig.infra.write(node, b"x" * 65536, at=float(number))
        logs = await asyncio.to_thread(wire.open_socket, folder)
        logs.sendall(f"GET /v1/groups/demo/logs{query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        sent = -1
        while sent != rig.infra.log_bytes or sent == 0:  # until nothing moves any more
            sent = rig.infra.log_bytes
            await asyncio.sleep(0.2)
        assert sent < 8 * 2**20
        before = rig.infra.open_streams
        logs.close()
        await rig.until(lambda: rig.infra.open_streams == before - 2)


async def test_a_reader_that_is_gone_leaves_no_stream_to_an_agent(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        before = rig.infra.open_streams
        channel = await rig.channel("groups/demo/exec?task=trainer&argv=%5B%22a%22%5D")
        logs = rig.stream("groups/demo/logs?follow=1")
        await rig.until(lambda: rig.infra.open_streams == before + 4)
        await asyncio.to_thread(channel.close)
        await rig.until(lambda: rig.infra.open_streams == before + 3)
        rig.web.stop()
        line = await logs.next()
        assert line is not None
        assert line["raised"].code == "server/stopped"
        await rig.until(lambda: rig.infra.open_streams == before)


async def test_an_attempt_that_never_was_is_not_found(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        with pytest.raises(NotFound) as caught:
            await rig.lines("groups/demo/logs?task=trainer&index=0&attempt=99")
        assert caught.value.text == "there is no attempt 99; the newest is 1"


async def test_a_node_without_its_task_is_an_input_error(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        with pytest.raises(InputError) as caught:
            await rig.get("groups/demo/logs?index=1")
        assert "demo/trainer/1" in caught.value.hints[0]

"""Agents that dial in: a real agent in a container's way of life, and the door that it dials."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from argosy.errors import InfraError
from argosy.infra.kubernetes.door import Door
from argosy.infra.pack import packed_agent
from argosy.model.ids import LeaseId

LEASE = LeaseId("gaa-1-2.3-4")
DEADLINE = 30.0


@dataclass
class Pod:
    """A process that is what PID 1 of a pod is."""

    home: Path
    process: subprocess.Popen[bytes]

    def agent(self) -> int:
        """The pid of its agent."""
        return int(json.loads((self.home / "agent.json").read_bytes())["pid"])


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@asynccontextmanager
async def opened(folder: Path, port: int = 0) -> AsyncIterator[Door]:
    door = Door(f"127.0.0.1:{port or free_port()}", folder / "server")
    try:
        await door.open()
        yield door
    finally:
        await door.close()


def started(words: list[str], environment: dict[str, str], said: Path) -> subprocess.Popen[bytes]:
    with open(said, "wb") as file:
        return subprocess.Popen(words, env=environment, stdout=file, stderr=file)


def has_ended(home: Path, size: int) -> None:
    """Put an ended attempt into an agent's home."""
    folder = home / "attempts" / "a"
    folder.mkdir(parents=True)
    (folder / "output").write_bytes(b"x" * size)
    record = {"order": {"attempt": "a", "node": "n"}, "lease": LEASE, "stage": 50}
    with open(home / "journal", "a") as journal:
        journal.write(json.dumps(["attempt", "a", record]) + "\n")


@asynccontextmanager
async def dialing(folder: Path, door: Door, lease: LeaseId = LEASE) -> AsyncIterator[Pod]:
    secret, home = folder / "dial", folder / "home"
    secret.mkdir(exist_ok=True)
    (secret / "certificate").write_text(await door.open())
    (secret / "token").write_text(door.token(lease))
    environment = {
        "PATH": os.environ["PATH"],
        "ARGOSY_DIAL": door.address,
        "ARGOSY_DIAL_FOLDER": str(secret),
        "ARGOSY_LEASE": lease,
    }
    agent = packed_agent(folder / "agent")
    words = [sys.executable, "-I", "-S", str(agent), "container", "--home", str(home)]
    process = started(words, environment, folder / "said")
    try:
        yield Pod(home, process)
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, DEADLINE) == 0


async def status(door: Door) -> dict[str, object]:
    """What the agent answers; one that was just killed may have taken a stream, and hangs up."""
    async with asyncio.timeout(DEADLINE):
        while True:
            stream = await door.stream(LEASE, DEADLINE)
            assert stream is not None
            await stream.write(b'{"op":"status"}\n')
            line = await stream.readline()
            await stream.close()
            if line:
                answer: dict[str, object] = json.loads(line)
                return answer


def test_streams_come_from_an_agent_that_dials(tmp_path):
    async def story():
        async with opened(tmp_path) as door:
            door.living.append(lambda lease: lease == LEASE)
            async with dialing(tmp_path, door) as pod:
                assert (await status(door))["pid"] == pod.agent()
                answers = await asyncio.gather(*(status(door) for _ in range(20)))
                assert {one["pid"] for one in answers} == {pod.agent()}

    asyncio.run(story())


def test_the_agent_is_killed_and_the_next_answers(tmp_path):
    async def story():
        async with opened(tmp_path) as door:
            door.living.append(lambda lease: True)
            async with dialing(tmp_path, door):
                first = (await status(door))["pid"]
                os.kill(int(str(first)), signal.SIGKILL)
                assert (await status(door))["pid"] != first

    asyncio.run(story())


def test_a_server_that_comes_back_is_dialed_again(tmp_path):
    """With the certificate and the tokens that it had: the secret of a pod never changes."""

    async def story():
        port = free_port()
        async with opened(tmp_path, port) as door:
            door.living.append(lambda lease: True)
            async with dialing(tmp_path, door) as pod:
                await status(door)
                await door.close()
                async with opened(tmp_path, port) as again:
                    again.living.append(lambda lease: True)
                    assert again.token(LEASE) == door.token(LEASE)
                    assert (await status(again))["pid"] == pod.agent()

    asyncio.run(story())


@pytest.mark.parametrize("size", [0, 5, 3_000_000])
def test_logs_are_whole_however_large(tmp_path, size):
    async def story():
        async with opened(tmp_path) as door:
            door.living.append(lambda lease: True)
            async with dialing(tmp_path, door) as pod:
                await status(door)
                has_ended(pod.home, size)
                stream = await door.stream(LEASE, DEADLINE, keep=True)
                assert stream is not None
                body = b""
                while part := await stream.read():
                    body += part
                await stream.close()
                assert body.count(b"x" * 4096) == size // 4096
                assert body.endswith(b'{"end": true}\n')

    asyncio.run(story())


async def turned_away(door: Door, said: object) -> bool:
    """Whether somebody who says that is hung up on without a word."""
    context = ssl.create_default_context(cadata=await door.open())
    context.check_hostname = False
    host, _, port = door.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    writer.write(json.dumps(said).encode() + b"\n")
    async with asyncio.timeout(DEADLINE):
        try:
            answer = await reader.read()
        except ConnectionError:
            answer = b""
    writer.transport.abort()
    return answer == b""


def test_nobody_else_gets_in(tmp_path):
    async def story():
        async with opened(tmp_path) as door:
            door.living.append(lambda lease: lease == LEASE)
            token, other = door.token(LEASE), LeaseId("gaa-1-2.3-5")
            for said in (
                {"door": LEASE, "token": "0" * 64},
                {"door": LEASE},
                {"door": other, "token": token},
                {"door": other, "token": door.token(other)},  # its lease is gone
                {"stream": 1, "lease": LEASE, "token": token},  # nobody asked for it
                ["no", "object"],
                {},
            ):
                assert await turned_away(door, said), said
            assert await door.stream(LEASE, 0.0) is None

    asyncio.run(story())


def test_a_certificate_that_is_not_known_is_not_spoken_to(tmp_path):
    async def story():
        async with opened(tmp_path) as door, opened(tmp_path / "other") as other:
            door.living.append(lambda lease: True)
            other.address = door.address  # its certificate, at the address of another
            async with dialing(tmp_path, other):
                assert await door.stream(LEASE, 1.0) is None

    asyncio.run(story())


def test_a_port_that_is_taken_is_told(tmp_path):
    async def story():
        with socket.socket() as sock:
            sock.bind(("0.0.0.0", 0))
            sock.listen()
            door = Door(f"127.0.0.1:{sock.getsockname()[1]}", tmp_path)
            with pytest.raises(InfraError, match="cannot dial in: port"):
                await door.open()

    asyncio.run(story())


def test_the_key_is_for_its_user_only(tmp_path):
    async def story():
        async with opened(tmp_path):
            pass

    asyncio.run(story())
    assert (tmp_path / "server" / "door.key").stat().st_mode & 0o077 == 0

"""An `ssh` that ends at once: what it said is told, however fast it was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from argosy.errors import ArgosyError
from argosy.infra.ssh.config import HostConfig
from argosy.infra.ssh.connection import Connection
from argosy.infra.ssh.failures import EXIT_SSH

AT_ONCE = 20
SAID = "Bad owner or permissions on /home/me/.ssh/config"
SCRIPT = "echo here\n" * 2000  # no pipe takes it when nobody reads


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that says that, and ends."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{SAID}' >&2\nexit {EXIT_SSH}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return program


async def refusal(name: str, home: Path) -> ArgosyError:
    connection = Connection(HostConfig(name, name), home)
    stream = await connection.stream(SCRIPT)
    try:
        assert await stream.readline() == b""
        code, said = await stream.ended()
        assert code == EXIT_SSH
        return connection.failed(said)
    finally:
        await stream.close()


def test_many_that_end_at_once_all_say_why(ssh: Path, tmp_path: Path) -> None:
    async def story() -> list[ArgosyError]:
        names = (f"host-{number}" for number in range(AT_ONCE))
        return await asyncio.gather(*(refusal(name, tmp_path) for name in names))

    for error in asyncio.run(story()):
        assert error.code == "ssh/configuration"
        assert SAID in error.text

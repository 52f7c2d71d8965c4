"""A host of a pool, where `ssh` is a shell of this machine."""

from __future__ import annotations

import asyncio
import platform
import sys
from pathlib import Path

import pytest

from argosy.infra.ssh.bootstrap import Agents, Place
from argosy.infra.ssh.config import HostConfig
from argosy.infra.ssh.host import SshHost

SECONDS = 60.0
# What it is to run stands in its last argument.
SSH = '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what `ssh` finds there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    program(folder / "ssh", SSH)
    return folder


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_a_python_that_does_not_start_is_passed_over(programs: Path, tmp_path: Path) -> None:
    """As a shim whose Python was taken away: nobody can tell before it is tried."""
    program(programs / "python3", "#!/bin/sh\nexit 127\n")
    (programs / "python3.11").symlink_to(sys.executable)
    agents, place = Agents.packed(tmp_path), Place("~/agents", "me", "s1", 60.0, "10.0.0.7")

    async def story() -> None:
        for _ in ("the agent travels", "it is there"):
            host = SshHost(
                HostConfig("here", "here"), place, lambda: agents, tmp_path,
                changed=lambda: None, asked=set,
            )  # fmt: skip
            try:
                desk = await host.desk(SECONDS)
                assert desk.facts["python"] == platform.python_version()
                assert host.trouble is None
            finally:
                await host.close()

    asyncio.run(story())

"""One rig of three hosts for all tests here that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.infra.ssh.rig import Rig, a_rig


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    """host-1 and host-3 let root in, host-2 only `worker`; all have 8 H100."""
    with a_rig("--hosts", "3", "--gpus", "host-1=8:H100,host-2=8:H100,host-3=8:H100") as rig:
        yield rig


@pytest.fixture
def on_rig(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """The rig, whose `ssh` is the one that this process starts."""
    for name, value in rig.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(rig.user_home))
    return rig

"""One rig of three hosts for all tests here that need one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.infra.ssh.person import Person, at_the_end
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


@pytest.fixture
def person(rig: Rig, tmp_path: Path) -> Iterator[Person]:
    """Afterwards the server has ended, and nothing is left on the hosts."""
    yield from at_the_end(Person(rig, tmp_path))

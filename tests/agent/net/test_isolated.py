"""The isolated network as root and as an ordinary user; it needs namespaces, nft and pasta."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.net import stage


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="stage-"))
    yield stage.set_stage(place)
    left = [path for name in ("tmp-root", "tmp-user") for path in (place / name).iterdir()]
    shutil.rmtree(place)
    assert [path.name for path in left] in ([], ["resolv.conf"])


@pytest.mark.parametrize("who", stage.who_can_play())
@pytest.mark.parametrize("scene", stage.scenes("attempts"))
def test_attempts(folder: Path, scene: str, who: str) -> None:
    stage.play(folder, who, "attempts", scene)


@pytest.mark.parametrize("who", stage.who_can_play())
@pytest.mark.parametrize("scene", stage.scenes("networks"))
def test_networks(folder: Path, scene: str, who: str) -> None:
    stage.play(folder, who, "networks", scene)

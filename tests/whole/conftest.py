"""Homes that must be gone without a trace when their test is over."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import leftovers
from tests.whole.home import Home


@pytest.fixture
def network(request: pytest.FixtureRequest) -> str:
    """The mode asked for with `--network`; "" for what works here."""
    asked: str | None = request.config.getoption("--network")
    return asked or ""


@pytest.fixture
def home(network: str) -> Iterator[Home]:
    """A home in a folder of its own; fails when something of it stays in /proc, mounts or links."""
    # Not pytest's folder: that of root is closed to nobody here, but its path is long.
    folder = Path(tempfile.mkdtemp(prefix="argosy-whole-"))
    links = leftovers.links()
    home = Home(folder / "home", network)
    try:
        yield home
    finally:
        left = home.close()
        shutil.rmtree(folder, ignore_errors=True)
    left += [f"link {name}" for name in leftovers.links() - links]
    left += [str(path) for path in [folder] if path.exists()]
    assert not left, "left behind:\n" + "\n".join(left)

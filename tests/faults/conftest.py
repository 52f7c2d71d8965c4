"""Homes for broken things: one for each test, or one that the tests of a module share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts import leftovers
from tests.whole.home import Home


@contextmanager
def opened(request: pytest.FixtureRequest) -> Iterator[Home]:
    """A home whose server, agents, mounts and links must all be gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="argosy-fault-"))
    links = leftovers.links()
    home = Home(folder / "home", request.config.getoption("--network") or "")
    try:
        yield home
    finally:
        if (home.path / "store.db").exists() and not (home.path / "server.json").exists():
            home.argosy("status")  # what still runs can only be cancelled by a server
        left = home.close()
        shutil.rmtree(folder, ignore_errors=True)
    left += [f"link {name}" for name in leftovers.links() - links]
    left += [str(path) for path in [folder] if path.exists()]
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.fixture
def home(request: pytest.FixtureRequest) -> Iterator[Home]:
    """A home for one test."""
    with opened(request) as made:
        yield made


@pytest.fixture(scope="module")
def one_home(request: pytest.FixtureRequest) -> Iterator[Home]:
    """A home for a module whose tests leave its server alone."""
    with opened(request) as made:
        yield made

"""Coroutine tests run on asyncio; a socket's path is short, whatever the temporary folder's is."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in which a socket can be reached by its plain path."""
    with tempfile.TemporaryDirectory(prefix="argosy-") as made:
        yield Path(made)

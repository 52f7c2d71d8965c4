"""Options of all tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--network`: the mode that whole tests must get; without it, the one that works here."""
    parser.addoption("--network", choices=("isolated", "host"), default=None)

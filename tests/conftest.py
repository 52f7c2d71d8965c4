"""Options of all tests, and how a run is cut short."""

from __future__ import annotations

import signal

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--network`: the mode that whole tests must get; without it, the one that works here."""
    parser.addoption("--network", choices=("isolated", "host"), default=None)


def pytest_configure(config: pytest.Config) -> None:
    """A run that is told to end still ends what its tests have started. And one that was started in
    the background, where SIGINT is ignored, hands that on to no program of a test.
    """
    if not hasattr(config, "workerinput"):
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

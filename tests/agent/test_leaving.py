"""A host that goes away is left once, whatever is said meanwhile."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from argosy.agent.attempt.leaving import Leaving
from argosy.agent.loop import Loop
from argosy.agent.pod.keep import KEPT


def test_it_is_left_once_and_after_the_logs_were_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fd = os.open(KEPT, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    loop, left = Loop(), []
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        leaving = Leaving(loop, {})
        leaving.begin(lambda: left.append(loop.now()))
        for _ in range(3):
            leaving.look()
        loop.once()
        loop.once()
        assert not left
        fcntl.flock(fd, fcntl.LOCK_UN)
        while not loop.idle():
            loop.once()
        assert len(left) == 1
    finally:
        os.close(fd)
        loop.close()

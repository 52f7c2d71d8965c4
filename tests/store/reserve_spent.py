"""A program whose store meets a full disk and has room kept for it; run on a small tmpfs.

It prints one JSON object: what became of the reserve before, while and after the disk was full.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from small_disk import fill  # beside this file, which is run as a program

from argosy.model.action import Decision, Event
from argosy.model.group import Group
from argosy.store import reserve
from argosy.store.store import Store
from argosy.testing.builders import a_group

LONG = "x" * 20_000


def until(true: Callable[[], bool]) -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + 30.0
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def save(store: Store, group: Group) -> Group:
    """The record once more, with a fact that needs new pages."""
    return await store.save(group, Decision(group, (), (Event(1.0, "v", "", LONG),), (), 0.0))


async def main(folder: Path) -> dict[str, Any]:
    kept, ballast = folder / "store.reserve", folder / "ballast"
    store = Store.open(folder / "store.db")
    until(lambda: kept.exists() and kept.stat().st_size == reserve.RESERVE_BYTES)
    allocated = kept.stat().st_blocks * 512
    group = await store.create(a_group(), "source", ())
    fill(ballast)
    saved = 0
    while kept.exists():
        group = await save(store, group)
        saved += 1
    more = await save(store, group)
    fill(folder / "again")
    store.close()
    store = Store.open(folder / "store.db")
    reopened = store.load(group.id) == more
    (folder / "again").unlink()
    ballast.unlink()
    await save(store, more)
    until(lambda: kept.exists() and kept.stat().st_size == reserve.RESERVE_BYTES)
    events = len(store.events(group.id))
    store.close()
    return {
        "allocated": allocated,
        "saved": saved,
        "reopened": reopened,
        "whole": events == saved + 2,
    }


print(json.dumps(asyncio.run(main(Path(sys.argv[1])))))

"""A program whose store goes on writing on a disk that is full; run on a small tmpfs.

It prints one JSON object: what could be written while nothing was free, not even what was kept.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from small_disk import fill  # beside this file, which is run as a program

from argosy.model.action import Decision, Event
from argosy.store import room
from argosy.store.store import Store
from argosy.testing.builders import a_group

SAVES = 300
DEADLINE_S = 30.0


async def main(folder: Path) -> dict[str, Any]:
    store = Store.open(folder / "store.db")
    group = await store.create(a_group(), "source", ())
    log, kept = folder / "store.db-wal", folder / "store.reserve"
    deadline = time.monotonic() + DEADLINE_S
    while log.stat().st_size < room.ROUND_BYTES or not kept.exists():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    kept.unlink()
    fill(folder / "ballast")
    before = log.stat().st_size
    for number in range(SAVES):
        event = Event(float(number), "v", "", "x" * 1000)
        group = await store.save(group, Decision(group, (), (event,), (), 0.0))
    told = {
        "grew": log.stat().st_size - before,
        "whole": store.load(group.id) == group and len(store.events(group.id)) == SAVES,
    }
    store.close()
    return told


print(json.dumps(asyncio.run(main(Path(sys.argv[1])))))

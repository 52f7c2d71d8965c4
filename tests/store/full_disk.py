"""A program that fills the disk under its store; run by `test_faults.py` on a small tmpfs.

It prints one JSON object: what happened before, while and after the disk was full.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from argosy.errors import ArgosyError
from argosy.model.action import Decision, Event
from argosy.model.group import Group
from argosy.store.store import Store
from argosy.testing.builders import a_group

LONG = "x" * 20_000


async def fill(store: Store, group: Group) -> tuple[Group, ArgosyError]:
    """Save until it fails: the newest acknowledged record, and the error."""
    while True:
        event = Event(1.0, f"v{group.version + 1}", "", LONG)
        try:
            group = await store.save(group, Decision(group, (), (event,), (), 0.0))
        except ArgosyError as error:
            return group, error


async def main(folder: Path) -> dict[str, Any]:
    ballast = folder / "ballast"
    ballast.write_bytes(b"\0" * 400_000)
    store = Store.open(folder / "store.db")
    group = await store.create(a_group(), "source", (Event(1.0, "v1", "", ""),))
    group, error = await fill(store, group)
    read = store.load(group.id)
    ballast.unlink()
    after = await store.save(group, Decision(group, (), (Event(1.0, "last", "", ""),), (), 0.0))
    store.close()
    again = Store.open(folder / "store.db")
    codes = [event.code for _, event in again.events(group.id)]
    kept = again.load(group.id)
    again.close()
    return {
        "error": error.fields(),
        "readable_while_full": read == group,
        "writable_again": kept == after == replace(group, version=group.version + 1),
        "whole": codes == [*(f"v{n}" for n in range(1, group.version + 1)), "last"],
    }


print(json.dumps(asyncio.run(main(Path(sys.argv[1])))))

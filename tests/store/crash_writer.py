"""A program that writes to a store until it is killed; run by `test_crash.py`.

It waits for a line on stdin, opens a life, then makes groups and saves them, and says each
acknowledged write on stdout: `life N`, `saved GROUP VERSION`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

from argosy.model.action import Decision, Event
from argosy.model.group import Group
from argosy.model.ids import Serial, ServerId, group_id
from argosy.store.store import Store
from argosy.testing.builders import a_group, a_lease, a_spec

WRITERS = 4


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def next_of(group: Group) -> Decision:
    """One more event and, each second time, one more lease: so both kinds of commit occur."""
    version = group.version + 1
    event = Event(float(version), f"v{version}", "trainer-0", "x" * 200)
    if version % 2:
        return Decision(group, (), (event,), (), 0.0)
    serial = Serial(group.serial.life, group.serial.count + 1)
    lease = a_lease("trainer-0", group=group.id, count=serial.count)
    after = replace(group, serial=serial, leases=(*group.leases, lease))
    return Decision(after, (), (event,), (), 0.0)


async def one_writer(store: Store, life: int, numbers: count[int]) -> None:
    while True:
        number = next(numbers)
        new = a_group(spec=a_spec(name=f"g-{life}-{number}"))
        group = replace(new, id=group_id(ServerId("5eed01"), Serial(life, number)))
        group = await store.create(group, "source", (Event(1.0, "v1", "", "made"),))
        say("saved", group.id, group.version)
        for _ in range(6):
            group = await store.save(group, next_of(group))
            say("saved", group.id, group.version)


async def main(path: Path) -> None:
    sys.stdin.readline()
    store = Store.open(path)
    life = store.open_life(1.0)
    say("life", life)
    numbers = count(1)
    await asyncio.gather(*(one_writer(store, life, numbers) for _ in range(WRITERS)))


asyncio.run(main(Path(sys.argv[1])))

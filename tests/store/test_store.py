"""What the store keeps, and what it refuses."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.errors import Conflict, NotFound, Unreachable
from argosy.model.action import Decision, Event
from argosy.model.group import Group, Intent, Phase, Placing, Verb
from argosy.model.ids import LeaseId, Serial, ServerId, group_id, group_lease
from argosy.store import Store
from argosy.testing.builders import a_group, a_lease, a_spec, a_task

SOURCE = "name: demo\n"

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "store.db")
    yield opened
    opened.close()


def numbered(count: int, name: str = "demo", **changes: object) -> Group:
    """A group of its own id; the larger the number, the younger."""
    task = a_task("trainer", secrets=(("TOKEN", "hunter2"),))
    group = a_group(spec=a_spec(task, name=name), submitted_at=1000.0 + count)
    return replace(group, id=group_id(ServerId("5eed01"), Serial(1, count)), **changes)  # type: ignore[arg-type]


def decided(group: Group, *events: Event) -> Decision:
    return Decision(group, (), events, (), float("inf"))


def fact(code: str, at: float = 1.0) -> Event:
    return Event(at, code, "trainer-0", f"{code} happened", 1)


def final(group: Group, *, clean: bool = True) -> Group:
    return replace(group, phase=Phase.SUCCEEDED, ended_at=2000.0, clean=clean)


async def test_a_group_is_found_as_it_was_kept(store: Store) -> None:
    made = await store.create(numbered(1), SOURCE, (fact("submitted"),))
    assert made == replace(numbered(1), version=1)
    assert store.load(made.id) == made
    assert store.find("demo") == [made] == store.find(made.id)
    assert store.source(made.id) == SOURCE
    assert [event for _, event in store.events(made.id)] == [fact("submitted")]


async def test_secrets_are_kept(store: Store) -> None:
    made = await store.create(numbered(1), SOURCE, ())
    assert store.load(made.id).spec.tasks[0].secrets == (("TOKEN", "hunter2"),)


@pytest.mark.usefixtures("store")
def test_only_the_owner_reads_the_files(tmp_path: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    names = ("store.db", "store.db-wal", "store.db-shm", "store.reserve")
    assert modes == dict.fromkeys(names, 0o600)


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch(0o644)
    Store.open(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    first = Store.open(tmp_path / "store.db")
    made = await first.create(numbered(1), SOURCE, (fact("submitted"),))
    saved = await first.save(made, decided(replace(made, phase=Phase.RUNNING), fact("started")))
    first.close()
    again = Store.open(tmp_path / "store.db")
    assert again.server_id == first.server_id
    assert again.unfinished() == [saved]
    assert [event.code for _, event in again.events(made.id)] == ["submitted", "started"]
    again.close()


async def test_a_live_name_is_refused_and_the_hints_say_what_to_do(store: Store) -> None:
    made = await store.create(numbered(1), SOURCE, ())
    with pytest.raises(Conflict) as caught:
        await store.create(numbered(2), SOURCE, (fact("submitted"),))
    assert caught.value.code == "store/name-lives"
    assert made.id in caught.value.text
    assert "--replace" in caught.value.hints[0]
    assert "--name" in caught.value.hints[0]
    assert store.events(numbered(2).id) == []


async def test_the_name_of_an_ended_group_is_free(store: Store) -> None:
    made = await store.create(numbered(1), SOURCE, ())
    ended = await store.save(made, decided(final(made, clean=False)))
    younger = await store.create(numbered(2), SOURCE, ())
    assert store.find("demo") == [younger, ended]


async def test_a_decision_on_an_old_record_is_dropped(store: Store) -> None:
    made = await store.create(numbered(1), SOURCE, ())
    saved = await store.save(made, decided(made, fact("one")))
    with pytest.raises(Conflict) as caught:
        await store.save(made, decided(made, fact("two")))
    assert caught.value.code == "store/version-moved"
    assert store.load(made.id) == saved
    assert [event.code for _, event in store.events(made.id)] == ["one"]


async def test_one_gang_at_a_time_has_the_turn(store: Store) -> None:
    one = await store.create(numbered(1, "one"), SOURCE, ())
    two = await store.create(numbered(2, "two"), SOURCE, ())
    turn = Placing(turns=("local", "ssh/lab"))
    one = await store.save(one, decided(replace(one, placing=turn)))
    with pytest.raises(Conflict) as caught:
        await store.save(two, decided(replace(two, placing=Placing(turns=("local",)))))
    assert caught.value.code == "store/turn-taken"
    assert one.id in caught.value.text
    one = await store.save(one, decided(replace(one, placing=Placing(turns=("ssh/lab",)))))
    two = await store.save(two, decided(replace(two, placing=Placing(turns=("local",)))))
    assert store.load(two.id).placing.turns == ("local",)


async def test_a_removed_group_frees_its_turns(store: Store) -> None:
    one = await store.create(numbered(1, "one"), SOURCE, ())
    two = await store.create(numbered(2, "two"), SOURCE, ())
    turn = Placing(turns=("local",))
    one = await store.save(one, decided(replace(final(one), placing=turn)))
    await store.remove(one.id)
    await store.save(two, decided(replace(two, placing=turn)))


async def test_an_intent_is_added_and_moves_the_version(store: Store) -> None:
    made = await store.create(numbered(1), SOURCE, ())
    wish = Intent(Verb.CANCEL, 5.0)
    after = await store.intend(made.id, wish)
    assert after == replace(made, version=2, intents=(wish,)) == store.load(made.id)
    with pytest.raises(Conflict):
        await store.save(made, decided(made))


async def test_lease_ids_stay_known_for_ever(store: Store) -> None:
    made = await store.create(numbered(1), SOURCE, ())
    lease = a_lease("trainer-0", group=made.id, count=9)
    assert not store.issued(lease.id)
    saved = await store.save(made, decided(replace(made, leases=(lease,))))
    saved = await store.save(saved, decided(replace(final(saved), leases=())))
    await store.remove(made.id)
    assert store.issued(lease.id)
    assert store.issued(group_lease(made.id))
    assert not store.issued(LeaseId("g9-9.9-9"))


async def test_unfinished_is_what_lives_or_may_have_left_something(store: Store) -> None:
    live = await store.create(numbered(1, "live"), SOURCE, ())
    left = await store.create(numbered(2, "left"), SOURCE, ())
    over = await store.create(numbered(3, "over"), SOURCE, ())
    left = await store.save(left, decided(final(left, clean=False)))
    over = await store.save(over, decided(final(over)))
    assert store.unfinished() == [live, left]
    assert store.groups(ended=False, limit=10) == [live]
    assert store.groups(ended=True, limit=10) == [over, left, live]
    assert store.groups(ended=True, limit=1) == [over]


async def test_nothing_of_a_removed_group_is_kept_in_memory(store: Store) -> None:
    """One that ended and left something behind may have more rows, until it is removed."""
    made = await store.create(numbered(1), SOURCE, ())
    await store.save(made, decided(final(made, clean=False)))
    assert made.id in store._records._texts
    await store.remove(made.id)
    assert made.id not in store._records._texts


async def test_only_ended_groups_can_be_removed(store: Store) -> None:
    made = await store.create(numbered(1), SOURCE, (fact("submitted"),))
    with pytest.raises(Conflict) as caught:
        await store.remove(made.id)
    assert "argosy cancel demo" in caught.value.hints[0]
    await store.save(made, decided(final(made)))
    await store.remove(made.id)
    assert store.find("demo") == []
    assert store.events(made.id) == []
    for missing in (store.load, store.source):
        with pytest.raises(NotFound):
            missing(made.id)
    with pytest.raises(NotFound):
        await store.remove(made.id)


async def test_old_groups_expire_once_nothing_is_left_of_them(store: Store) -> None:
    old = await store.create(numbered(1, "old"), SOURCE, ())
    left = await store.create(numbered(2, "left"), SOURCE, ())
    live = await store.create(numbered(3, "live"), SOURCE, ())
    await store.save(old, decided(final(old)))
    await store.save(left, decided(final(left, clean=False)))
    assert await store.expire(1999.0) == []
    assert [one.id for one in await store.expire(2001.0)] == [old.id]
    assert {group.id for group in store.groups(ended=True, limit=9)} == {left.id, live.id}


async def test_events_come_in_order_and_in_pages(store: Store) -> None:
    made = await store.create(numbered(1), SOURCE, tuple(fact(f"e{n}") for n in range(5)))
    other = await store.create(numbered(2, "other"), SOURCE, (fact("of-another"),))
    page = store.events(made.id, limit=2)
    rest = store.events(made.id, since=page[-1][0])
    assert [event.code for _, event in page + rest] == ["e0", "e1", "e2", "e3", "e4"]
    assert store.last_events(made.id, 2) == rest[-2:]
    assert [event.code for _, event in store.events(other.id)] == ["of-another"]


def test_each_life_is_newer_than_the_last_and_than_the_clock(store: Store) -> None:
    assert store.open_life(5000.9) == 5000
    assert store.open_life(5000.9) == 5001
    assert store.open_life(4000.0) == 5002
    assert store.open_life(6000.0) == 6000


async def test_the_newest_time_is_the_floor_of_the_clock(store: Store) -> None:
    assert store.newest_time() == 0.0
    store.open_life(500.0)
    assert store.newest_time() == 500.0
    made = await store.create(numbered(1), SOURCE, (fact("later", at=3000.0),))
    assert store.newest_time() == 3000.0
    await store.save(made, decided(replace(final(made), ended_at=4000.0)))
    assert store.newest_time() == 4000.0


async def test_many_writers_are_all_answered(store: Store) -> None:
    made = await asyncio.gather(
        *(store.create(numbered(n, f"g{n}"), SOURCE, (fact("submitted"),)) for n in range(300))
    )
    saved = await asyncio.gather(*(store.save(one, decided(one, fact("saved"))) for one in made))
    assert {one.version for one in saved} == {2}
    assert all(len(store.events(one.id)) == 2 for one in made)


async def test_one_conflict_does_not_touch_the_others_of_its_batch(store: Store) -> None:
    made = await asyncio.gather(
        *(store.create(numbered(n, f"g{n}"), SOURCE, ()) for n in range(20))
    )
    stale = replace(made[7], version=99)
    tries = [*made[:7], stale, *made[8:]]
    answers = await asyncio.gather(
        *(store.save(one, decided(one, fact("saved"))) for one in tries), return_exceptions=True
    )
    assert [type(answer).__name__ for answer in answers].count("Conflict") == 1
    assert isinstance(answers[7], Conflict)
    assert [len(store.events(one.id)) for one in made] == [n != 7 for n in range(20)]


async def test_of_many_that_want_one_name_exactly_one_gets_it(store: Store) -> None:
    answers = await asyncio.gather(
        *(store.create(numbered(n), SOURCE, ()) for n in range(20)), return_exceptions=True
    )
    assert sum(isinstance(answer, Group) for answer in answers) == 1
    assert sum(isinstance(answer, Conflict) for answer in answers) == 19


async def test_what_is_queued_is_written_before_closing(tmp_path: Path) -> None:
    first = Store.open(tmp_path / "store.db")
    waiting = [
        asyncio.ensure_future(first.create(numbered(n, f"g{n}"), SOURCE, ())) for n in range(50)
    ]
    await asyncio.sleep(0)
    first.close()
    first.close()
    await asyncio.gather(*waiting)
    with pytest.raises(Unreachable):
        await first.create(numbered(99, "late"), SOURCE, ())
    again = Store.open(tmp_path / "store.db")
    assert len(again.unfinished()) == 50
    again.close()


def test_opening_a_current_store_imports_no_alembic(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    code = (
        "import sys, pathlib; from argosy.store import Store\n"
        "for _ in range(2): Store.open(pathlib.Path(sys.argv[1])).close()\n"
        "print(sorted(name for name in sys.modules if name.startswith('alembic')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_package_alone_imports_no_sqlalchemy() -> None:
    code = "import sys, argosy.store; print('sqlalchemy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "False"

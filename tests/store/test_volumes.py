"""Volumes in the store: kept, bound once, not deleted while a group uses them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.errors import Conflict, NotFound
from argosy.model.group import Group
from argosy.model.spec import VolumeMount
from argosy.model.volumes import Volume, VolumeKind, VolumeSpec
from argosy.store import Store
from argosy.testing.builders import a_spec, a_task
from tests.store.test_store import SOURCE, decided, final, numbered

pytestmark = pytest.mark.anyio

SPEC = VolumeSpec("data", VolumeKind.LOCAL, "ssh/lab", 10.0, labels=(("a", "b"),))
DATA = Volume("data-00000001", SPEC, 5.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "store.db")
    yield opened
    opened.close()


def using(count: int, name: str = "demo") -> Group:
    mount = VolumeMount("/data", "data", volume=SPEC, id=DATA.id)
    return replace(numbered(count), spec=a_spec(a_task(volumes=(mount,)), name=name))


async def test_a_volume_is_kept_and_changed(store: Store) -> None:
    await store.put_volume(DATA)
    assert store.volumes() == [DATA]
    larger = replace(DATA, spec=replace(SPEC, size_gib=20.0))
    await store.put_volume(larger)
    assert store.volumes() == [larger]


async def test_its_first_use_decides_where_it_is(store: Store) -> None:
    await store.put_volume(DATA)
    assert (await store.pin_volume(DATA.id, "ssh/lab", "h1")).host == "h1"
    assert (await store.pin_volume(DATA.id, "ssh/lab", "h1")).host == "h1"
    with pytest.raises(Conflict, match="is on h1, not on h2"):
        await store.pin_volume(DATA.id, "ssh/lab", "h2")
    with pytest.raises(NotFound):
        await store.pin_volume("other-1", "ssh/lab", "h2")


async def test_one_in_use_is_not_deleted(store: Store) -> None:
    await store.put_volume(DATA)
    group = await store.create(using(1), SOURCE, ())
    second = await store.create(using(2, "other"), SOURCE, ())
    assert store.volume_users() == {DATA.id: ["demo", "other"]}
    with pytest.raises(Conflict, match="in use by demo, other") as caught:
        await store.begin_delete_volume("data")
    assert caught.value.code == "volumes/in-use"
    await store.save(second, decided(final(second)))
    await store.save(group, decided(final(group, clean=False)))
    with pytest.raises(Conflict, match="in use by demo"):  # something of it may be left
        await store.begin_delete_volume("data")
    after = store.load(group.id)
    await store.save(after, decided(final(after)))
    assert (await store.begin_delete_volume("data")).deleting
    with pytest.raises(Conflict, match="has just been deleted"):
        await store.create(using(3), SOURCE, ())
    assert (await store.begin_delete_volume("data")).deleting  # goes on with it
    await store.strike_volume(DATA.id)
    assert store.volumes() == []
    with pytest.raises(NotFound):
        await store.begin_delete_volume("data")


async def test_a_group_of_which_something_may_use_a_volume_stays(store: Store) -> None:
    """Without it nobody would know that the volume is in use."""
    await store.put_volume(DATA)
    group = await store.create(using(1), SOURCE, ())
    await store.save(group, decided(final(group, clean=False)))
    with pytest.raises(Conflict, match="may be left that uses the volume 'data'") as caught:
        await store.remove(group.id)
    assert caught.value.code == "store/volumes-used"
    assert store.volume_users() == {DATA.id: ["demo"]}
    await store.remove(group.id, force=True)
    assert (await store.begin_delete_volume("data")).deleting


async def test_a_group_without_volumes_goes_whatever_is_left_of_it(store: Store) -> None:
    group = await store.create(numbered(1), SOURCE, ())
    await store.save(group, decided(final(group, clean=False)))
    await store.remove(group.id)
    assert store.find(group.id) == []


async def test_uses_go_with_their_group(store: Store) -> None:
    await store.put_volume(DATA)
    group = await store.create(using(1), SOURCE, ())
    ended = await store.save(group, decided(final(group)))
    await store.remove(ended.id)
    assert store.volume_users() == {}
    await store.create(using(2), SOURCE, ())
    assert store.volume_users() == {DATA.id: ["demo"]}

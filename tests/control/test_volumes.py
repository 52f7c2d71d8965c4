"""Volumes: made, bound to the host that uses them first, and deleted in steps that may break."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.clock import Clock
from argosy.control.volumes import Change, KeptVolumes
from argosy.errors import AccessError, ArgosyError, CapacityError, Conflict, NotFound, Unreachable
from argosy.model.ids import NodeId
from argosy.model.needs import Need
from argosy.model.plan import Placement
from argosy.model.spec import VolumeMount
from argosy.model.volumes import Volume, VolumeKind, VolumeSpec
from argosy.store.store import Store
from argosy.testing.builders import a_spec, a_task
from tests.control.bench import Bench

pytestmark = pytest.mark.anyio

SPEC = VolumeSpec("data", VolumeKind.LOCAL, "ssh/lab", 10.0)
GROUP = a_spec(a_task(volumes=(VolumeMount("/data", "data"),)))


class Storing(Bench):
    """A bench that has folders for volumes, on a host that may be away."""

    made: tuple[str, ...] = ()
    away = False
    wrong: ArgosyError | None = None  # what making one ends with, when it is half made
    between: Awaitable[object] | None = None  # what happens while one is made

    async def ensure_volume(self, volume: Volume) -> None:
        self.made = tuple(dict.fromkeys((*self.made, volume.id)))
        if self.between is not None:
            await self.between
        if self.wrong is not None:
            raise self.wrong

    async def delete_volume(self, volume: Volume) -> None:
        if self.away:
            raise Unreachable("the host does not answer", retry=5.0)
        self.made = tuple(one for one in self.made if one != volume.id)

    async def volumes(self) -> tuple[str, ...]:
        return self.made


@pytest.fixture
def bench(folder: Path) -> Storing:
    return Storing(folder, "ssh/lab", ("h1", "h2"), 4.0)


@pytest.fixture
def kept(folder: Path, bench: Storing) -> Iterator[KeptVolumes]:
    store = Store.open(folder / "volumes.db")
    yield KeptVolumes(store, {"ssh/lab": bench}, Clock(0.0))
    store.close()


def at(host: str) -> Placement:
    return Placement(NodeId("trainer", 0), "ssh/lab", host, Need(), None)


async def test_a_volume_is_made_once(kept: KeptVolumes, bench: Storing) -> None:
    volume, change = await kept.apply(SPEC)
    assert change is Change.CREATED
    assert bench.made == (volume.id,)
    assert await kept.apply(SPEC) == (volume, Change.UNCHANGED)
    larger, change = await kept.apply(replace(SPEC, size_gib=20.0))
    assert (larger.id, larger.spec.size_gib, change) == (volume.id, 20.0, Change.CHANGED)
    with pytest.raises(NotFound, match="no infra 'ssh/other'"):
        await kept.apply(replace(SPEC, name="other", infra="ssh/other"))


async def test_the_first_use_binds_it_and_plans_know(kept: KeptVolumes) -> None:
    await kept.apply(SPEC)
    spec = kept.resolved(GROUP)
    assert kept.placed(spec) == spec
    uses = spec.tasks[0].volume_uses()
    await kept.bind(uses, at("h2"))
    await kept.bind(uses, at("h2"))
    assert [use.spec.host for use in kept.placed(spec).tasks[0].volume_uses()] == ["h2"]
    with pytest.raises(CapacityError, match="is on h2, not on h1") as caught:
        await kept.bind(uses, at("h1"))
    assert caught.value.retry > 0  # a plan that knows better comes then


async def test_a_host_that_is_named_is_where_it_is(kept: KeptVolumes) -> None:
    await kept.apply(replace(SPEC, host="h1"))
    uses = kept.resolved(GROUP).tasks[0].volume_uses()
    with pytest.raises(CapacityError):
        await kept.bind(uses, at("h2"))


async def test_a_delete_that_broke_is_finished_by_the_next(
    kept: KeptVolumes, bench: Storing
) -> None:
    await kept.apply(SPEC)
    bench.away = True
    with pytest.raises(Unreachable):
        await kept.delete("data")
    (one,) = kept.every()
    assert one.volume.deleting
    bench.away = False
    await kept.delete("data")
    assert kept.every() == []
    assert bench.made == ()
    with pytest.raises(NotFound):
        await kept.delete("data")


async def test_one_that_cannot_be_made_leaves_nothing(kept: KeptVolumes, bench: Storing) -> None:
    bench.wrong = AccessError("no more claims for you")
    with pytest.raises(AccessError, match="no more claims"):
        await kept.apply(SPEC)
    assert (kept.every(), bench.made) == ([], ())


async def test_one_that_was_interrupted_is_seen_and_gone_on_with(
    kept: KeptVolumes, bench: Storing
) -> None:
    bench.wrong = Unreachable("the cluster is away")
    with pytest.raises(Unreachable) as caught:
        await kept.apply(SPEC)
    assert any("goes on with it" in hint for hint in caught.value.hints)
    (one,) = kept.every()
    assert not one.volume.whole
    with pytest.raises(Conflict, match="is not whole"):
        kept.resolved(GROUP)
    with pytest.raises(Conflict, match="is another one, which is not whole"):
        await kept.apply(replace(SPEC, size_gib=99.0))
    bench.wrong = None
    volume, change = await kept.apply(SPEC)
    assert (volume.id, change, volume.whole) == (one.volume.id, Change.CREATED, True)
    assert bench.made == (volume.id,)
    kept.resolved(GROUP)


async def test_a_server_killed_while_it_makes_one_can_delete_it(
    kept: KeptVolumes, bench: Storing
) -> None:
    never = asyncio.get_running_loop().create_future()
    bench.between = never
    making = asyncio.create_task(kept.apply(SPEC))
    async with asyncio.timeout(10.0):
        while not bench.made:
            await asyncio.sleep(0)
    making.cancel()
    await asyncio.gather(making, return_exceptions=True)
    assert [one.volume.id for one in kept.every()] == list(bench.made)
    await kept.delete("data")
    assert (kept.every(), bench.made) == ([], ())


async def test_a_change_does_not_undo_where_it_was_bound_meanwhile(
    kept: KeptVolumes, bench: Storing
) -> None:
    await kept.apply(SPEC)
    uses = kept.resolved(GROUP).tasks[0].volume_uses()
    bench.between = asyncio.ensure_future(kept.bind(uses, at("h2")))
    await kept.apply(replace(SPEC, size_gib=20.0))
    (one,) = kept.every()
    assert (one.volume.spec.size_gib, one.volume.host) == (20.0, "h2")


async def test_an_infra_in_other_letters_is_the_same(kept: KeptVolumes) -> None:
    written = replace(SPEC, infra="ssh/LAB", host="h1")
    volume, _ = await kept.apply(written)
    assert (volume.infra, volume.spec.infra) == ("ssh/lab", "ssh/lab")
    assert (await kept.apply(written))[1] is Change.UNCHANGED
    await kept.bind(kept.resolved(GROUP).tasks[0].volume_uses(), at("h1"))


async def test_bytes_that_nobody_can_remove_are_not_called_removed(
    kept: KeptVolumes, bench: Storing, folder: Path
) -> None:
    await kept.apply(SPEC)
    await kept.bind(kept.resolved(GROUP).tasks[0].volume_uses(), at("h2"))
    without = KeptVolumes(kept._store, {}, Clock(0.0))
    with pytest.raises(Unreachable, match="on ssh/lab, which is not known here any more"):
        await without.delete("data")
    bench.away = True
    with pytest.raises(Unreachable) as caught:
        await kept.delete("data")
    assert "`argosy volumes delete data --forget` gives up what is in it" in caught.value.hints
    _, stays = await kept.delete("data", forget=True)
    assert stays == "the host does not answer"
    assert kept.every() == []


async def test_what_was_there_before_needs_no_infra_to_be_forgotten(kept: KeptVolumes) -> None:
    without = KeptVolumes(kept._store, {}, Clock(0.0))
    for spec in (replace(SPEC, host="h1", host_path="/srv/data"), SPEC):  # and what was never used
        await kept.apply(spec)
        assert (await without.delete("data"))[1] == ""

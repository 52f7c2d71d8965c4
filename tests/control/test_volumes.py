"""Volumes: made, bound to the host that uses them first, and deleted in steps that may break."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.clock import Clock
from argosy.control.volumes import Change, KeptVolumes
from argosy.errors import CapacityError, NotFound, Unreachable
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

    async def ensure_volume(self, volume: Volume) -> None:
        self.made = (*self.made, volume.id)

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

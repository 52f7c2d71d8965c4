"""The volumes that a group names, and what may change of one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argosy.errors import Conflict, InputError, InputErrors, NotFound
from argosy.model import codec
from argosy.model.needs import Need
from argosy.model.spec import GroupSpec, VolumeMount
from argosy.model.volumes import Volume, VolumeKind, VolumeSpec
from argosy.storage.volumes import changed, resolved, same
from argosy.testing.builders import a_spec, a_task

SPEC = VolumeSpec("data", VolumeKind.LOCAL, "local", 10.0)
DATA = Volume("data-00000001", SPEC, 5.0)


def mounting(*mounts: VolumeMount) -> GroupSpec:
    return a_spec(a_task(volumes=mounts))


def test_a_name_is_the_volume() -> None:
    spec = resolved(mounting(VolumeMount("/a", "data", "x"), VolumeMount("/b", size_gib=1.0)),
                    {"data": DATA})  # fmt: skip
    first, second = spec.tasks[0].volume_uses()
    assert (first.id, first.spec, first.sub_path, first.ephemeral) == (DATA.id, SPEC, "x", False)
    assert second.ephemeral
    assert codec.decode(GroupSpec, codec.encode(spec)) == spec


def test_one_that_is_not_there_is_named_with_what_is_near() -> None:
    with pytest.raises(NotFound, match="none of that name") as caught:
        resolved(mounting(VolumeMount("/a", "daat")), {"data": DATA})
    assert caught.value.hints == (
        "did you mean 'data'?", "`argosy volumes create daat` makes one on this machine",
    )  # fmt: skip
    for infra, words in ((None, "daat` makes one on this machine"),
                         ("ssh/lab", "daat --infra ssh/lab` makes one there"),
                         ("ssh", "--infra ssh/POOL` makes one on a host"),
                         ("kubernetes", "--infra kubernetes --size 10Gi` makes a claim"),
                         ("ssh/*", "--infra ssh/POOL`"), ("*", "docs/volumes.md")):  # fmt: skip
        task = replace(a_task(volumes=(VolumeMount("/a", "daat"),)), needs=(Need(infra=infra),))
        with pytest.raises(NotFound) as there:
            resolved(a_spec(task), {})
        assert words in there.value.hints[0]
    with pytest.raises(InputErrors) as all_of_them:
        resolved(mounting(VolumeMount("/a", "x"), VolumeMount("/b", "y")), {})
    assert len(all_of_them.value.errors) == 2
    with pytest.raises(Conflict, match="being deleted"):
        resolved(mounting(VolumeMount("/a", "data")), {"data": replace(DATA, deleting=True)})


def test_tasks_share_one_of_the_group_by_its_name() -> None:
    mount = VolumeMount("/a", "scratch", size_gib=1.0)
    spec = a_spec(a_task("a", volumes=(mount,)), a_task("b", volumes=(mount,)))
    ids = {use.id for task in resolved(spec, {}).tasks for use in task.volume_uses()}
    assert len(ids) == 1
    other = a_spec(a_task("a", volumes=(mount,)), a_task("b", volumes=(
        replace(mount, size_gib=2.0),)))  # fmt: skip
    with pytest.raises(InputError, match="in two ways"):
        resolved(other, {})


def test_a_new_one_takes_the_name_of_none() -> None:
    assert same(DATA, SPEC) == DATA
    with pytest.raises(Conflict, match="there already, with another size") as caught:
        same(DATA, replace(SPEC, size_gib=0.0))
    assert "`argosy volumes apply FILE` changes" in caught.value.hints[0]
    with pytest.raises(Conflict, match="another size and other labels"):
        same(DATA, replace(SPEC, size_gib=1.0, labels=(("a", "b"),)))
    with pytest.raises(Conflict, match="cannot change its host_path"):
        same(DATA, replace(SPEC, host_path="/srv/a"))


def test_size_and_labels_may_change_and_nothing_else() -> None:
    larger = replace(SPEC, size_gib=20.0, labels=(("a", "b"),))
    assert changed(DATA, larger).spec == larger
    assert changed(DATA, SPEC) == DATA
    with pytest.raises(Conflict, match="cannot change its type, infra"):
        changed(DATA, VolumeSpec("data", VolumeKind.PVC, "kubernetes", 10.0))
    with pytest.raises(Conflict, match="being deleted"):
        changed(replace(DATA, deleting=True), SPEC)

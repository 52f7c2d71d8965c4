"""What agents are told of volumes, and of the folder that a group shares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from argosy.discovery.assignment import compose, on_one_host
from argosy.model.action import Assign
from argosy.model.group import Book, Group, Lease, LeaseState, Outcome
from argosy.model.ids import GroupId, LeaseId, NodeId, Serial
from argosy.model.needs import Need
from argosy.model.plan import Placement
from argosy.model.spec import GroupSpec, TaskSpec, VolumeMount
from argosy.model.volumes import VolumeKind, VolumeSpec
from argosy.testing.builders import an_attempt

SHARE = VolumeMount("/shared", host_path="/mnt/x", kind="nfs")
NAMED = VolumeMount(
    "~/data", "data", "sub", read_only=True,
    volume=VolumeSpec("data", VolumeKind.LOCAL, "local"), id="data-1",
)  # fmt: skip
OWN = VolumeMount("scratch", size_gib=1.0)


def group(*volumes: VolumeMount, infra: str = "ssh/lab", hosts: tuple[str, ...] = ("h1",),
          others: tuple[VolumeMount, ...] = ()) -> Group:  # fmt: skip
    tasks = (TaskSpec("a", len(hosts), volumes=volumes), TaskSpec("b", volumes=others))
    leases = tuple(
        Lease(LeaseId(f"g1.{n}"), NodeId("a", n), Placement(NodeId("a", n), infra, host, Need(),
              None), LeaseState.HELD, 0.0)
        for n, host in enumerate(hosts)
    )  # fmt: skip
    return Group(GroupId("g1-2-1"), GroupSpec("g", tasks), 0.0, leases=leases)


def told(found: Group) -> tuple[list[dict[str, Any]], bool]:
    """VOLUMES of task `a`, and whether a folder on a host is the group's."""
    lease = found.leases[0]
    assign = Assign(lease.placement.infra, lease.id, "h1", Serial(1, 1), (), Book(1, ()))
    message = compose(found, assign)
    return message["tasks"]["a"]["volumes"], message["group"]["shared"]


def test_each_volume_says_where_its_bytes_are() -> None:
    volumes, shared = told(group(SHARE, NAMED, OWN))
    assert shared
    assert [(one["place"], one["path"], one["make"], one["mount"]) for one in volumes] == [
        ("host", "/mnt/x", False, True),
        ("shared", "data-1", True, False),
        ("group", "task-a-2", True, False),
    ]
    assert (volumes[1]["sub_path"], volumes[1]["read_only"]) == ("sub", True)


def test_what_every_task_mounts_is_shared() -> None:
    alone = told(group(SHARE))[0]
    assert [one["shares"] for one in alone] == [False]  # task `b` does not mount it
    both = told(group(OWN, SHARE, others=(replace(SHARE, destination="/x"),)))[0]
    assert [one["shares"] for one in both] == [False, True]
    sealed = told(group(SHARE, others=(replace(SHARE, read_only=True),)))[0]
    assert [one["shares"] for one in sealed] == [False]
    here = told(group(SHARE, infra="local", others=(SHARE,)))[0]
    assert [one["shares"] for one in here] == [False]  # one machine has a folder for all anyway


def test_in_a_pod_they_are_there() -> None:
    many = VolumeSpec("data", VolumeKind.PVC, "kubernetes", 1.0, access_mode="ReadWriteMany")
    mount = VolumeMount("data", "data", volume=many, id="data-1")
    volumes = told(group(mount, infra="kubernetes/x", others=(mount,)))[0]
    assert [(one["place"], one["path"], one["shares"]) for one in volumes] == [
        ("there", "/argosy-volumes/data", True)
    ]


def test_a_folder_on_a_host_is_the_groups_while_it_is_on_one() -> None:
    assert on_one_host(group())
    assert not on_one_host(group(hosts=("h1", "h2")))
    assert on_one_host(group(hosts=("h1", "h2"), infra="local/rack"))
    one = group()
    before = an_attempt(
        "a-0", lease=one.leases[0], infra="ssh/lab", host="h2", incarnation=one.incarnation
    )
    assert not on_one_host(replace(one, attempts=(before,)))  # what it wrote is on h2
    assert on_one_host(replace(one, attempts=(replace(before, outcome=Outcome.LOST),)))

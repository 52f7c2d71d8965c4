"""Names and ids. An id is (home, life, serial): each start of a server opens a new life, so a store
that was restored from a backup never issues an id twice. Ids of two homes never meet either, for
what bears a mark is found, and ended, by it on hosts that several servers and users share."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, NewType

GroupId = NewType("GroupId", str)  # "g3f9a1c5eed01-6b0f3a2c-1": home, life, serial
LeaseId = NewType("LeaseId", str)  # GROUP.6b0f3a2c-4; the mark on everything it stands for
AttemptId = NewType("AttemptId", str)  # like a lease id; unique for ever
ServerId = NewType("ServerId", str)  # 12 hex digits, drawn once per home, kept in the store
InfraName = str  # "local", "local/rack", "ssh/lab", "kubernetes/prod"
TaskName = str  # as the user wrote it


# These two are tuples: a decision looks nodes up, and compares serials, many times for each node,
# and the hash and the order of a tuple cost a fifth of what a dataclass's do. (`index` and `count`
# cover the methods of tuples, which nobody asks for here.)


class NodeId(NamedTuple):
    """A named place that must be filled: task and index, `trainer-1`."""

    task: TaskName
    index: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return node_name(self)

    @property
    def path(self) -> str:
        """`trainer/1`, as the command line takes it; no task's name looks like that."""
        return f"{self.task}/{self.index}"


class Serial(NamedTuple):
    """A number that only grows, over restarts and restores of the store: (life, count)."""

    life: int
    count: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.life:x}-{self.count:x}"


ZERO = Serial(0, 0)


def group_id(server: ServerId, serial: Serial) -> GroupId:
    """The id of a group; `serial` is the server's."""
    return GroupId(f"g{server}-{serial}")


def lease_id(group: GroupId, serial: Serial) -> LeaseId:
    """The id of a lease of `group`; `serial` is the group's."""
    life, count = serial
    return LeaseId(f"{group}.{life:x}-{count:x}")


def attempt_id(group: GroupId, serial: Serial) -> AttemptId:
    """The id of an attempt of `group`; `serial` is the group's."""
    life, count = serial
    return AttemptId(f"{group}.{life:x}-{count:x}")


def group_lease(group: GroupId) -> LeaseId:
    """Lease 0: the mark of what is group-wide on an infra (router, proxy, service)."""
    return LeaseId(f"{group}.0")


def group_of(lease: LeaseId) -> GroupId:
    """The group that a lease id belongs to."""
    return GroupId(lease.partition(".")[0])


def serial_of(lease: LeaseId) -> Serial:
    """The serial that a lease id was made of; ZERO for the lease 0 of a group."""
    life, _, count = lease.partition(".")[2].partition("-")
    return Serial(int(life, 16), int(count, 16)) if count else ZERO


@lru_cache(maxsize=16_384)  # asked for at every mention of a node
def node_name(node: NodeId) -> str:
    """`trainer-1`: what a node is called in words, and on the network within its group."""
    return f"{dns_label(node.task)}-{node.index}"


@lru_cache(maxsize=4096)
def dns_label(name: str) -> str:
    """The DNS form of a name: lower case, `-` for other signs, `g-` before a digit."""
    label = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
    return f"g-{label}" if label[:1].isdigit() else label

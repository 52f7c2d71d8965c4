"""Pods of a higher PriorityClass take the place of ours: told, with grace, and replaced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.infra.kubernetes.person import Person
from tests.infra.kubernetes.rig import Namespace, until

pytestmark = pytest.mark.kubernetes

GROUP = """name: low
num_nodes: {nodes}
resources: {{cpus: 5}}  # of 8 that a node of the cluster has: no two on one
restart: {{on: [failure, lost], max: 0, scope: node, backoff: 0s}}
grace: 20s
run: |
  trap 'echo asked to end; sleep 1; echo ended in order; exit 0' TERM
  echo began as attempt $ARGOSY_ATTEMPT
  sleep 1000 &
  wait
"""


@contextmanager
def above(space: Namespace) -> Iterator[str]:
    """A class of priority above that of our pods."""
    name = f"above-{space.name}"
    space.rig.apply({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": name}, "value": 1000, "globalDefault": False,
    })  # fmt: skip
    try:
        yield name
    finally:
        space.rig.kubectl("delete", "priorityclass", name)


def preemptor(space: Namespace, priority: str, node: str) -> dict[str, Any]:
    """A pod that has room on that node only when ours goes."""
    container = {
        "name": "c", "image": "localhost/pause:1", "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "6"}},
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "above", "namespace": space.name},
        "spec": {
            "containers": [container], "terminationGracePeriodSeconds": 0,
            "priorityClassName": priority, "nodeSelector": {"kubernetes.io/hostname": node},
        },
    }  # fmt: skip


def preempted(person: Person, priority: str) -> str:
    """Let a pod of that class come to where `low-1` is; that node, once it is there."""
    space = person.space
    node: str = space.pods()["low-1"]["spec"]["nodeName"]
    space.rig.apply(preemptor(space, priority, node))
    runs = lambda: space.get("pod", "above")["status"]["phase"] == "Running"  # noqa: E731
    until(runs, lambda: f"nothing is preempted: {person.explained('low')}")
    return node


def told(person: Person) -> dict[str, str]:
    """Code of an event -> its text, of what was said of `low-1`; the last of each."""
    return {one.code: one.text for one in person.client.events("low") if one.about == "low-1"}


def ended_in_order(person: Person) -> None:
    """The first attempt was asked to end, and had the time that it needs."""
    lines = person.logs("low/low/1", "--no-prefix")
    first = lines[: lines.index("ended in order") + 1]
    assert first == ["began as attempt 1", "asked to end", "ended in order"], lines


def again(person: Person, before: dict[str, Any]) -> bool:
    """Whether `low-1` runs once more."""
    now = person.nodes("low")["low-1"]
    return now["attempt"] == before["low-1"]["attempt"] + 1 and now["phase"] == "RUNNING"


def test_a_preempted_node_ends_in_order_and_comes_back_elsewhere(person):
    """Without a restart that is counted, since `max: 0` allows none; its sibling goes on."""
    person.launched(GROUP.format(nodes=2))
    person.phase("low", "RUNNING")
    before = person.nodes("low")
    with above(person.space) as priority:
        node = preempted(person, priority)
        until(lambda: again(person, before), lambda: person.explained("low"))
        assert person.space.pods()["low-1"]["spec"]["nodeName"] != node
        assert person.nodes("low")["low-0"]["attempt"] == before["low-0"]["attempt"]
        assert "preempted by a pod of higher priority" in told(person)["host-leaving"]
        ended_in_order(person)
        person.space.kubectl("delete", "pod", "above")
    person.did("cancel", "low", "--now", "--wait")


def test_a_preempted_node_without_room_waits_and_says_for_what(person):
    """And runs again when the other is gone."""
    person.launched(GROUP.format(nodes=3))
    person.phase("low", "RUNNING")
    before = person.nodes("low")
    with above(person.space) as priority:
        preempted(person, priority)
        until(
            lambda: "1 x 5 cpus wanted" in person.explained("low"),
            lambda: f"not told: {person.explained('low')}",
        )
        assert "preempted by a pod of higher priority" in told(person)["host-leaving"]
        ended_in_order(person)
        person.space.kubectl("delete", "pod", "above")
        until(lambda: again(person, before), lambda: person.explained("low"))
    attempts = {name: one["attempt"] for name, one in person.nodes("low").items()}
    assert attempts == {"low-0": 1, "low-1": 2, "low-2": 1}
    person.did("cancel", "low", "--now", "--wait")

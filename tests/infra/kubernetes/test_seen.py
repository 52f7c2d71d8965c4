"""What pods say of their leases: real answers of an API server, one file a case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from argosy.infra.kubernetes.facts.seen import leaving, may_answer_early, seen
from argosy.model.observed import SeenState

PODS = Path(__file__).parent / "pods"
NAME = "argosy-g3f9a1c5eed01-6b0f3a2c-1-6b0f3a2c"


def a_pod(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PODS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def changed(name: str, **status: Any) -> dict[str, Any]:
    """That pod with other words in its status."""
    pod = a_pod(name)
    pod["status"] |= status
    return pod


def test_a_pod_that_runs_is_up_under_its_own_name():
    found = seen(a_pod("running"), node_ready=True)
    assert (found.lease, found.state) == ("g3f9a1c5eed01-6b0f3a2c-1.6b0f3a2c-1", SeenState.UP)
    assert (found.host, found.text, found.leaving) == (f"{NAME}-1", "", "")


def a_pod_being_made(**status: Any) -> dict[str, Any]:
    """On its node, and nothing is said of its container."""
    return changed("running", phase="Pending", **{"containerStatuses": [], **status})


def test_a_pod_whose_agent_answers_is_up_before_that_is_said():
    pod = a_pod_being_made()
    assert seen(pod, node_ready=True).state is SeenState.PENDING
    assert seen(pod, node_ready=True, answers=True) == seen(a_pod("running"), node_ready=True)


@pytest.mark.parametrize("name", ["ended", "evicted", "out-of-memory", "no-python"])
def test_what_has_ended_is_not_up_because_it_once_answered(name: str):
    assert seen(a_pod(name), node_ready=True, answers=True) == seen(a_pod(name), node_ready=True)


def test_an_agent_may_answer_early_from_its_node_to_the_pods_first_word():
    assert may_answer_early(a_pod_being_made())
    names = ("running", "unschedulable", "ended", "evicted", "no-python")
    assert not any(may_answer_early(a_pod(name)) for name in names)


def test_what_begins_beside_the_agent_is_waited_for():
    hooked, two = a_pod_being_made(), a_pod_being_made()
    hooked["spec"]["containers"][0]["lifecycle"] = {"postStart": {"exec": {"command": ["true"]}}}
    two["spec"]["containers"].append({"name": "proxy", "image": "p"})
    assert not may_answer_early(hooked)
    assert not may_answer_early(two)


def test_a_silent_node_is_no_evidence():
    for ready in (False, None):
        assert seen(a_pod("running"), node_ready=ready).state is SeenState.UP


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("unschedulable", "no node takes it: 0/3 nodes are available: 3 Insufficient cpu."),
        ("image-not-found", "image nobody.invalid/x:1: ErrImagePull: failed to pull"),
        ("image-name", "image UPPER//x: InvalidImageName: Failed to apply default image tag"),
        ("no-python", "image localhost/no-python:1: no Python >= 3.8 in the image"),
        ("no-shell", "image localhost/no-shell:1: no `sh` in the image"),
    ],
)
def test_what_waits_in_vain_says_why_in_the_words_of_the_cluster(name: str, words: str):
    found = seen(a_pod(name), node_ready=True)
    assert (found.state, found.unschedulable) == (SeenState.PENDING, True)
    assert found.text.startswith(words)
    assert found.placed is (name != "unschedulable")


def test_who_ends_others_for_its_room_does_not_wait_in_vain():
    found = seen(a_pod("preempts"), node_ready=None)
    assert (found.state, found.unschedulable) == (SeenState.PENDING, False)
    assert found.text.startswith("room is made for it on node node-1")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("out-of-memory", "killed for lack of memory (OOMKilled, above its limit of 64Mi)"),
        ("evicted", 'evicted by its node: Usage of EmptyDir volume "argosy-home" exceeds the'),
        ("preempted-end", "it is preempted by a pod of higher priority: default-scheduler: pre"),
        ("ended", "its agent has ended"),
        ("crashed", "its agent ended with 3"),
    ],
)
def test_what_ended_is_gone_and_says_why(name: str, words: str):
    pod = a_pod(name)
    for ready in (True, False, None):
        found = seen(pod, node_ready=ready)
        assert found.state is SeenState.GONE
        where = f"pod {pod['metadata']['name']} on node {pod['spec']['nodeName']}"
        assert found.text.startswith(f"{where}: {words}")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Preempting", "preempted by its node for a critical pod: said"),
        ("Terminated", "ended by the shutdown of its node: said"),
        ("DeadlineExceeded", "ended by its own deadline (`activeDeadlineSeconds`): said"),
        ("NodeLost", "lost with its node: said"),
        ("OutOfcpu", "OutOfcpu: said"),
    ],
)
def test_a_pod_that_failed_names_reason_and_message(reason: str, words: str):
    pod = changed("running", phase="Failed", reason=reason, message="said")
    found = seen(pod, node_ready=True)
    assert (found.state, found.text) == (SeenState.GONE, f"pod {NAME}-1 on node node-2: {words}")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("deleted", "somebody deletes it"),
        ("drained", "its node is being drained, or somebody evicted it: Eviction API: evicting"),
        ("preempted", "it is preempted by a pod of higher priority: default-scheduler: preempt"),
    ],
)
def test_what_is_being_ended_is_up_until_it_has_ended(name: str, words: str):
    pod = a_pod(name)
    assert leaving(pod).startswith(words)
    for ready in (True, False):
        found = seen(pod, node_ready=ready)
        assert (found.state, found.leaving) == (SeenState.UP, leaving(pod))


def test_what_was_given_up_on_a_silent_node_is_gone():
    pod = a_pod("given-up")
    found = seen(pod, node_ready=False)
    assert found.state is SeenState.GONE
    assert "its node does not answer, and the cluster gave it up: Taint manager" in found.text
    assert seen(pod, node_ready=True).state is SeenState.UP  # the node is back: it ends the pod


def test_where_nodes_cannot_be_seen_nobody_is_given_up():
    """It may be on a node that is well, and ends it just now."""
    assert seen(a_pod("given-up"), node_ready=None).state is SeenState.UP


def test_nobody_is_leaving_without_a_word_of_the_cluster():
    assert leaving(a_pod("running")) == ""


def waiting(reason: str, message: str = "said") -> dict[str, Any]:
    pod = a_pod("running")
    state = {"waiting": {"reason": reason, "message": message}}
    pod["status"]["phase"] = "Pending"
    pod["status"]["containerStatuses"][0]["state"] = state
    return pod


def test_a_container_that_cannot_be_made_says_why():
    for reason in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
        found = seen(waiting(reason), node_ready=True)
        assert (found.state, found.unschedulable) == (SeenState.PENDING, True)
        assert found.text == f"{reason}: said"
    found = seen(waiting("ImagePullBackOff"), node_ready=True)
    assert found.text == "image localhost/python-user:3.11: ImagePullBackOff: said"


def test_a_pod_that_is_being_made_waits_for_nothing():
    found = seen(waiting("ContainerCreating", ""), node_ready=True)
    assert (found.state, found.unschedulable) == (SeenState.PENDING, False)
    assert found.text == "it is made on node node-2: ContainerCreating"
    assert found.placed
    bare = a_pod("running")
    bare["spec"].pop("nodeName")
    bare["status"] = {"phase": "Pending"}
    found = seen(bare, node_ready=None)
    assert (found.state, found.text) == (SeenState.PENDING, "it waits for the scheduler")
    assert not found.placed


def test_an_init_container_of_the_user_is_named_with_its_image():
    pod = waiting("PodInitializing", "")
    pod["spec"]["initContainers"] = [{"name": "fetch", "image": "fetch:1"}]
    pod["status"]["initContainerStatuses"] = [
        {"name": "fetch", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}
    ]
    found = seen(pod, node_ready=True)
    assert (found.text, found.unschedulable) == ("image fetch:1: ErrImagePull: no", True)


def test_our_container_ended_beside_one_of_the_user_that_runs():
    pod = changed("out-of-memory", phase="Running")
    other = {"name": "sidecar", "state": {"running": {}}}
    pod["status"]["containerStatuses"].append(other)
    assert seen(pod, node_ready=True).state is SeenState.GONE


def test_a_pod_without_a_limit_was_killed_by_its_node():
    pod = a_pod("out-of-memory")
    pod["spec"]["containers"][0]["resources"] = {}
    assert "the node had no memory left" in seen(pod, node_ready=True).text

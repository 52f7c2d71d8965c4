"""What goes wrong on a cluster, each with its reason in `explain` and its right reaction."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.infra.kubernetes.person import a_person
from tests.infra.kubernetes.rig import a_namespace, until

pytestmark = pytest.mark.kubernetes

WORK = """name: work
num_nodes: 2
resources: {cpus: 1}
restart: {on: [lost], backoff: 0s, scope: node}
grace: 1s
run: |
  trap 'echo asked to end; exit 0' TERM
  echo began as $ARGOSY_NODE
  sleep 1000 &
  wait
"""


def says(person, group: str, *words: str) -> None:
    """Wait until `explain` says all of these."""
    until(
        lambda: all(word in person.explained(group) for word in words),
        lambda: f"not {words}, but: {person.explained(group)}",
    )


# --- what never starts ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("localhost/not-there:7", ("localhost/not-there:7", "ErrImagePull")),
        ("localhost/no-python:1", ("localhost/no-python:1", "no Python >= 3.8")),
        ("localhost/no-shell:1", ("localhost/no-shell:1", "no `sh` in the image")),
    ],
)
def test_an_image_that_will_not_do_is_named(person, image, words):
    """At once, with what it lacks; and a group that waits for it holds nothing for ever."""
    text = f"name: i\nresources: {{cpus: 1, image_id: 'docker:{image}'}}\nrun: 'true'\n"
    person.launched(text)
    says(person, "i", *words)
    person.did("cancel", "i", "--now", "--wait")


def test_what_does_not_fit_waits_with_the_words_of_the_scheduler(person):
    """And runs as soon as there is room."""
    space = person.space
    space.rig.apply(_blocker(space.name))
    until(lambda: space.get("pod", "blocker")["status"]["phase"] == "Running", "no pod runs here")
    card = "name: g\nnum_nodes: 3\nresources: {accelerators: 'H100:8'}\nrun: 'true'\n"
    person.launched(card)
    says(person, "g", "H100")
    space.kubectl("delete", "pod", "blocker", "--grace-period=0", "--force")
    person.phase("g", "SUCCEEDED")


def _blocker(namespace: str) -> dict:
    limits = {"nvidia.com/gpu": "1"}
    container = {
        "name": "c", "image": "localhost/pause:1", "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": limits},
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "blocker", "namespace": namespace},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }  # fmt: skip


def test_a_quota_is_told_and_nothing_is_held(person):
    """Of two nodes that want more than the namespace may have, neither stays."""
    space = person.space
    space.kubectl("create", "quota", "small", "--hard=pods=1")
    until(lambda: "hard" in space.get("quota", "small").get("status", {}), "no quota is counted")
    person.launched(WORK)
    says(person, "work", "exceeded quota", "small")
    until(lambda: not space.pods(), lambda: f"held: {list(space.pods())}")
    space.kubectl("delete", "quota", "small")
    person.phase("work", "RUNNING")


# --- what is taken away --------------------------------------------------------------------------


def test_a_pod_deleted_by_hand_is_replaced(person):
    """Its program is asked to end first; the other node goes on."""
    person.launched(WORK)
    person.phase("work", "RUNNING")
    before, pods = person.nodes("work"), person.space.pods()
    person.space.kubectl("delete", "pod", pods["work-1"]["metadata"]["name"], "--wait=false")
    after = _replaced(person, before, "work-1")
    assert after["work-0"]["attempt"] == before["work-0"]["attempt"]
    assert any("asked to end" in line for line in person.logs("work/work/1"))
    assert not _here(person)


def test_a_drained_node_is_left_with_grace(person):
    """`kubectl drain` evicts; the replacement runs on another node."""
    person.launched(WORK)
    person.phase("work", "RUNNING")
    before, pod = person.nodes("work"), person.space.pods()["work-0"]
    node = pod["spec"]["nodeName"]
    rig = person.space.rig
    try:
        rig.kubectl(
            "drain", node, "--ignore-daemonsets", "--force", "--delete-emptydir-data",
            f"--pod-selector=argosy.dev/group={pod['metadata']['labels']['argosy.dev/group']}",
        )  # fmt: skip
        _replaced(person, before, "work-0")
        assert person.space.pods()["work-0"]["spec"]["nodeName"] != node
    finally:
        rig.kubectl("uncordon", node)


def _here(person) -> list[str]:
    """Processes of this machine, not of a pod, that run for a task of that person."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
            mine = (folder / "ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()
        except OSError:
            continue
        if mine and b"ARGOSY_NODE=" in environment and os.fsencode(person.home) in environment:
            found.append((folder / "cmdline").read_text())
    return found


def _replaced(person, before: dict, node: str) -> dict:
    """The nodes, once a later attempt of that one runs."""

    def again() -> bool:
        now = person.nodes("work")[node]
        return now["attempt"] > before[node]["attempt"] and now["phase"] == "RUNNING"

    until(again, lambda: f"{node} is not replaced: {person.explained('work')}")
    return person.nodes("work")


def test_a_killed_node_is_replaced_once_its_pods_are_given_up(person):
    """Not before: while it is only silent, it is suspect."""
    person.launched(WORK)
    person.phase("work", "RUNNING")
    before, pod = person.nodes("work"), person.space.pods()["work-0"]
    rig, node = person.space.rig, pod["spec"]["nodeName"]
    rig.verb("node", "kill", "--silent", node)
    try:
        until(lambda: not rig.ready(node), f"{node} is ready for ever")
        assert person.nodes("work")["work-0"]["attempt"] == before["work-0"]["attempt"]
        _replaced(person, before, "work-0")
        assert person.space.pods()["work-0"]["spec"]["nodeName"] != node
        # Whoever reads the logs of the pod that is gone asks an agent that lives here.
        person.logs("work")
        assert not _here(person)
    finally:
        rig.restore(node)


def test_a_cut_node_that_comes_back_in_time_harms_nothing(person):
    """The link is down for less than the cluster tolerates; what was written meanwhile arrives."""
    text = "name: c\nresources: {cpus: 1}\nrun: |\n"
    text += '  for i in $(seq 100); do echo "line $i"; sleep 0.1; done\n  exit 4\n'
    person.launched(text)
    person.phase("c", "RUNNING")
    node = person.space.pods()["c-0"]["spec"]["nodeName"]
    rig = person.space.rig
    rig.verb("node", "cut", node)
    try:
        until(lambda: "suspect" in person.explained("c"), lambda: person.explained("c"))
    finally:
        rig.verb("node", "heal", node)
    person.phase("c", "FAILED")
    assert [person.nodes("c")["c-0"][key] for key in ("exit_code", "attempt")] == [4, 1]
    numbers = [int(line.rpartition(" ")[2]) for line in person.logs("c") if "line " in line]
    assert numbers == list(range(1, 101))


def test_memory_beyond_the_limit_is_told_with_the_limit(person):
    """Whichever is killed, the program or the container."""
    text = (
        "name: m\nresources: {cpus: 1, memory: 0.25}\nrun: python3 -c 'kept = bytearray(10**9)'\n"
    )
    person.launched(text)
    person.phase("m", "FAILED", "RECOVERING")
    whole = person.explained("m") + json.dumps(person.group("m"))
    assert "the limit is 256 MiB, the peak was" in whole, whole
    person.argosy("cancel", "m", "--now", "--wait")


# --- rights, namespaces --------------------------------------------------------------------------


def test_a_revoked_token_ends_nothing_and_is_told(person):
    """The programs go on; with a new token everything is seen again."""
    person.launched(WORK)
    person.phase("work", "RUNNING")
    before = person.space.pods()
    whole = json.loads(person.space.kubeconfig.read_text())
    person.space.kubectl("delete", "serviceaccount", "argosy")  # all of its tokens are void now
    try:
        until(
            lambda: (
                "kubernetes/signed-out" in person.argosy("infra", "check")[1]
                or "does not know who we are" in person.argosy("infra", "check")[1]
            ),
            lambda: f"nobody says it: {person.argosy('infra', 'check')}",
        )
        assert {pod["metadata"]["uid"] for pod in person.space.pods().values()} == {
            pod["metadata"]["uid"] for pod in before.values()
        }
    finally:
        person.space.kubectl("create", "serviceaccount", "argosy")
        person.space.sign_in()
    assert whole["users"] != json.loads(person.space.kubeconfig.read_text())["users"]
    person.did("cancel", "work", "--now", "--wait")
    until(lambda: not person.space.ours(), lambda: f"left: {person.space.ours()}")


def test_a_deleted_namespace_takes_its_groups_with_it(rig, tmp_path):
    """They are lost, with the reason; the server goes on."""
    with a_namespace(rig, tmp_path) as space, a_person(space, tmp_path / "home") as person:
        person.launched(WORK)
        person.phase("work", "RUNNING")
        rig.kubectl("delete", "namespace", space.name, "--wait=true")
        says(person, "work", "namespace")
        person.did("cancel", "work", "--now")


def test_pods_that_pod_security_restricts_run_as_a_user(rig, tmp_path):
    """In a namespace of the profile `restricted`, with an image of a user without a name."""
    profile = {"pod-security.kubernetes.io/enforce": "restricted"}
    with (
        a_namespace(rig, tmp_path, **profile) as space,
        a_person(
            space, tmp_path / "home", restricted=True, image="localhost/python-user:3.11"
        ) as person,
    ):
        text = "name: r\nresources: {cpus: 1}\nrun: echo I am $(id -u); cat /proc/self/status\n"
        code, out, err = person.launch(text)
        assert code == 0, out + err
        assert "I am 1000" in out
        assert "CapEff:\t0000000000000000" in out


def test_pods_that_pod_security_refuses_are_told(rig, tmp_path):
    """Whoever does not say `restricted` is told that it would help."""
    profile = {"pod-security.kubernetes.io/enforce": "restricted"}
    with (
        a_namespace(rig, tmp_path, **profile) as space,
        a_person(space, tmp_path / "home") as person,
    ):
        person.launched("name: r\nresources: {cpus: 1}\nrun: 'true'\n")
        says(person, "r", "restricted")
        person.did("cancel", "r", "--now", "--wait")

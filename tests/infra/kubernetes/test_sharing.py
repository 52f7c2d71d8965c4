"""Several servers, several groups, one cluster: nobody is in the way of anybody for ever."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest
import yaml

from tests.infra.kubernetes.person import a_person, config
from tests.infra.kubernetes.rig import until

pytestmark = pytest.mark.kubernetes

TIMES = int(os.environ.get("ARGOSY_GANG_TIMES", "3"))
LARGE = """name: {name}
num_nodes: 3
resources: {{accelerators: 'H100:6'}}
run: sleep 0.5
"""  # three quarters of the rig: 18 of 24 cards
QUIET = "name: {name}\nresources: {{cpus: 1}}\nrun: sleep 1000\n"


@pytest.mark.parametrize("servers", [1, 2])
def test_two_groups_of_three_quarters_run_one_after_the_other(space, tmp_path, servers):
    """Each time; from one server and from two that know nothing of each other."""
    with ExitStack() as stack:
        one = other = stack.enter_context(a_person(space, tmp_path / "home"))
        if servers == 2:
            other = stack.enter_context(a_person(space, tmp_path / "other"))
        for time in range(TIMES):
            first, second = f"first-{time}", f"second-{time}"
            at_once = (one.begin(LARGE.format(name=first)), other.begin(LARGE.format(name=second)))
            for process in at_once:
                out, err = process.communicate()
                assert process.returncode == 0, out + err
            for person, name in ((one, first), (other, second)):
                ended = person.phase(name, "SUCCEEDED", "FAILED")
                assert ended["phase"] == "SUCCEEDED", person.explained(name)
        until(lambda: not space.ours(), lambda: f"left: {space.ours()}")


def test_two_servers_leave_each_others_things_alone(space, tmp_path):
    """Also what has the same name; and each sees that capacity is taken."""
    with (
        a_person(space, tmp_path / "home") as one,
        a_person(space, tmp_path / "other") as other,
    ):
        one.launched(QUIET.format(name="mine"))
        one.phase("mine", "RUNNING")
        mine = {pod["metadata"]["uid"] for pod in space.pods().values()}
        other.launched(QUIET.format(name="yours"))
        other.phase("yours", "RUNNING")
        other.launched(QUIET.format(name="mine"))  # its service is called as the other's
        until(lambda: "of this group" in other.explained("mine"), lambda: other.explained("mine"))
        for name in ("mine", "yours"):
            other.did("cancel", name, "--now", "--wait")
        assert {pod["metadata"]["uid"] for pod in space.pods().values()} == mine
        assert one.group("mine")["phase"] == "RUNNING"
        assert "Service mine" in space.ours()
        code, out, err = other.argosy("infra", "clean", "kubernetes/rig", "-y")
        assert code == 0, out + err
        assert {pod["metadata"]["uid"] for pod in space.pods().values()} == mine


def test_two_contexts_of_one_server_may_be_one_namespace(space, tmp_path):
    """What one of them shows is not the other's to end."""
    with a_person(space, tmp_path / "home") as one:
        known = config(space)
        contexts = known["kubernetes"]["contexts"]
        contexts["twin"] = contexts["rig"]
        (one.home / "config.yaml").write_text(yaml.safe_dump(known))
        one.launched(QUIET.format(name="mine"))
        one.phase("mine", "RUNNING")
        mine = {pod["metadata"]["uid"] for pod in space.pods().values()}
        file = tmp_path / "yours.yaml"
        file.write_text(QUIET.format(name="yours"))
        one.did("launch", str(file), "--infra", "kubernetes/twin", "-d", "-y")
        one.phase("yours", "RUNNING")
        one.did("cancel", "yours", "--now", "--wait")
        until(lambda: "Service yours" not in space.ours(), lambda: f"left: {space.ours()}")
        assert {pod["metadata"]["uid"] for pod in space.pods().values()} == mine
        assert one.group("mine")["phase"] == "RUNNING"
        assert one.group("mine")["tasks"][0]["nodes"][0]["attempt"] == 1
        for context in ("rig", "twin"):
            one.did("infra", "clean", f"kubernetes/{context}", "-y")
        assert {pod["metadata"]["uid"] for pod in space.pods().values()} == mine


NOWHERE = """name: {name}
num_nodes: 2
resources: {{cpus: 1, image_id: 'docker:nobody.invalid/x:1'}}
run: sleep 1000
"""  # its pods get a place, and never an image


def test_a_group_without_its_image_keeps_nobody_waiting(person):
    """Its pods have a place in the cluster: the turn is the next one's."""
    person.launched(NOWHERE.format(name="stuck"))
    until(lambda: "node-" in person.explained("stuck"), lambda: person.explained("stuck"))
    person.launched(QUIET.format(name="other"))
    person.phase("other", "RUNNING")
    placed = person.did("events", "other")
    assert placed.count("plan-acquired") == 1, placed
    refused = "placing-given-up"
    until(lambda: refused in person.did("events", "stuck"), lambda: person.explained("stuck"))
    until(lambda: "the try before" in person.explained("stuck"), lambda: person.explained("stuck"))


def test_a_name_is_free_when_its_group_has_ended(person):
    """Also where its pods are in no hurry to go: its service goes at once."""
    person.launched(NOWHERE.format(name="again"))
    until(lambda: "node-" in person.explained("again"), lambda: person.explained("again"))
    person.did("cancel", "again", "--wait")
    person.launched(QUIET.format(name="again"))
    person.phase("again", "RUNNING")
    events = person.did("events", "again")
    assert "not of this group" not in events, events
    assert events.count("placing-given-up") <= 1, events

"""Agents that dial out: the server is where pods can reach it, in the network of the cluster."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import leftovers
from tests.infra.kubernetes.person import ARGOSY, Person, config
from tests.infra.kubernetes.rig import Namespace, until

pytestmark = pytest.mark.kubernetes

PORT = 7443
NODES = 30
MANY = f"""name: many
num_nodes: {NODES}
resources: {{cpus: 0.1}}
run: echo "line of $ARGOSY_NODE_RANK"; sleep 1
"""
LONG = "name: long\nresources: {cpus: 0.1}\nrun: echo here; sleep 1000\n"


class Inside(Person):
    """Somebody whose commands, and so whose server, run in the cluster's own network."""

    def configure(self, **more: object) -> None:
        known = json.loads((self.space.rig.home / "kubeconfig.inside").read_text())
        server = known["clusters"][0]["cluster"]["server"]
        whole = json.loads(self.space.kubeconfig.read_text())
        whole["clusters"][0]["cluster"]["server"] = server
        inside = self.space.kubeconfig.with_name("kubeconfig.inside")
        inside.write_text(json.dumps(whole))
        space = dataclasses.replace(self.space, kubeconfig=inside)
        host = server.removeprefix("https://").partition(":")[0]
        said = {**config(space, **more), "server": {"advertise": f"{host}:{PORT}"}}
        (self.home / "config.yaml").write_text(yaml.safe_dump(said))

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        environment = {**os.environ, "ARGOSY_HOME": str(self.home), "NO_COLOR": "1"}
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE} | options
        network = f"--net=/run/netns/{self.space.rig.home.name}"
        return subprocess.Popen(
            ["nsenter", network, str(ARGOSY), *words],
            env=environment, stderr=subprocess.PIPE, text=True, **streams,
        )  # fmt: skip

    def execs(self) -> int:
        """How many streams of exec its server has opened."""
        said = self.did("infra", "check", "kubernetes/rig")
        return int(re.search(r"agents: dial .*; (\d+) streams of exec", said)[1])


@pytest.fixture
def inside(space: Namespace, tmp_path: Path) -> Iterator[Inside]:
    """Afterwards nothing of the home runs."""
    person = Inside(space, tmp_path / "home")
    try:
        yield person
    finally:
        for group in json.loads(person.argosy("status", "-o", "json")[1] or "[]"):
            person.argosy("cancel", group["name"], "--now", "--wait")
        person.argosy("server", "stop")
        left = leftovers.end_home(person.home)
        assert not left, left


def test_many_pods_need_no_exec_stream(inside):
    """Start, reports, logs while they run and after the pods are gone."""
    code, out, err = inside.launch(MANY)
    assert code == 0, out + err
    lines = sorted(f"line of {number}" for number in range(NODES))
    assert sorted(line.partition("] ")[2].strip() for line in out.splitlines()) == lines
    assert sorted(line.partition("] ")[2].strip() for line in inside.logs("many")) == lines
    assert inside.execs() == 0


def test_a_server_that_was_killed_is_dialed_again(inside):
    """By the agents that are there, with what they know; exec into them works as before."""
    inside.launched(LONG)
    inside.phase("long", "RUNNING")
    pid = json.loads(inside.did("server", "status", "-o", "json"))["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: inside.argosy("server", "status")[0] != 0, "the server still runs")
    assert inside.did("exec", "long", "--", "echo", "hello") == "hello\n"
    assert inside.group("long")["phase"] == "RUNNING"
    assert inside.execs() == 0


def test_each_lease_has_a_secret_of_its_own_that_goes_with_it(inside):
    """Nothing in it opens the door of another lease, and nothing of it stays."""
    inside.launched(LONG.replace("run:", "num_nodes: 2\nrun:"))
    inside.phase("long", "RUNNING")
    pods = {pod["metadata"]["name"] for pod in inside.space.pods().values()}
    secrets = {one["metadata"]["name"]: one["data"] for one in inside.space.get("secrets")["items"]}
    assert pods <= secrets.keys()
    assert len({secrets[pod]["token"] for pod in pods}) == 2
    assert len({secrets[pod]["certificate"] for pod in pods}) == 1
    for pod in inside.space.pods().values():
        named = {one["secret"]["secretName"] for one in pod["spec"]["volumes"] if "secret" in one}
        assert named & pods == {pod["metadata"]["name"]}
    inside.did("cancel", "long", "--now", "--wait")
    until(lambda: not inside.space.ours(), lambda: f"left: {inside.space.ours()}")

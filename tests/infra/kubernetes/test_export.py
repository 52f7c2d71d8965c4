"""What `argosy export` prints, taken by a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.infra.kubernetes.rig import until

pytestmark = pytest.mark.kubernetes

FILE = """name: exported
execution: parallel
---
name: trainer
resources: {cpus: 0.2, accelerators: H100:2, ports: 9000}
run: "true"
---
name: rollout
num_nodes: 2
balance: 8000
resources: {cpus: 0.1, memory: 0.25, disk_size: 1}
run: "true"
"""


def test_kubectl_takes_what_is_exported(person, tmp_path: Path):
    """The pods run, on the nodes that the plan chose, with agents that wait for their server."""
    file, target = tmp_path / "exported.yaml", tmp_path / "manifests.yaml"
    file.write_text(FILE)
    words = ("--to", "kubernetes", "--context", "rig", "--output", str(target))
    person.did("export", str(file), *words)
    assert not person.space.pods()
    made = list(yaml.safe_load_all(target.read_text()))
    kubectl = person.space.rig.kubectl
    kubectl("-n", person.space.name, "apply", "-f", str(target))
    try:
        pods = [one["metadata"]["name"] for one in made if one["kind"] == "Pod"]
        until(lambda: all(ready(person, pod) for pod in pods), "the exported pods do not run")
        for pod in pods:
            # The file that `start` writes last, before it becomes the agent.
            kubectl("-n", person.space.name, "exec", pod, "--", "test", "-s", "/var/argosy/python")
    finally:
        words = ("delete", "-f", str(target), "--grace-period=1", "--ignore-not-found")
        kubectl("-n", person.space.name, *words)


def ready(person, pod: str) -> bool:
    """Whether its container runs."""
    status = person.space.get("pod", pod)["status"]
    return any("running" in one["state"] for one in status.get("containerStatuses", ()))

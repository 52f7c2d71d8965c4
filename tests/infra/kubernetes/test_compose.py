"""What is sent to a cluster, compared with files that people read.

`python tests/infra/kubernetes/test_compose.py --update` writes them anew: read the difference.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from argosy.infra.kubernetes.facts.cards import Card
from argosy.infra.kubernetes.manifests import compose, scripts
from argosy.infra.kubernetes.manifests.export import as_yaml
from argosy.model.action import BalancedName
from argosy.model.needs import Accelerator, Need
from argosy.model.volumes import VolumeKind, VolumeSpec, VolumeUse
from tests.infra.kubernetes.requests import (
    CONTEXT,
    GROUP,
    NAME,
    OWNER,
    a_context,
    a_request,
    settings,
)

FILES: Final = {"agent.pyz": b"agent", "relay.py": b"# relay"}
GOLDEN: Final = Path(__file__).parent / "golden"
H100: Final = Accelerator("H100", 8, 80.0)
SEEN: Final = (
    Card("H100", "nvidia.com/gpu", "nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3", 80.0),
    Card("H100", "nvidia.com/gpu", "nvidia.com/gpu.product", "NVIDIA-H100-PCIe", 80.0),
    Card("A100", "nvidia.com/gpu", "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB", 40.0),
)
BALANCED: Final = BalancedName("rollout", "rollout.rl_demo", (8000, 8001))
VOLUMES: Final = (
    VolumeUse("/data", "data-0a1b2c3d", VolumeSpec("data", VolumeKind.PVC), read_only=True),
    VolumeUse("/scratch", "name-scratch", VolumeSpec("scratch", size_gib=10.0), ephemeral=True),
)
EVERYTHING: Final = """
  namespace: research
  image: registry.acme.org/base:7
  service_account: trainer
  image_pull_secrets: [registry, mirror]
  priority_class: batch
  node_selector: {pool: gpu}
  tolerations: [{key: dedicated, operator: Equal, value: ml, effect: NoSchedule}]
  tolerate_seconds: 5
"""
POD_CONFIG: Final = """{pod_config: {
  metadata: {labels: {team: rl}, annotations: {note: "yes"}},
  spec: {
    runtimeClassName: nvidia,
    tolerations: [{operator: Exists}],
    containers: [
      {env: [{name: HTTP_PROXY, value: "http://proxy:3128"}],
       resources: {limits: {rdma/ib: 1}}, volumeMounts: [{name: data, mountPath: /data}]},
      {name: exporter, image: "exporter:2"}],
    volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]}}}"""


def indented(text: str) -> str:
    """A block of YAML in one line of flow style."""
    return yaml.safe_dump(yaml.safe_load(text), default_flow_style=True, width=9999).strip()


CASES: Final[Mapping[str, Callable[[], Any]]] = {
    "anchor": lambda: compose.anchor(GROUP, NAME, OWNER),
    "service": lambda: compose.service(GROUP, NAME, OWNER, "uid-of-the-anchor"),
    "secret": lambda: compose.secret(GROUP, NAME, OWNER, "uid-of-the-anchor", FILES),
    "balanced-service": lambda: compose.balanced_service(
        GROUP, NAME, OWNER, "uid-of-the-anchor", BALANCED
    ),
    "pod": lambda: compose.pod(a_request(), settings()),
    "pod-balanced": lambda: compose.pod(
        a_request(balanced=(BALANCED,)), settings(balanced=((BALANCED.name, "10.96.0.7"),))
    ),
    "pod-anywhere": lambda: compose.pod(a_request(host=None), settings()),
    "pod-sized": lambda: compose.pod(
        a_request(
            Need(
                cpus=3.5,
                memory_gib=14.9,
                memory_exact=True,
                disk_gib=100.0,
                image="docker:pytorch/pytorch:2.5.1",
                ports=("8080", "9000-9002"),
                labels=(("team", "rl"), ("note", "free text"), ("argosy.dev/node", "forged-0")),
                other=(("priority_class", "urgent"),),
            ),
            grace=90.5,
        ),
        settings(),
    ),
    "pod-cards": lambda: compose.pod(
        a_request(Need(accelerators=(H100,), cpus=8.0), card=H100), settings(cards=SEEN)
    ),
    "pod-cards-unseen": lambda: compose.pod(
        a_request(Need(accelerators=(H100,)), card=H100, host=None), settings()
    ),
    "pod-slices": lambda: compose.pod(
        a_request(card=Accelerator("mig-1g.10gb", 2, 10.0)), settings()
    ),
    "pod-amd": lambda: compose.pod(a_request(card=Accelerator("MI300X", 4, 192.0)), settings()),
    "pod-tpu": lambda: compose.pod(
        a_request(card=Accelerator("tpu-v5e", 4, 16.0)),
        settings(
            cards=(
                Card(
                    "tpu-v5e",
                    "google.com/tpu",
                    "cloud.google.com/gke-tpu-accelerator",
                    "tpu-v5-lite-podslice",
                    16.0,
                    (("cloud.google.com/gke-tpu-topology", "2x2"),),
                ),
            )
        ),
    ),
    "pod-spot": lambda: compose.pod(a_request(Need(use_spot=True)), settings()),
    "pod-volumes": lambda: compose.pod(a_request(volumes=VOLUMES), settings()),
    "pod-restricted": lambda: compose.pod(
        a_request(), settings(a_context("{restricted: true, run_as_user: 1234}"))
    ),
    "pod-context": lambda: compose.pod(a_request(), settings(a_context(indented(EVERYTHING)))),
    "pod-config": lambda: compose.pod(a_request(), settings(a_context(indented(POD_CONFIG)))),
}


def told(name: str) -> str:
    return as_yaml(CASES[name]())


@pytest.mark.parametrize("name", CASES)
def test_it_is_composed_as_the_file_has_it(name: str):
    assert told(name) == (GOLDEN / f"{name}.yaml").read_text(encoding="utf-8")


def test_every_file_has_its_case():
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(CASES)


def container(need: Need) -> dict[str, Any]:
    found: dict[str, Any] = compose.pod(a_request(need), settings())["spec"]["containers"][0]
    return found


def test_an_exact_amount_of_memory_is_a_limit_and_a_least_amount_is_none():
    exact = container(Need(memory_gib=16.0, memory_exact=True))["resources"]
    assert exact == {"requests": {"cpu": "50m", "memory": "16Gi"}, "limits": {"memory": "16Gi"}}
    least = container(Need(cpus=4.0, memory_gib=16.0))["resources"]
    assert least == {"requests": {"cpu": "4", "memory": "16Gi"}}


def test_shared_memory_is_half_of_the_memory():
    def shm(need: Need) -> Any:
        volumes = compose.pod(a_request(need), settings())["spec"]["volumes"]
        return next(one["emptyDir"] for one in volumes if one["name"] == "argosy-shm")

    assert shm(Need()) == {"medium": "Memory", "sizeLimit": "1Gi"}
    assert shm(Need(memory_gib=32.0)) == {"medium": "Memory", "sizeLimit": "16Gi"}
    assert shm(Need(memory_gib=1.0)) == {"medium": "Memory", "sizeLimit": "512Mi"}


@pytest.mark.parametrize(
    ("given", "image"),
    [
        (None, "trainer:1"),
        ("docker:a/b:2", "a/b:2"),
        ("a/b@sha256:00", "a/b@sha256:00"),
        ("us-east-1=ami-1,prod=docker:a:3", "a:3"),
        ("us-east-1=ami-1,kubernetes=a:4", "a:4"),
        ("us-east-1=ami-1", "trainer:1"),
    ],
)
def test_the_image_is_the_task_s_or_that_of_the_context(given: str | None, image: str):
    assert compose.image(Need(image=given), CONTEXT) == image


def test_a_wide_range_of_ports_is_not_listed_whole():
    ports = container(Need(ports=("1000-60000", "80")))["ports"]
    assert len(ports) == compose.PORTS_MAX
    assert ports[0] == {"containerPort": 1000}


def test_the_agent_and_both_scripts_travel_in_the_secret():
    files = {"agent.pyz": bytes(range(256)), "relay.py": b"# relay"}
    secret = compose.secret(GROUP, NAME, OWNER, "", files)
    assert {name: base64.b64decode(one) for name, one in secret["data"].items()} == files
    assert secret["stringData"] == {"start": scripts.START, "agent": scripts.AGENT}


def test_without_an_owner_nothing_refers_to_one():
    assert "ownerReferences" not in compose.service(GROUP, NAME, OWNER, "")["metadata"]


def test_names_are_such_that_a_cluster_takes_them():
    request = replace(a_request(), group_name="Rl_Demo 7")
    pod = compose.pod(request, settings())
    assert pod["metadata"]["name"] == "argosy-g3f9a1c5eed01-6b0f3a2c-1-6b0f3a2c-4"
    assert pod["spec"]["subdomain"] == "rl-demo-7"
    assert pod["metadata"]["annotations"]["argosy.dev/group-name"] == "Rl_Demo 7"
    service = compose.service(GROUP, "Rl_Demo 7", OWNER, "")
    assert service["metadata"]["name"] == "rl-demo-7"


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit("usage: python tests/infra/kubernetes/test_compose.py --update")
    GOLDEN.mkdir(exist_ok=True)
    for case in CASES:
        (GOLDEN / f"{case}.yaml").write_text(told(case), encoding="utf-8")

"""What nodes have, less what runs on them, as the scheduler counts it."""

from __future__ import annotations

from typing import Any

import pytest

from argosy.infra.kubernetes.facts.offers import (
    NodeFacts,
    PodFacts,
    node_facts,
    offers,
    pod_facts,
    unseen,
)
from argosy.infra.kubernetes.facts.quantities import amount, cores, gibibytes
from argosy.infra.kubernetes.manifests.compose import pod as composed
from argosy.model.needs import Accelerator, Capacity, Need, fits
from argosy.model.plan import Offer
from tests.infra.kubernetes.requests import CONTEXT, a_context, a_request, settings

PRODUCT = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


def a_node(name: str = "node-1", *, gpus: int = 0, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"pool": "a"} | (PRODUCT if gpus else {})},
        "spec": spec,
        "status": {
            "capacity": {"cpu": "9", "memory": "33Gi"},
            "allocatable": {
                "cpu": "7910m",
                "memory": "33554432Ki",
                "pods": "110",
                "ephemeral-storage": "47093746742",
                **({"nvidia.com/gpu": str(gpus)} if gpus else {}),
            },
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True", "message": "kubelet is posting ready status"},
            ],
        },
    }


def unready(name: str = "node-1", status: str = "Unknown") -> dict[str, Any]:
    node = a_node(name)
    text = "Kubelet stopped posting node status."
    node["status"]["conditions"] = [{"type": "Ready", "status": status, "message": text}]
    return node


def requesting(**amounts: str) -> dict[str, Any]:
    return {"resources": {"requests": {key.replace("_", "/"): x for key, x in amounts.items()}}}


def a_pod(*containers: dict[str, Any], phase: str = "Running", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "a"},
        "spec": {"nodeName": "node-1", "containers": list(containers), **spec},
        "status": {"phase": phase},
    }


def offered(
    *nodes: dict[str, Any],
    pods: tuple[dict[str, Any], ...] = (),
    need: Need | None = None,
    context: str = "{}",
) -> tuple[Offer, ...]:
    config = a_context(context)
    facts = [node_facts(node) for node in nodes]
    return offers("kubernetes/prod", need or Need(), facts, map(pod_facts, pods), config)


def test_a_node_offers_what_is_allocatable():
    (offer,) = offered(a_node(gpus=8))
    assert (offer.infra, offer.host, offer.count) == ("kubernetes/prod", "node-1", 1)
    assert (offer.network, offer.apart, offer.silent) == ("isolated", False, "")
    disk = 47093746742 / 2**30
    assert offer.total == Capacity(7.91, 32.0, (Accelerator("H100", 8, 80.0),), disk)
    assert offer.free == offer.total


def test_what_runs_there_is_taken_whoever_it_belongs_to():
    pods = (
        a_pod(requesting(cpu="500m", memory="1Gi"), requesting(cpu="1")),
        a_pod({"resources": {"limits": {"nvidia.com/gpu": "2", "memory": "2Gi"}}}),
    )
    (offer,) = offered(a_node(gpus=8), pods=pods)
    assert offer.free.cpus == pytest.approx(6.41)
    assert offer.free.memory_gib == pytest.approx(29.0)
    assert offer.free.count_of("H100") == 6


def test_disk_is_counted_where_the_node_says_how_much_it_has():
    """A pod that asks for none takes none, whatever it writes."""
    silent = a_node("node-2")
    del silent["status"]["allocatable"]["ephemeral-storage"]
    pods = (a_pod(requesting(**{"ephemeral-storage": "40Gi"})), a_pod(requesting(cpu="1")))
    first, second = offered(a_node(), silent, pods=pods)
    assert first.free.disk_gib == pytest.approx(43.859 - 40.0, abs=0.001)
    assert (second.total.disk_gib, second.free.disk_gib) == (None, None)
    small, large = (Need(cpus=0.1, disk_gib=size) for size in (3.0, 20.0))
    assert [fits(small, one.free) for one in (first, second)] == [True, True]
    assert [fits(large, one.free) for one in (first, second)] == [False, True]
    assert fits(large, first.total)


def test_pods_elsewhere_nowhere_or_ended_take_nothing():
    big = requesting(cpu="4")
    pods = (
        a_pod(big, nodeName="node-2"),
        a_pod(big, nodeName=None),
        a_pod(big, phase="Succeeded"),
        a_pod(big, phase="Failed"),
    )
    (offer,) = offered(a_node(), pods=pods)
    assert offer.free == offer.total


def test_init_containers_count_by_their_largest_moment():
    def cpus(*inits: dict[str, Any], overhead: str = "0") -> float:
        pod = a_pod(
            requesting(cpu="1"),
            requesting(cpu="1"),
            initContainers=list(inits),
            overhead={"cpu": overhead},
        )
        return pod_facts(pod).cpus

    sidecar = requesting(cpu="1") | {"restartPolicy": "Always"}
    assert cpus(requesting(cpu="1")) == 2.0
    assert cpus(requesting(cpu="5")) == 5.0
    assert cpus(sidecar) == 3.0
    assert cpus(sidecar, requesting(cpu="5")) == 6.0
    assert cpus(requesting(cpu="5"), sidecar) == 5.0
    assert cpus(overhead="250m") == 2.25


def test_resources_of_the_pod_as_a_whole_stand_above_its_containers():
    pod = a_pod(requesting(cpu="1"), resources={"requests": {"cpu": "3"}})
    assert pod_facts(pod).cpus == 3.0


def test_what_we_compose_is_counted_as_it_was_planned():
    need = Need(cpus=2.5, memory_gib=4.0, disk_gib=30.0)
    pod = composed(a_request(need, card=Accelerator("H100", 3, 80.0)), settings())
    pod["spec"]["nodeName"] = "node-1"
    assert pod_facts(pod) == PodFacts(
        "node-1", 2.5, 4.0, disk_gib=30.0, cards=(("nvidia.com/gpu", 3),)
    )


def test_a_cordoned_node_has_nothing_now():
    (offer,) = offered(a_node(unschedulable=True))
    assert (offer.count, offer.free, offer.silent) == (0, Capacity(), "")
    assert offer.total.cpus == 7.91


def test_a_node_short_of_memory_has_nothing_now():
    taint = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
    (offer,) = offered(a_node(taints=[taint]))
    assert (offer.count, offer.silent) == (0, "")


def test_a_full_node_has_nothing_now():
    node = a_node()
    node["status"]["allocatable"]["pods"] = "1"
    (offer,) = offered(node, pods=(a_pod(),))
    assert (offer.count, offer.free) == (0, Capacity())


@pytest.mark.parametrize("status", ["Unknown", "False"])
def test_a_node_that_is_not_ready_says_why(status: str):
    (offer,) = offered(unready(status=status))
    assert (offer.count, offer.free) == (0, Capacity())
    assert offer.silent == "Kubelet stopped posting node status."


def test_a_taint_that_nobody_tolerates_hides_a_node():
    taint = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
    assert offered(a_node(taints=[taint])) == ()
    assert offered(a_node(taints=[taint | {"effect": "PreferNoSchedule"}]))
    for word in ("{key: dedicated, value: ml}", "{key: dedicated, operator: Exists}"):
        assert offered(a_node(taints=[taint]), context=f"{{tolerations: [{word}]}}")
        own = f"{{pod_config: {{spec: {{tolerations: [{word}]}}}}}}"
        assert offered(a_node(taints=[taint]), context=own)
    other = "{tolerations: [{key: dedicated, value: web}]}"
    assert offered(a_node(taints=[taint]), context=other) == ()
    only = "{tolerations: [{key: dedicated, operator: Exists, effect: NoExecute}]}"
    assert offered(a_node(taints=[taint]), context=only) == ()


def test_nodes_that_are_kept_for_their_cards_are_offered():
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    assert len(offered(a_node(gpus=8, taints=[taint]))) == 1
    assert offered(a_node(taints=[taint])) == ()


def test_spot_nodes_are_for_those_who_said_so():
    taint = {"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"}
    assert offered(a_node(taints=[taint])) == ()
    assert len(offered(a_node(taints=[taint]), need=Need(use_spot=True))) == 1


def test_the_selector_of_the_context_chooses():
    assert len(offered(a_node(), context="{node_selector: {pool: a}}")) == 1
    assert offered(a_node(), context="{node_selector: {pool: b}}") == ()
    assert offered(a_node(), context="{pod_config: {spec: {nodeSelector: {pool: b}}}}") == ()


def test_the_zone_of_a_node_is_its_region():
    node = a_node()
    assert offered(node)[0].region == ""
    node["metadata"]["labels"]["topology.kubernetes.io/zone"] = "eu-1b"
    assert offered(node)[0].region == "eu-1b"


def test_nodes_come_by_name():
    names = [offer.host for offer in offered(a_node("b"), a_node("a"), unready("c"))]
    assert names == ["a", "b", "c"]


def test_a_cluster_that_makes_nodes_offers_them():
    wanted = Need(accelerators=(Accelerator("H100", 8), Accelerator("Unheard", 4)))
    made = offered(a_node(), need=wanted, context="{autoscaling: true}")[-1]
    assert (made.host, made.count, made.ready_after) == (None, 1000, 120.0)
    assert made.free.count_of("h100") == made.free.count_of("unheard") == 16
    assert made.free.cpus >= 192


def test_where_nodes_may_not_be_seen_the_scheduler_decides():
    offer = unseen("kubernetes/prod", Need(accelerators=(Accelerator("H100", 8),)))
    assert (offer.host, offer.ready_after, offer.free.count_of("H100")) == (None, 0.0, 16)


def test_a_node_that_says_little_has_little():
    found = node_facts({"metadata": {"name": "a"}})
    assert found == NodeFacts("a", False, "it has not said that it is ready")
    assert offers("kubernetes/prod", Need(), [found], (), CONTEXT)[0].count == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8.0),
        ("100m", 0.1),
        ("1.5", 1.5),
        ("64Mi", 2.0**26),
        ("1e3", 1000.0),
        ("2G", 2e9),
        ("1500M", 1.5e9),
        ("128974848", 128974848.0),
        ("5u", 5e-6),
        ("", 0.0),
        ("x", 0.0),
    ],
)
def test_amounts(text: str, value: float):
    assert amount(text) == pytest.approx(value)


def test_amounts_are_never_written_as_more():
    assert (cores(4.0), cores(0.5), cores(2.0005), cores(0.0001)) == ("4", "500m", "2000m", "1m")
    assert (gibibytes(16.0), gibibytes(0.5), gibibytes(14.9011)) == ("16Gi", "512Mi", "15258Mi")

"""Where volumes let nodes go, and what is said of them."""

from __future__ import annotations

from typing import Any

from argosy.model.ids import NodeId
from argosy.model.needs import Need
from argosy.model.plan import NoPlan, Offer, Placement, Plan
from argosy.model.spec import TaskSpec, VolumeMount
from argosy.model.volumes import VolumeKind, VolumeSpec
from tests.plan.test_planner import a_group, a_host, a_task, hosts, planned

ONE = Need(cpus=4)


def pool(*names: str, **more: Any) -> list[Offer]:
    """Hosts of 8 cores that are machines of their own."""
    return [a_host(name, infra="ssh/lab", apart=True, cards=0, **more) for name in names]


def data(host: str = "", **more: Any) -> VolumeMount:
    """A `local` volume of a name, on that host if it was used before."""
    spec = VolumeSpec("data", VolumeKind.LOCAL, "ssh/lab", host=host, **more)
    return VolumeMount("/data", "data", volume=spec, id="data-1")


def share(**more: Any) -> VolumeMount:
    return VolumeMount("/data", host_path="/mnt/x", kind="nfs", **more)


def task(name: str, *volumes: VolumeMount, count: int = 1, **more: Any) -> TaskSpec:
    return a_task(name, count, ONE, volumes=volumes, **more)


def refused(answer: Plan | NoPlan) -> tuple[str, ...]:
    assert isinstance(answer, NoPlan), answer
    return answer.report.refused


def test_a_node_goes_where_its_volume_is() -> None:
    spec = a_group(task("a"), task("b", data("h3")))
    answer = planned(spec, *pool("h1", "h2", "h3"))
    assert hosts(answer)[1] == "h3"
    assert isinstance(answer, Plan)
    assert "volume data: h3 of ssh/lab, where it is" in answer.report.chosen


def test_who_needs_a_host_is_placed_there_before_others_take_it() -> None:
    spec = a_group(task("large", count=2), task("b", data("h1")), task("c", data("h1")))
    answer = planned(spec, *pool("h1", "h2"))
    assert sorted(map(str, hosts(answer))) == ["h1", "h1", "h2", "h2"]
    assert hosts(answer)[2:] == ["h1", "h1"]


def test_nodes_that_use_a_volume_first_are_on_one_host() -> None:
    small = Need(cpus=3)
    other = a_task("other", 1, Need(cpus=6))
    spec = a_group(other, a_task("a", 2, small, volumes=(data(),)))
    answer = planned(spec, *pool("h1", "h2"))
    assert hosts(answer) == ["h1", "h2", "h2"] or hosts(answer) == ["h2", "h1", "h1"]
    assert isinstance(answer, Plan)
    assert any("from now on" in line for line in answer.report.chosen)


def test_what_does_not_fit_the_volumes_host_waits_with_words() -> None:
    spec = a_group(task("a", data("h2"), count=3))
    assert refused(planned(spec, *pool("h1", "h2"))) == (
        "task \"a\" must be on h2, where its volume 'data' is, and there is no room even when "
        "empty",
    )
    loose = refused(planned(a_group(task("a", data(), count=3)), *pool("h1", "h2")))
    assert "must be on one host" in loose[0]
    gone = refused(planned(a_group(task("a", data("h9"))), *pool("h1", "h2")))
    assert "is on h9, which ssh/lab does not offer" in gone[0]


def test_kept_nodes_hold_a_volume_where_they_are() -> None:
    spec = a_group(task("a", data(), count=2))
    first = planned(spec, *pool("h1", "h2"))
    assert isinstance(first, Plan)
    answer = planned(spec, *pool("h1", "h2"), kept=first.placements[:1])
    assert hosts(answer) == [first.placements[0].host] * 2


def test_an_infra_that_cannot_mount_it_is_named() -> None:
    claim = VolumeSpec("data", VolumeKind.PVC, "kubernetes", 10.0)
    mount = VolumeMount("/data", "data", volume=claim, id="data-1")
    answer = planned(a_group(task("a", mount)), *pool("h1"))
    assert refused(answer) == (
        "task \"a\": its volume 'data', of type `k8s-pvc` on `kubernetes`, cannot be mounted on "
        "ssh/lab",
    )
    assert isinstance(answer, NoPlan)
    assert answer.never


def test_a_group_on_several_hosts_has_a_shared_folder_only_in_a_shared_volume() -> None:
    def told(*tasks: TaskSpec) -> list[str]:
        answer = planned(a_group(*tasks), *pool("h1", "h2"))
        assert isinstance(answer, Plan)
        return [line for line in answer.report.warnings if "ARGOSY_SHARED_DIR" in line]

    asking = {"run": 'cp x "$ARGOSY_SHARED_DIR"'}
    (line,) = told(task("a", count=2, **asking), task("b"))
    assert line.startswith("a: $ARGOSY_SHARED_DIR is not set")
    assert "type: nfs" in line
    assert told(task("a", share(), count=2, **asking), task("b", share())) == []
    assert told(task("a", share(read_only=True), count=2, **asking), task("b", share()))
    assert told(task("a", **asking), task("b")) == []  # on one host
    assert told(task("a", count=3)) == []


def test_a_folder_on_each_host_is_said() -> None:
    spec = a_group(task("a", VolumeMount("/x", size_gib=1.0), count=4))
    answer = planned(spec, *pool("h1", "h2"))
    assert isinstance(answer, Plan)
    assert any("a folder of its own on each of 2 hosts" in one for one in answer.report.warnings)


def test_a_folder_of_this_machine_holds_no_node_to_a_host_of_a_pool() -> None:
    here = a_host("localhost", infra="local", cards=0)
    mount = VolumeMount("/d", "d", volume=VolumeSpec("d", VolumeKind.LOCAL, "local"), id="d-1")
    either = Need(cpus=1)
    tasks = (a_task(name, 1, either, volumes=(mount,)) for name in "ab")
    spec = a_group(*tasks, inter_connection=False)
    kept = Placement(NodeId("a", 0), "local", "localhost", either, None)
    answer = planned(spec, here, *pool("h1", "h2"), kept=(kept,))
    assert hosts(answer) == ["localhost", "localhost"]

"""What a plan warns of: files of this machine, ports that clash, what is not carried out."""

from __future__ import annotations

import pytest

from argosy.model.needs import Capacity, Need
from argosy.model.plan import NoPlan, Offer, Placement, Plan
from argosy.model.spec import FileMount, GroupSpec, Probe, Ready, TaskSpec
from argosy.plan.cautions import not_carried_out
from tests.plan.test_planner import a_group, a_host, a_task, planned

TWO = Need(cpus=1)


def told(answer: Plan | NoPlan) -> tuple[str, ...]:
    return answer.report.warnings


def this_machine(**more) -> Offer:
    capacity = Capacity(8.0, 24.0)
    return Offer("local", "here", capacity, capacity, own_machine=True, **more)


def served(name: str, count: int, port: int = 8000, **more) -> TaskSpec:
    return a_task(name, count, Need(cpus=1), ready=Ready(Probe.HTTP, port), **more)


def test_what_is_not_carried_out_is_said_with_a_plan_and_without() -> None:
    task = a_task("t", 1, Need(cpus=4), not_carried_out=("`s3://x` is not mounted yet",))
    sentence = 'task "t": `s3://x` is not mounted yet'
    assert told(planned(a_group(task), this_machine())) == (sentence,)
    nowhere = planned(a_group(task))
    assert isinstance(nowhere, NoPlan)
    assert told(nowhere) == (sentence,)


def test_mounts_outside_of_the_nodes_folder_are_written_on_the_users_machine() -> None:
    mounts = (FileMount("~/model", "/m"), FileMount("data", "/d"), FileMount("/etc/x.conf", "/x"))
    spec = a_group(a_task("t", 1, TWO, file_mounts=mounts))
    assert told(planned(spec, this_machine())) == (
        'task "t" writes ~/model and /etc/x.conf on this machine itself, over what is there: a'
        " relative destination lies in the node's own folder",
    )
    assert told(planned(spec, a_host("h0"))) == ()
    inside = a_group(a_task("t", 1, TWO, file_mounts=mounts[1:2]))
    assert told(planned(inside, this_machine())) == ()


def test_nodes_that_share_a_network_and_a_port_are_named() -> None:
    spec = a_group(served("rollout", 2), served("reward", 1, 8001), network="host")
    assert told(planned(spec, this_machine())) == (
        "rollout-0 and rollout-1 use port 8000 on one host, whose network they share: each program"
        " must bind $ARGOSY_HOSTNAME, not 0.0.0.0",
    )


@pytest.mark.parametrize(
    ("wanted", "found", "warned"),
    [
        ("", "host", True),
        ("host", "isolated", True),
        ("", "isolated", False),
        ("isolated", "host", False),
        ("", "", False),
    ],
)
def test_ports_clash_where_the_network_is_the_hosts(wanted: str, found: str, warned: bool) -> None:
    spec = a_group(served("rollout", 2), network=wanted)
    assert bool(told(planned(spec, this_machine(network=found)))) == warned


def test_nodes_on_hosts_of_their_own_do_not_clash() -> None:
    spec = a_group(served("rollout", 2), network="host")
    one, other = a_host("h0", free=Capacity(1.0, 8.0)), a_host("h1", free=Capacity(1.0, 8.0))
    assert told(planned(spec, one, other)) == ()


def test_ranges_clash_where_they_meet() -> None:
    spec = a_group(
        a_task("a", 1, Need(ports=("1000-2000", "7000")), balance=(9000,)),
        a_task("b", 1, Need(ports=("1990-2010",))),
        a_task("c", 5, Need(ports=("9000",))),
        network="host",
    )
    first, second = told(planned(spec, this_machine()))
    assert first.startswith("a-0 and b-0 use ports 1990-2000 on one host")
    assert second.startswith("a-0, c-0, c-1, c-2 and 2 more use port 9000 on one host")


def apart(host: str, *, cpus: float = 1.0, **more) -> Offer:
    """A host whose isolated networks end there."""
    capacity = Capacity(cpus, 32.0)
    return Offer("ssh/lab", host, capacity, capacity, network="isolated", apart=True, **more)


def test_nodes_of_a_group_on_several_hosts_share_the_address_of_their_host() -> None:
    spec = a_group(served("rollout", 3))
    answer = planned(spec, apart("h0", cpus=2.0), apart("h1"))
    assert told(answer) == (
        "rollout-1 and rollout-2 use port 8000 on h0, whose one address they share, as the group is"
        " on several hosts: give each a port of its own, or ask for so much that one host cannot"
        " take both",
    )
    assert answer.report.chosen[-1] == (
        "network of the hosts, since the group is on several hosts of ssh/lab"
    )


def test_who_uses_a_balanced_port_on_several_hosts_must_not_bind_all_addresses() -> None:
    """Each host has a proxy of the balanced name."""
    spec = a_group(served("rollout", 2, balance=(8000,)), served("reward", 1, 8001))
    assert told(planned(spec, apart("h0"), apart("h1"), apart("h2"))) == (
        "rollout-0 and rollout-1 use port 8000 on hosts where the proxy of rollout.g:8000 has it,"
        " too, at an address of its own: each program must bind $ARGOSY_HOSTNAME, not 0.0.0.0",
    )
    assert told(planned(spec, apart("h0", cpus=3.0))) == ()


def test_nodes_that_are_all_on_one_host_have_networks_of_their_own() -> None:
    answer = planned(a_group(served("rollout", 2)), apart("h0", cpus=2.0), apart("h1", cpus=4.0))
    assert told(answer) == ()
    assert not any("network" in line for line in answer.report.chosen)


def test_what_an_infra_carries_out_is_no_warning_there():
    words = ("`resources.image_id`: no image", "`resources.autostop`: given back")
    spec = GroupSpec("g", (TaskSpec("a", not_carried_out=words), TaskSpec("b")))
    node = spec.tasks[0].nodes()[0]

    def said(infra: str) -> tuple[str, ...]:
        return not_carried_out(spec, (Placement(node, infra, "h", Need(), None),))

    assert said("kubernetes/prod") == ('task "a": `resources.autostop`: given back',)
    assert said("ssh/lab") == said("local") == not_carried_out(spec)
    assert len(not_carried_out(spec)) == 2
    wanted = TaskSpec("a", needs=(Need(infra="kubernetes/prod"),), not_carried_out=words)
    assert len(not_carried_out(GroupSpec("g", (wanted,)))) == 1  # no plan, and no other place

"""Disk is counted where an infra says how much there is, and asked for nowhere else."""

from __future__ import annotations

from argosy.model.needs import Capacity, Need
from argosy.model.plan import NoPlan, Offer
from tests.plan.test_planner import a_group, a_task, hosts, planned

BIG = Need(cpus=1, disk_gib=60.0)


def a_host(host: str, *, disk: float | None, taken: float = 0.0) -> Offer:
    total = Capacity(8.0, 32.0, disk_gib=disk)
    free = total.minus(Capacity(disk_gib=taken))
    return Offer("kubernetes/prod", host, free, total)


def test_nodes_that_want_more_disk_than_one_host_has_are_spread():
    spec = a_group(a_task("work", 2, BIG))
    assert hosts(planned(spec, a_host("h0", disk=100.0), a_host("h1", disk=100.0))) == ["h0", "h1"]
    assert hosts(planned(spec, a_host("h0", disk=130.0), a_host("h1", disk=10.0))) == ["h0", "h0"]


def test_where_nobody_counts_it_there_is_enough():
    assert hosts(planned(a_group(a_task("work", 2, BIG)), a_host("h0", disk=None))) == ["h0", "h0"]


def test_who_wants_no_disk_does_not_mind_a_full_one():
    spec = a_group(a_task("work", 1, Need(cpus=1)))
    assert hosts(planned(spec, a_host("h0", disk=100.0, taken=120.0))) == ["h0"]


def test_the_disk_that_is_short_is_told():
    spec = a_group(a_task("work", 1, BIG))
    now = planned(spec, a_host("h0", disk=100.0, taken=70.0), a_host("h1", disk=100.0, taken=50.0))
    assert isinstance(now, NoPlan)
    assert not now.never
    assert (
        "80 of 200 GiB of disk free on kubernetes/prod, 50 on one host at most, of 60 wanted"
        in (now.report.refused[0])
    )
    never = planned(spec, a_host("h0", disk=40.0))
    assert isinstance(never, NoPlan)
    assert never.never
    assert "has 40 GiB of disk in all, of 60 wanted" in never.report.refused[0]

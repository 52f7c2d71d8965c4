"""Plans: what goes where, what is refused and in which words."""

from __future__ import annotations

import math

from argosy.model.action import Replan
from argosy.model.ids import NodeId, Serial
from argosy.model.needs import Accelerator, Capacity, Need
from argosy.model.plan import NoPlan, Offer, Placement, Plan
from argosy.model.spec import GroupSpec, TaskSpec
from argosy.plan.planner import plan

H100 = Accelerator("H100", 8)


def a_host(
    host: str, *, cards: int = 8, taken: int = 0, infra: str = "local/rack", **more
) -> Offer:
    accelerators = (Accelerator("H100", cards),) if cards else ()
    total = Capacity(8.0, 32.0, accelerators)
    free = total.minus(Capacity(0.0, 0.0, (Accelerator("H100", taken),)))
    return Offer(infra=infra, host=host, free=more.pop("free", free), total=total, **more)


def this_machine(**more) -> Offer:
    capacity = Capacity(2.0, 24.0)
    return Offer("local", "here", capacity, capacity, elastic_cpus=True, **more)


def a_group(*tasks: TaskSpec, **more) -> GroupSpec:
    return GroupSpec("g", tasks, **more)


def a_task(name: str = "trainer", count: int = 1, *needs: Need, **more) -> TaskSpec:
    return TaskSpec(name, num_nodes=count, needs=needs or (Need(),), **more)


def asked(spec: GroupSpec, kept: tuple[Placement, ...] = (), refused=()) -> Replan:
    held = {placement.node for placement in kept}
    nodes = tuple(node for node in spec.nodes() if node not in held)
    return Replan(Serial(1, 1), nodes, kept, refused)


def planned(spec: GroupSpec, *offers: Offer, kept=(), refused=()) -> Plan | NoPlan:
    return plan(asked(spec, kept, refused), spec, offers, now=100.0)


def hosts(answer: Plan | NoPlan) -> list[str | None]:
    assert isinstance(answer, Plan), answer
    return [placement.host for placement in answer.placements]


def test_large_nodes_get_whole_hosts_and_small_ones_share_what_is_left():
    spec = a_group(
        a_task("reward", 2, Need(cpus=4)),
        a_task("trainer", 2, Need(cpus=4, accelerators=(H100,))),
    )
    answer = planned(spec, a_host("h0"), a_host("h1"), a_host("h2"))
    assert hosts(answer) == ["h0", "h1", "h0", "h1"]


def test_a_refusal_says_what_is_wanted_and_what_is_free():
    spec = a_group(a_task("trainer", 2, Need(accelerators=(H100,))))
    answer = planned(spec, a_host("h0", taken=8), a_host("h1"))
    assert isinstance(answer, NoPlan)
    assert not answer.never
    assert answer.retry_at == 130.0
    assert answer.infras == ("local/rack",)
    assert answer.report.refused == (
        'task "trainer": 2 x H100:8 wanted, 8 of 16 cards free on local/rack, '
        "8 on one host at most",
    )


def test_what_would_not_fit_an_empty_infra_is_never():
    spec = a_group(a_task("trainer", 3, Need(accelerators=(H100,))))
    answer = planned(spec, a_host("h0"), a_host("h1"))
    assert isinstance(answer, NoPlan)
    assert answer.never
    assert answer.retry_at == math.inf
    assert answer.infras == ()
    assert "local/rack has 16 cards in all" in answer.report.refused[0]


def test_accelerators_on_a_machine_without_them_name_the_flag():
    answer = planned(a_group(a_task("t", 1, Need(accelerators=(H100,)))), this_machine())
    assert isinstance(answer, NoPlan)
    assert answer.never
    assert answer.report.refused == (
        'task "t": 1 x H100:8 wanted, local has no accelerators: '
        "`--no-accelerators` runs it without",
    )


def test_cpus_beyond_this_machine_are_a_warning():
    spec = a_group(a_task("t", 1, Need(cpus=64, memory_gib=512)))
    answer = planned(spec, this_machine())
    assert hosts(answer) == ["here"]
    assert answer.report.warnings == (
        'task "t" asks for 64 cpus, local has 2; 512 GiB, local has 24: it runs with what is there',
    )


def test_tasks_that_fit_one_by_one_only_are_a_warning_too():
    answer = planned(a_group(a_task("t", 3, Need(cpus=1))), this_machine())
    assert answer.report.warnings == ("together the tasks ask for 3 cpus, local has 2",)


def test_cpus_beyond_a_virtual_host_are_a_refusal():
    answer = planned(a_group(a_task("t", 1, Need(cpus=9))), a_host("h0"), a_host("h1"))
    assert isinstance(answer, NoPlan)
    assert answer.never
    assert answer.report.refused == (
        'task "t": 1 x 9 cpus wanted, local/rack has 16 cpus in all, 8 on one host at most',
    )


def test_kept_placements_are_repeated_and_counted_once():
    spec = a_group(a_task("trainer", 2, Need(accelerators=(H100,))))
    need = spec.tasks[0].needs[0]
    kept = (Placement(NodeId("trainer", 0), "local/rack", "h0", need, H100),)
    answer = planned(spec, a_host("h0", taken=8), a_host("h1"), kept=kept)
    assert hosts(answer) == ["h0", "h1"]
    assert answer.placements[0] is kept[0]


def test_a_replacement_stays_on_the_infra_of_what_is_kept():
    spec = a_group(a_task("t", 2))
    kept = (Placement(NodeId("t", 0), "local/rack", "h0", Need(), None),)
    answer = planned(spec, this_machine(), a_host("h0"), kept=kept)
    assert answer.placements[1].infra == "local/rack"


def test_never_counts_what_is_kept():
    spec = a_group(a_task("t", 2, Need(accelerators=(H100,))))
    kept = (Placement(NodeId("t", 0), "local/rack", "h0", spec.tasks[0].needs[0], H100),)
    answer = planned(spec, a_host("h0", taken=8), kept=kept)
    assert isinstance(answer, NoPlan)
    assert answer.never


def test_a_host_that_is_away_would_be_there_in_an_empty_infra():
    spec = a_group(a_task("t", 1, Need(accelerators=(H100,))))
    answer = planned(spec, a_host("h0", count=0))
    assert isinstance(answer, NoPlan)
    assert not answer.never
    assert answer.report.refused == ('task "t": 1 x H100:8 wanted, local/rack has no host now',)


def test_the_whole_group_goes_to_one_infra():
    spec = a_group(a_task("a", 1), a_task("b", 1, Need(accelerators=(H100,))))
    answer = planned(spec, this_machine(), a_host("h0", price_per_hour_usd=9.0))
    assert answer.infras() == ("local/rack",)


def test_unset_waits_for_the_infra_that_could_hold_all():
    spec = a_group(a_task("a", 1), a_task("b", 1, Need(accelerators=(H100,))))
    pinned = a_group(a_task("a", 2, Need(cpus=4)))
    pools = (a_host("h0", infra="local/x", free=Capacity(4.0, 32.0)),
             a_host("h1", infra="local/y", free=Capacity(4.0, 32.0)))  # fmt: skip
    waits = planned(pinned, *pools)
    assert isinstance(waits, NoPlan)
    assert not waits.never
    assert isinstance(planned(spec, this_machine(), a_host("h0")), Plan)


def test_unset_is_spread_with_a_warning_when_no_infra_could_hold_all():
    spec = a_group(a_task("a", 1, Need(infra="local")), a_task("b", 1, Need(infra="local/*")))
    answer = planned(spec, this_machine(), a_host("h0"))
    assert answer.infras() == ("local", "local/rack")
    assert any("spread over" in line for line in answer.report.warnings)


def test_inter_connection_true_never_spreads():
    tasks = (a_task("a", 1, Need(infra="local")), a_task("b", 1, Need(infra="local/rack")))
    answer = planned(a_group(*tasks, inter_connection=True), this_machine(), a_host("h0"))
    assert isinstance(answer, NoPlan)
    assert answer.never
    assert any("`inter_connection: false`" in line for line in answer.report.refused)


def test_inter_connection_false_goes_where_there_is_room():
    spec = a_group(a_task("a", 2, Need(cpus=4)), inter_connection=False)
    pools = (a_host("h0", infra="local/x", free=Capacity(4.0, 32.0)),
             a_host("h1", infra="local/y", free=Capacity(4.0, 32.0)))  # fmt: skip
    assert planned(spec, *pools).infras() == ("local/x", "local/y")


def test_ordered_accelerators_take_the_first_that_is_free():
    both = (Accelerator("H100", 1), Accelerator("A100", 1))
    need = Need(accelerators=both, accelerators_ordered=True)
    a100 = Capacity(8.0, 32.0, (Accelerator("A100", 4),))
    cheap = Offer("local/rack", "a", a100, a100, price_per_hour_usd=0.1)
    dear = a_host("h", price_per_hour_usd=80.0)
    assert hosts(planned(a_group(a_task("t", 1, need)), cheap, dear)) == ["h"]
    full = a_host("h", taken=8, price_per_hour_usd=80.0)
    assert hosts(planned(a_group(a_task("t", 1, need)), cheap, full)) == ["a"]
    any_of = Need(accelerators=both)
    assert hosts(planned(a_group(a_task("t", 1, any_of)), cheap, dear)) == ["a"]


def test_cards_are_found_by_memory_and_in_any_letter_case():
    large = Capacity(8.0, 32.0, (Accelerator("H100", 2, 80.0),))
    small = Capacity(8.0, 32.0, (Accelerator("L4", 2, 24.0),))
    offers = (Offer("local/rack", "s", small, small), Offer("local/rack", "l", large, large))
    answer = planned(
        a_group(a_task("t", 1, Need(accelerators=(Accelerator("", 1, 48.0),)))), *offers
    )
    assert hosts(answer) == ["l"]
    assert answer.placements[0].accelerator == Accelerator("H100", 1, 80.0)
    assert hosts(
        planned(a_group(a_task("t", 1, Need(accelerators=(Accelerator("l4"),)))), *offers)
    ) == ["s"]


def test_a_price_limit_is_kept_and_named():
    spec = a_group(a_task("t", 1, Need(cpus=8, max_price_per_hour_usd=1.0)))
    answer = planned(spec, a_host("h0", price_per_hour_usd=2.0))
    assert isinstance(answer, NoPlan)
    assert (
        "local/rack costs more than $1 per hour: raise `max_hourly_cost`"
        in answer.report.refused[0]
    )
    half = a_group(a_task("t", 1, Need(cpus=4, max_price_per_hour_usd=1.0)))
    assert (
        planned(half, a_host("h0", price_per_hour_usd=2.0)).placements[0].price_per_hour_usd == 1.0
    )


def test_an_unknown_infra_names_those_there_are():
    answer = planned(a_group(a_task("t", 1, Need(infra="aws/us-east-1"))), this_machine())
    assert isinstance(answer, NoPlan)
    assert answer.never
    assert answer.report.refused == (
        'task "t": 1 x any host wanted, no infra here is `aws/us-east-1` (there is: local): '
        "`--infra local` runs it here",
    )


def test_patterns_and_prefixes_name_infras():
    offers = (a_host("h0", infra="ssh/lab"), a_host("h1", infra="ssh/den"), this_machine())
    for pattern, wanted in (("ssh/*", "h1"), ("ssh", "h1"), ("*/lab", "h0"), ("local", "here")):
        cheap = tuple(o if o.host != "h0" else a_host("h0", infra="ssh/lab", price_per_hour_usd=1.0)
                      for o in offers)  # fmt: skip
        assert hosts(planned(a_group(a_task("t", 1, Need(infra=pattern, cpus=1))), *cheap)) == [
            wanted
        ]


def test_a_host_that_refused_is_used_last():
    spec = a_group(a_task("t", 1))
    refused = (("local/rack", "h0"),)
    assert hosts(planned(spec, a_host("h0"), a_host("h1"), refused=refused)) == ["h1"]
    assert hosts(planned(spec, a_host("h0"), refused=refused)) == ["h0"]


def test_an_elastic_infra_gives_so_many_hosts_as_it_offers():
    capacity = Capacity(8.0, 32.0)
    cloud = Offer("aws/x", None, capacity, capacity, count=2, price_per_hour_usd=1.0)
    assert hosts(planned(a_group(a_task("t", 2, Need(cpus=8))), cloud)) == [None, None]
    assert isinstance(planned(a_group(a_task("t", 3, Need(cpus=8))), cloud), NoPlan)


def test_a_search_finds_what_greed_misses():
    """Greed makes 4 + 3 and is left with 2 + 2 + 2 for 5; 4 + 2 + 2 and 3 + 3 + 2 fill both."""
    needs = [(f"t{i}", n) for i, n in enumerate((4, 3, 3, 2, 2, 2))]
    spec = a_group(*(a_task(name, 1, Need(cpus=cpus)) for name, cpus in needs))
    answer = planned(spec, *(a_host(f"h{i}", cards=0) for i in range(2)))
    assert isinstance(answer, Plan)


def test_the_same_question_has_the_same_answer():
    spec = a_group(a_task("a", 3, Need(cpus=2)), a_task("b", 2, Need(accelerators=(H100,))))
    offers = tuple(a_host(f"h{i}") for i in range(4))
    assert planned(spec, *offers) == planned(spec, *offers)


def an_apart_host(host: str, cpus: float = 4.0, **more) -> Offer:
    """A host of a pool where isolated networks end at each host."""
    capacity = Capacity(cpus, 32.0)
    return Offer("ssh/lab", host, more.pop("free", capacity), capacity, apart=True, **more)


def test_isolated_nodes_go_to_one_host_where_such_networks_end_there():
    spec = a_group(a_task("t", 3, Need(cpus=2)), network="isolated")
    small, large = an_apart_host("h0"), an_apart_host("h1", 6.0)
    assert hosts(planned(spec, small, large)) == ["h1", "h1", "h1"]
    freely = a_group(a_task("t", 3, Need(cpus=2)))
    assert hosts(planned(freely, small, large)) == ["h0", "h0", "h1"]


def test_isolated_that_no_host_can_hold_is_refused_with_its_reason():
    spec = a_group(a_task("t", 3, Need(cpus=2)), network="isolated")
    answer = planned(spec, an_apart_host("h0"), an_apart_host("h1"))
    assert isinstance(answer, NoPlan)
    assert answer.never
    (said,) = answer.report.refused
    assert said.startswith("`--network isolated` wants all 3 nodes on one host")
    busy = an_apart_host("h2", 6.0, free=Capacity(2.0, 32.0))
    later = planned(spec, an_apart_host("h0"), an_apart_host("h1"), busy)
    assert isinstance(later, NoPlan)
    assert not later.never
    assert "has room for all of them now: without it" in later.report.refused[0]


def test_isolated_nodes_join_those_that_are_kept():
    spec = a_group(a_task("t", 2, Need(cpus=2)), network="isolated")
    kept = Placement(NodeId("t", 0), "ssh/lab", "h1", Need(cpus=2), None)
    answer = planned(spec, an_apart_host("h0"), an_apart_host("h1"), kept=(kept,))
    assert hosts(answer) == ["h1", "h1"]


def test_isolated_nodes_that_need_not_meet_go_anywhere():
    spec = a_group(a_task("t", 3, Need(cpus=2)), network="isolated", inter_connection=False)
    assert hosts(planned(spec, an_apart_host("h0"), an_apart_host("h1"))) == ["h0", "h0", "h1"]


def test_while_a_host_does_not_answer_nothing_is_never():
    nothing = Capacity()
    silent = Offer("ssh/lab", "h1", nothing, nothing, 0, apart=True, silent="no route to h1")
    spec = a_group(a_task("t", 3, Need(cpus=2)))
    answer = planned(spec, an_apart_host("h0"), silent)
    assert isinstance(answer, NoPlan)
    assert not answer.never
    assert math.isfinite(answer.retry_at)
    assert answer.report.refused == (
        'task "t": 3 x 2 cpus wanted, 4 of 4 cpus free on ssh/lab, 4 on one host at most',
        "not now, because h1 of ssh/lab does not answer: no route to h1",
    )
    assert hosts(planned(a_group(a_task("t", 2, Need(cpus=2))), an_apart_host("h0"), silent)) == [
        "h0", "h0",
    ]  # fmt: skip


def test_hosts_that_do_not_answer_are_named_up_to_a_number():
    nothing = Capacity()
    silent = [Offer("ssh/lab", f"h{n}", nothing, nothing, 0, silent="gone") for n in range(9)]
    answer = planned(a_group(a_task("t", 1, Need(cpus=1))), *silent)
    assert isinstance(answer, NoPlan)
    assert not answer.never
    assert answer.report.refused[-1] == "nor do 5 more hosts answer"


def test_a_group_is_kept_in_one_region_where_that_costs_nothing():
    spec = a_group(a_task("trainer", 2, Need(cpus=8)))
    there = (
        a_host("h0", region="a"),
        a_host("h1", region="b"),
        a_host("h2", region="b"),
    )
    assert hosts(planned(spec, *there)) == ["h1", "h2"]
    assert hosts(planned(spec, *there[:2])) == ["h0", "h1"]


def test_a_replacement_goes_where_the_others_are():
    spec = a_group(a_task("trainer", 2, Need(cpus=8)))
    trainer = spec.tasks[0].nodes()[0]
    kept = (Placement(trainer, "local/rack", "h2", Need(cpus=8), None),)
    full = Capacity(0.0, 0.0)
    there = (
        a_host("h0", region="a"),
        a_host("h1", region="b"),
        a_host("h2", region="b", free=full),
    )
    assert hosts(planned(spec, *there, kept=kept)) == ["h2", "h1"]


def test_what_the_user_prefers_comes_before_nearness():
    a100 = Accelerator("A100", 8)
    need = Need(accelerators=(H100, a100), accelerators_ordered=True)
    spec = a_group(a_task("trainer", 2, need))
    room = Capacity(8.0, 32.0, (a100,))
    there = (
        a_host("h0", region="a"),
        a_host("h1", region="b"),
        Offer("local/rack", "h2", room, room, region="c"),
        Offer("local/rack", "h3", room, room, region="c"),
    )
    assert hosts(planned(spec, *there)) == ["h0", "h1"]

"""What must hold of any plan, for any group and any offers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.model.action import Replan
from argosy.model.ids import Serial
from argosy.model.needs import Accelerator, Capacity, Need
from argosy.model.plan import NoPlan, Offer, Plan
from argosy.model.spec import GroupSpec, TaskSpec
from argosy.plan.candidates import named
from argosy.plan.planner import plan

CARDS = ("H100", "A100")


@st.composite
def needs(draw):
    names = draw(st.lists(st.sampled_from(CARDS), max_size=2, unique=True))
    return Need(
        infra=draw(st.sampled_from((None, None, "local/a", "local/*"))),
        cpus=draw(st.sampled_from((None, 1.0, 2.5, 6.0))),
        memory_gib=draw(st.sampled_from((None, 4.0, 10.0))),
        accelerators=tuple(Accelerator(name, draw(st.integers(1, 4))) for name in names),
        accelerators_ordered=draw(st.booleans()),
        max_price_per_hour_usd=draw(st.sampled_from((None, None, 1.0))),
    )


@st.composite
def groups(draw):
    tasks = tuple(
        TaskSpec(
            f"t{index}",
            num_nodes=draw(st.integers(1, 3)),
            needs=tuple(draw(st.lists(needs(), min_size=1, max_size=2))),
            needs_ordered=draw(st.booleans()),
        )
        for index in range(draw(st.integers(1, 4)))
    )
    return GroupSpec("g", tasks, inter_connection=draw(st.sampled_from((None, True, False))))


@st.composite
def hosts(draw):
    found = []
    for index in range(draw(st.integers(0, 5))):
        cards = tuple(
            Accelerator(name, draw(st.integers(1, 8))) for name in CARDS if draw(st.booleans())
        )
        total = Capacity(8.0, 16.0, cards)
        used = draw(st.integers(0, 8))
        free = Capacity(8.0 - used, 16.0 - used, tuple(
            replace(one, count=draw(st.integers(0, one.count))) for one in cards))  # fmt: skip
        found.append(
            Offer(
                infra=draw(st.sampled_from(("local/a", "local/b"))),
                host=f"h{index}",
                free=free,
                total=total,
                count=draw(st.sampled_from((0, 1, 1, 1))),
                price_per_hour_usd=draw(st.sampled_from((0.0, 0.5, 3.0))),
            )
        )
    return tuple(found)


def ask(spec: GroupSpec, offers) -> Plan | NoPlan:
    return plan(Replan(Serial(1, 1), spec.nodes(), ()), spec, offers, now=0.0)


def emptied(offers):
    return tuple(replace(offer, free=offer.total, count=1) for offer in offers)


@settings(max_examples=150, deadline=None)
@given(groups(), hosts())
def test_a_plan_is_complete_and_never_over_capacity(spec, offers):
    answer = ask(spec, offers)
    if isinstance(answer, NoPlan):
        assert answer.report.refused
        return
    assert [placement.node for placement in answer.placements] == list(spec.nodes())
    left = {(offer.infra, offer.host): offer for offer in offers}
    used = defaultdict(lambda: [0.0, 0.0, defaultdict(int)])
    for placement in answer.placements:
        assert placement.need in spec.task(placement.node.task).needs
        assert placement.infra in named(placement.need.infra, [offer.infra for offer in offers])
        assert left[placement.infra, placement.host].count == 1
        mine = used[placement.infra, placement.host]
        mine[0] += placement.need.cpus or 0.0
        mine[1] += placement.need.memory_gib or 0.0
        assert (placement.accelerator is None) == (not placement.need.accelerators)
        if placement.accelerator:
            mine[2][placement.accelerator.name] += placement.accelerator.count
        limit = placement.need.max_price_per_hour_usd
        assert limit is None or placement.price_per_hour_usd <= limit
    for key, (cpus, memory, cards) in used.items():
        assert cpus <= left[key].free.cpus
        assert memory <= left[key].free.memory_gib
        for name, count in cards.items():
            assert count <= left[key].free.count_of(name)
    if spec.inter_connection is True:
        assert len(answer.infras()) <= 1


@settings(max_examples=150, deadline=None)
@given(groups(), hosts())
def test_never_is_the_truth_of_the_empty_infra(spec, offers):
    """It says so of the empty infra only, which is searched further than what is free now."""
    answer = ask(spec, offers)
    empty = ask(spec, emptied(offers))
    never = isinstance(empty, NoPlan) and empty.never
    if isinstance(answer, NoPlan):
        assert answer.never == never
        if isinstance(empty, Plan):
            assert answer.infras == empty.infras()
    else:
        assert not never


@settings(max_examples=60, deadline=None)
@given(groups(), hosts())
def test_a_plan_that_was_given_can_be_kept(spec, offers):
    """Replanning with everything kept asks for nothing and repeats it."""
    answer = ask(spec, offers)
    if isinstance(answer, Plan):
        again = plan(Replan(Serial(1, 2), (), answer.placements), spec, offers, now=0.0)
        assert isinstance(again, Plan)
        assert again.placements == answer.placements


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 8), min_size=1, max_size=6), st.integers(1, 3))
def test_small_gangs_are_packed_whenever_it_is_possible(sizes, count):
    spec = GroupSpec("g", tuple(TaskSpec(f"t{i}", needs=(Need(cpus=float(size)),))
                                for i, size in enumerate(sizes)))  # fmt: skip
    offers = tuple(
        Offer("local/a", f"h{i}", Capacity(8.0, 1.0), Capacity(8.0, 1.0)) for i in range(count)
    )
    assert isinstance(ask(spec, offers), Plan) == _possible(
        sorted(sizes, reverse=True), [8] * count
    )


def _possible(sizes: list[int], bins: list[int]) -> bool:
    if not sizes:
        return True
    first, rest = sizes[0], sizes[1:]
    return any(
        _possible(rest, [left - first * (here == index) for here, left in enumerate(bins)])
        for index, room in enumerate(bins)
        if room >= first
    )

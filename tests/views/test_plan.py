"""A plan as people read it."""

from __future__ import annotations

import pytest

from argosy.model.ids import ZERO, NodeId
from argosy.model.needs import Accelerator, Need
from argosy.model.plan import NoPlan, Placement, Plan, PlanReport
from argosy.model.spec import Condition, Execution, Probe, Ready, Restart, Scope
from argosy.testing.builders import a_placement, a_spec, a_task
from argosy.views.plan import plan_view, start_order
from argosy.views.text import duration, ending, price, size


def test_plan_shows_place_price_and_need_of_each_node() -> None:
    card = Accelerator("H100", 8)
    need = Need(cpus=4, accelerators=(card,))
    placement = Placement(NodeId("trainer", 0), "local/rack", "h1", need, card, 2.5)
    view = plan_view(a_spec(), Plan(ZERO, (placement,), PlanReport(warnings=("w",))), ("f",))
    (node,) = view.tasks[0].nodes
    assert (node.host_name, node.infra, node.host) == ("trainer-0.demo", "local/rack", "h1")
    assert (node.accelerator, node.need) == ("H100:8", "H100:8, 4 cpus")
    assert (view.fits, view.price_per_hour_usd, view.warnings) == (True, 2.5, ("f", "w"))


def test_no_plan_shows_why_and_what_each_node_needs() -> None:
    spec = a_spec(a_task("trainer", needs=(Need(cpus=99), Need(cpus=98))))
    view = plan_view(spec, NoPlan(ZERO, PlanReport(refused=("too large",)), 5.0, never=True))
    assert (view.fits, view.never, view.refused) == (False, True, ("too large",))
    assert (view.tasks[0].nodes[0].infra, view.tasks[0].nodes[0].need) == ("", "99 cpus or 98 cpus")


def test_names_are_not_shown_where_there_are_none() -> None:
    view = plan_view(a_spec(inter_connection=False), Plan(ZERO, (a_placement(),)))
    assert view.tasks[0].nodes[0].host_name == ""


def test_start_order_follows_the_longest_chain() -> None:
    spec = a_spec(
        a_task("c", depends_on=(("b", Condition.STARTED), ("a", Condition.HEALTHY))),
        a_task("b", depends_on=(("a", Condition.HEALTHY),)),
        a_task("a"),
    )
    assert start_order(spec) == {"c": 3, "b": 2, "a": 1}


def test_start_order_of_a_cycle_comes_to_an_end() -> None:
    spec = a_spec(
        a_task("a", depends_on=(("b", Condition.STARTED),)),
        a_task("b", depends_on=(("a", Condition.STARTED),)),
    )
    assert set(start_order(spec).values()) == {2}


def test_serial_tasks_wait_for_the_success_of_the_one_before() -> None:
    spec = a_spec(a_task("a"), a_task("b"), execution=Execution.SERIAL)
    view = plan_view(spec, Plan(ZERO, ()))
    assert [(task.order, task.waits_for) for task in view.tasks] == [
        (1, ()),
        (2, ("a to be succeeded",)),
    ]


@pytest.mark.parametrize(
    ("restart", "text"),
    [
        (Restart(), "on lost hosts"),
        (Restart(on_lost=False), "never"),
        (Restart(on_failure=True), "on any failure, without limit; on lost hosts"),
        (
            Restart(on_codes=(3, 4), max=2, scope=Scope.TASK, on_lost=False, along=("b",)),
            "on exit 3/4, at most 2 per task, with b",
        ),
    ],
)
def test_restart_in_words(restart: Restart, text: str) -> None:
    view = plan_view(a_spec(a_task(restart=restart)), Plan(ZERO, ()))
    assert view.tasks[0].restart == text


@pytest.mark.parametrize(
    ("ready", "text"),
    [
        (Ready(Probe.HTTP, 80, "/h"), "http :80/h"),
        (Ready(Probe.TCP, 80), "tcp :80"),
        (Ready(Probe.COMMAND, text="true"), "command true"),
        (Ready(Probe.LOG, text="up"), "log /up/"),
        (None, ""),
    ],
)
def test_readiness_in_words(ready: Ready | None, text: str) -> None:
    assert plan_view(a_spec(a_task(ready=ready)), Plan(ZERO, ())).tasks[0].ready == text


def test_ending_in_words() -> None:
    spec = a_spec(a_task("a", 2), a_task("b", primary=False, termination_delay=30.0, grace=5.0))
    endings = [task.ending for task in plan_view(spec, Plan(ZERO, ())).tasks]
    assert endings[0] == "when its 2 nodes end"
    assert endings[1] == "30 s after the primaries, SIGKILL 5.0 s after SIGTERM"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"), (0.42, "0.4 s"), (42.9, "42 s"), (60, "1 m"), (200, "3 m 20 s"),
        (7320, "2 h 2 m"), (100_000, "1 d 3 h"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_sizes_prices_and_endings() -> None:
    assert [size(n) for n in (512, 1536, 12 << 30)] == ["512 B", "1.5 KiB", "12 GiB"]
    assert [price(p) for p in (0, 0.001, 2.5)] == ["free", "<$0.01", "$2.50"]
    assert ending("failed", 3, None) == "exited with 3"
    assert ending("failed", None, 77) == "was killed by signal 77"
    assert ending("lost", None, None) == "was lost"

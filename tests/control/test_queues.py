"""The queue as records are saved: who waits, who has the turn, what was freed."""

from __future__ import annotations

from dataclasses import replace

from argosy.control.queues import WOKEN_MOST, Queues
from argosy.model.group import Group, Phase, Placing
from argosy.model.ids import GroupId, Serial
from argosy.testing.builders import NOW, a_group, a_running_group, a_spec

ASKS = Placing(request=Serial(1, 1), infras=("local",))
FAILED = Placing(tries=1, failed_at=NOW, retry_at=NOW + 30, infras=("local",))


def waits(name: str, placing: Placing = ASKS, **changes: object) -> Group:
    spec = a_spec(name=name, **changes)
    return a_group(spec=spec, id=GroupId(name), placing=placing)


def test_a_group_that_asks_for_capacity_joins_the_queue() -> None:
    queues = Queues()
    assert queues.saved(None, waits("a"), NOW)
    assert [one.name for one in queues.current().waiting] == ["a"]


def test_what_changes_nothing_wakes_nobody() -> None:
    queues, group = Queues(), waits("a")
    queues.saved(None, group, NOW)
    assert not queues.saved(group, replace(group, version=2), NOW)


def test_a_group_that_acquires_has_the_turn_and_waits_no_longer() -> None:
    queues, group = Queues(), waits("a")
    queues.saved(None, group, NOW)
    placed = replace(group, placing=Placing(acquired_at=NOW, turns=("local", "ssh/lab")))
    assert queues.saved(group, placed, NOW)
    assert dict(queues.current().turns) == {"local": "a", "ssh/lab": "a"}
    assert queues.current().waiting == ()


def test_a_turn_is_free_when_it_is_given_up() -> None:
    queues, group = Queues(), waits("a")
    placed = replace(group, placing=Placing(acquired_at=NOW, turns=("local",)))
    queues.saved(None, placed, NOW)
    assert queues.saved(placed, replace(group, placing=FAILED), NOW)
    assert dict(queues.current().turns) == {}
    assert len(queues.current().waiting) == 1


def test_what_a_decision_lets_go_is_freed_when_it_was_decided() -> None:
    queues, before = Queues(), a_running_group()
    queues.saved(None, before, NOW)
    assert queues.saved(before, replace(before, leases=()), NOW + 7)
    assert dict(queues.current().freed_at) == {"local": NOW + 7}


def test_what_was_freed_lets_those_try_at_once_that_wait_for_that_infra() -> None:
    queues, before = Queues(), a_running_group()
    elsewhere = replace(FAILED, infras=("ssh/lab",))
    queues.saved(None, before, NOW)
    queues.saved(None, waits("here", FAILED), NOW)
    queues.saved(None, waits("there", elsewhere), NOW)
    queues.saved(before, replace(before, leases=()), NOW + 7)
    assert {one.name: one.retry_at for one in queues.current().waiting} == {
        "here": 0.0, "there": NOW + 30,
    }  # fmt: skip


def test_the_first_in_the_queue_are_asked_again_but_not_all() -> None:
    queues = Queues()
    for number in range(WOKEN_MOST + 5):
        queues.saved(None, waits(f"g{number:02}", priority=number), NOW)
    first = queues.first(without=GroupId("g20"))
    assert len(first) == WOKEN_MOST
    assert first[0] == "g19"


def test_a_group_that_is_no_more_leaves_queue_and_turns() -> None:
    queues, group = Queues(), waits("a")
    queues.saved(None, replace(group, placing=Placing(acquired_at=NOW, turns=("local",))), NOW)
    queues.saved(None, waits("b"), NOW)
    queues.forget(GroupId("a"))
    queues.forget(GroupId("b"))
    assert queues.current().waiting == ()
    assert dict(queues.current().turns) == {}


def test_a_group_that_is_over_is_not_in_the_queue() -> None:
    queues, group = Queues(), waits("a")
    queues.saved(None, group, NOW)
    queues.saved(group, replace(group, phase=Phase.CANCELLED), NOW)
    assert queues.current().waiting == ()


def test_the_queue_is_one_value_until_it_changes() -> None:
    queues = Queues()
    queues.saved(None, waits("a"), NOW)
    seen = queues.current()
    assert queues.current() is seen
    queues.saved(None, waits("b"), NOW)
    assert queues.current() is not seen

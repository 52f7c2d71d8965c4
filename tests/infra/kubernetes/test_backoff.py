"""Pauses before a busy server is asked again."""

from __future__ import annotations

import asyncio
import itertools

from argosy.infra.kubernetes.cluster.backoff import Backoff, Turns
from argosy.infra.kubernetes.cluster.failures import seconds_asked

FIRST, MOST = 0.5, 8.0


def pauses(who: str, count: int, at_least: float = 0.0) -> list[float]:
    backoff = Backoff(who, FIRST, MOST)
    return [backoff.pause(at_least) for _ in range(count)]


def test_pauses_grow_up_to_the_most_and_lie_between_a_half_and_all_of_their_measure():
    found = pauses("a pod", 50)
    measures = [min(MOST, FIRST * 2**i) for i in range(50)]
    assert all(whole / 2 <= one <= whole for one, whole in zip(found, measures, strict=True))
    assert all(later > one for one, later in itertools.pairwise(found[:5]))


def test_no_two_who_were_refused_in_one_moment_come_back_in_one_moment():
    first = [pauses(f"pod-{number}", 1)[0] for number in range(100)]
    assert len({round(one, 6) for one in first}) == 100
    assert max(first) - min(first) > FIRST / 4


def test_what_the_server_asks_for_is_waited_for_and_the_pause_as_well():
    asked, plain = pauses("x", 4, 7.0), pauses("x", 4)
    assert all(abs(a - b - 7.0) < 1e-9 for a, b in zip(asked, plain, strict=True))


def test_a_server_says_when_in_seconds_and_not_without_end():
    said = ["", "5", "0", "-1", "Wed, 21 Oct 2026 07:28:00 GMT", "100000"]
    found = [seconds_asked({"Retry-After": one}) for one in said]
    assert found == [0.0, 5.0, 0.0, 0.0, 0.0, 60.0]


def test_a_turn_comes_to_each_on_its_own():
    async def story() -> None:
        turns = Turns(30.0, 60.0)
        assert await turns.come("one", 0.0)
        turns.refused("one")
        assert not await turns.come("one", 0.01)
        assert await turns.come("other", 0.0)
        turns.over("one")
        assert await turns.come("one", 0.0)

    asyncio.run(story())

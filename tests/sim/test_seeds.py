"""A thousand worlds with faults: nothing that never may happen does, and all come to rest."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest

from argosy.testing.faults import COUNTED
from argosy.testing.sim import Result, replay, run_seed

SEEDS = 1000
LEAST = 50  # times that every fault has to strike over the set
TOLD = 3  # so many failing seeds are told in full


def fast(seed: int) -> Result:
    """One seed; a process of the pool runs it."""
    return run_seed(seed, fast=True)


@pytest.fixture(scope="module")
def results() -> list[Result]:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(fast, range(SEEDS), chunksize=10))


@pytest.mark.sim
def test_nothing_that_never_may_happen_does(results: list[Result]) -> None:
    wrong = [one for one in results if one.wrong]
    for one in wrong[:TOLD]:
        print(f"\n{one.story}\nseed {one.seed}: {one.wrong}\n  {replay(one.seed)}")
    assert not wrong, [(one.seed, one.wrong) for one in wrong]


@pytest.mark.sim
def test_every_fault_struck_often_enough(results: list[Result]) -> None:
    strikes: Counter[str] = Counter()
    for one in results:
        strikes += one.strikes
    rare = {name: strikes[name] for name in COUNTED if strikes[name] < LEAST}
    assert not rare


@pytest.mark.sim
def test_the_worlds_are_busy_enough(results: list[Result]) -> None:
    assert sum(one.decisions for one in results) >= 250 * SEEDS


def test_a_seed_gives_the_same_story_again() -> None:
    assert run_seed(7, story=True) == run_seed(7, story=True)

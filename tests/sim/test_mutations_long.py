"""Every deliberate mistake in `decide` is caught by the stories and seeds, or explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.mutations import MUTATIONS, Mutation
from tests.sim.run_mutations import copy_package, trial

SEEDS = 150


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    copy_package(folder)
    return folder


@pytest.mark.sim
def test_the_package_itself_is_well(base: Path) -> None:
    assert not trial(None, base, seeds=SEEDS)


@pytest.mark.sim
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: f"{one.module}: {one.name}")
def test_mutation_is_caught(mutation: Mutation, base: Path) -> None:
    assert trial(mutation, base, seeds=SEEDS) or mutation.explained

"""The list of mutations still fits `decide`: each can be made, and every step has its share."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.sim.mutations import MUTATIONS, Mutation
from tests.sim.run_mutations import copy_package, mutate

STEPS = ("absorb", "failure", "finish", "fill", "start", "leases")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: f"{one.module}: {one.name}")
def test_mutation_can_be_made(mutation: Mutation, tmp_path: Path) -> None:
    copy_package(tmp_path)
    mutate(mutation, tmp_path)
    module = tmp_path / "argosy" / "decide" / f"{mutation.module}.py"
    compile(module.read_text(encoding="utf-8"), str(module), "exec")


def test_every_step_has_five_or_more() -> None:
    count = Counter(one.module for one in MUTATIONS)
    assert all(count[step] >= 5 for step in STEPS)


def test_names_are_unique() -> None:
    assert len({one.name for one in MUTATIONS}) == len(MUTATIONS)

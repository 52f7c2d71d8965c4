"""What holds for every example folder: the same `net.py`, and programs that are really there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("*/group.yaml")])
COPIES = sorted(EXAMPLES.glob("*/net.py"))


def test_the_examples_are_there() -> None:
    names = {path.relative_to(EXAMPLES).as_posix() for path in FILES}
    folders = ("distillation", "rag", "rl", "simulation", "synthetic-data", "train-eval")
    assert names == {
        "hello.yaml",
        "rlhf-five-tasks.yaml",
        *(f"{folder}/group.yaml" for folder in folders),
    }


@pytest.mark.parametrize("copy", COPIES, ids=lambda path: path.parent.name)
def test_net_is_the_same_in_every_folder(copy: Path) -> None:
    assert copy.read_text() == (EXAMPLES / "rl" / "net.py").read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.relative_to(EXAMPLES).as_posix())
def test_names_programs_and_primaries_fit(file: Path) -> None:
    header, *tasks = [doc for doc in yaml.safe_load_all(file.read_text()) if doc]
    names = [task["name"] for task in tasks]
    assert header["execution"] == "parallel"
    assert set(header.get("primary_tasks", [])) <= set(names)
    for task in tasks:
        assert set(task.get("depends_on", {})) <= set(names)
        for program in re.findall(r'"\$PYTHON" (\S+)', task["run"]):
            assert (file.parent / program).is_file()


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.relative_to(EXAMPLES).as_posix())
def test_counts_given_to_programs_are_those_of_the_tasks(file: Path) -> None:
    header, *tasks = [doc for doc in yaml.safe_load_all(file.read_text()) if doc]
    nodes = {task["name"]: task.get("num_nodes", 1) for task in tasks}
    envs = [header.get("envs", {}), *(task.get("envs", {}) for task in tasks)]
    for variable, task in (("ROLLOUTS", "rollout"), ("SHARDS", "index")):
        for env in envs:
            assert env.get(variable, nodes.get(task)) == nodes.get(task)

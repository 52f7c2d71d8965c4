"""Every example, launched for real: its exit code, its result, and how it was connected."""

from __future__ import annotations

import ipaddress
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.whole.home import Home

pytestmark = pytest.mark.whole

WITH_NUMPY = ("--env", f"PYTHON={sys.executable}")
KINDS = ("copy", "reverse", "rotate", "next")


def assert_connected(home: Home, group: str) -> None:
    """Each node had an address of its own, in the network that was asked for."""
    addresses = [ipaddress.ip_address(node["address"]) for node in home.nodes(group).values()]
    assert len(set(addresses)) == len(addresses)
    if home.network:
        in_host_network = {address.is_loopback for address in addresses}
        assert in_host_network == {home.network == "host"}, addresses


def result(home: Home, group: str) -> dict[str, Any]:
    """What the group left in its shared folder."""
    value: dict[str, Any] = json.loads((home.shared(group) / "result.json").read_text())
    return value


def metrics(shared: Path) -> list[dict[str, Any]]:
    """The whole lines of the RL trainer's metrics so far."""
    file = shared / "metrics.jsonl"
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def test_hello(home: Home) -> None:
    said = home.launch("examples/hello.yaml").ended().good()
    assert "Hello alice, this is bob." in said.out
    assert "Hello bob, this is alice." in said.out
    assert_connected(home, "hello")


def test_rl_learns_through_the_loss_of_a_trainer_and_of_a_rollout(home: Home) -> None:
    running = home.launch("examples/rl/group.yaml", *WITH_NUMPY)
    running.until("the group is known", lambda: home.argosy("status", "rl").code == 0)
    shared = home.shared("rl")

    running.until("100 steps", lambda: len(metrics(shared)) >= 100)
    home.argosy("chaos", "kill", "rl/rollout/1").good()
    running.until("rollout-1 is back", lambda: _back(home, "rollout-1"))
    running.until("150 steps", lambda: metrics(shared)[-1]["step"] >= 150)
    home.argosy("chaos", "kill", "rl/trainer/0").good()
    said = running.ended().good()

    assert_connected(home, "rl")
    restarts = {name: node["restarts"] for name, node in home.nodes("rl").items()}
    again = {"rollout-1", "trainer-0", "trainer-1"}
    assert restarts == {name: int(name in again) for name in restarts}
    resumed = re.search(r"\[trainer-0@2\] *attempt 2 starts from step (\d+)", said.out)
    assert resumed, said.told()
    assert int(resumed[1]) >= 100
    assert all(share >= 0.9 for share in result(home, "rl")["test"].values())
    _assert_every_kind_rose(metrics(shared))


def _back(home: Home, name: str) -> bool:
    node = home.nodes("rl")[name]
    return bool(node["attempt"] == 2 and node["healthy"])


def _assert_every_kind_rose(lines: list[dict[str, Any]]) -> None:
    """From the first twentieth to the last, on what was trained on; the later attempt counts."""
    by_step = {line["step"]: line for line in sorted(lines, key=lambda line: line["attempt"])}
    steps = [by_step[step] for step in sorted(by_step)]
    part = len(steps) // 20
    assert [line["step"] for line in steps] == list(range(1, len(steps) + 1))
    for kind in KINDS:
        first, last = (
            sum(line["success"][kind] for line in some) / part
            for some in (steps[:part], steps[-part:])
        )
        assert last - first > 0.8, (kind, first, last)


def test_rlhf_in_five_tasks(home: Home) -> None:
    file = "examples/rlhf-five-tasks.yaml"
    said = home.launch(file, "--no-accelerators").ended().good()
    rose = re.search(r"reward went from ([\d.]+) to ([\d.]+)", said.out)
    assert rose, said.told()
    assert float(rose[2]) > 2 * float(rose[1])
    assert_connected(home, "rlhf")


def test_trainer_and_evaluator(home: Home) -> None:
    home.launch("examples/train-eval/group.yaml", *WITH_NUMPY).ended().good()
    lines = (home.shared("train-eval") / "eval.jsonl").read_text().splitlines()
    accuracy = [json.loads(line)["accuracy"] for line in lines]
    assert accuracy[-1] > 0.9
    assert accuracy[-1] > accuracy[0]
    assert_connected(home, "train-eval")


def test_distillation(home: Home) -> None:
    home.launch("examples/distillation/group.yaml", *WITH_NUMPY).ended().good()
    reached = result(home, "distillation")
    assert reached["teacher"] - 0.03 <= reached["taught"]
    assert reached["alone"] < reached["taught"]
    assert_connected(home, "distillation")


def test_rag(home: Home) -> None:
    home.launch("examples/rag/group.yaml", *WITH_NUMPY).ended().good()
    reached = result(home, "rag")
    assert reached["questions"] == 480
    assert min(reached["found"], reached["right"]) > 0.8
    assert_connected(home, "rag")


def test_simulation(home: Home) -> None:
    home.launch("examples/simulation/group.yaml", *WITH_NUMPY).ended().good()
    reached = result(home, "simulation")
    assert reached["learned"] >= 400
    assert reached["learned"] > 3 * reached["random"]
    assert_connected(home, "simulation")


def test_synthetic_data(home: Home) -> None:
    home.launch("examples/synthetic-data/group.yaml", *WITH_NUMPY).ended().good()
    reached = result(home, "synthetic-data")
    assert reached["kept"] > reached["raw"]
    assert reached["sentences"] > 0
    assert_connected(home, "synthetic-data")

"""A virtual pool: groups that do not fit together run one after another, by priority."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.faults.scene import (
    detach,
    ended,
    follow,
    group,
    nap,
    node,
    refused,
    running,
    sleeper,
    task,
    until,
    with_word,
    write,
)
from tests.whole.home import ROOT, Home

pytestmark = pytest.mark.whole

TIMES = int(os.environ.get("ARGOSY_GANG_TIMES", "10"))
POOLS = """
local:
  pools:
    rack: {hosts: 4, cpus: 4, memory: 16}
    one: {hosts: 1, cpus: 4, memory: 16}
    cards: {hosts: 4, cpus: 64, memory: 512, accelerators: H100:8, price: 20}
"""
RLHF = str(ROOT / "examples/rlhf-five-tasks.yaml")


@pytest.fixture(scope="module")
def pools(one_home: Home) -> Home:
    """A home with three pools."""
    one_home.path.mkdir(mode=0o700)
    (one_home.path / "config.yaml").write_text(POOLS)
    return one_home


@pytest.mark.parametrize("_time", range(TIMES))
def test_two_gangs_that_need_most_of_a_pool_run_one_after_the_other(
    pools: Home, _time: int
) -> None:
    ledger = pools.path.parent / "ledger"
    ledger.write_text("")
    line = f'echo "%s $ARGOSY_GROUP" >>{ledger}\n'
    run = line % "begin" + "sleep 0.1\n" + line % "end"
    gang = task("t", run, "num_nodes: 3", "resources: {cpus: 4}")
    both = [follow(pools, name, group(name, gang), "--infra", "local/rack") for name in ("a", "b")]
    for one in both:
        one.ended().good()
    order = [line.split()[1] for line in ledger.read_text().splitlines()]
    assert sorted(order) == ["a"] * 6 + ["b"] * 6
    assert order in (sorted(order), sorted(order, reverse=True)), f"they overlapped: {order}"


def test_who_waits_knows_why_and_priority_goes_first(pools: Home) -> None:
    def whole(name: str, priority: int, run: str) -> str:
        one = task("t", run, "resources: {cpus: 4}", "grace: 1s")
        return group(name, one, header=f"priority: {priority}\n")

    ledger = pools.path.parent / "order"
    here = ("--infra", "local/one")
    running(pools, "holder", whole("holder", 0, f"exec sleep {nap(pools)}"), *here)
    for name, priority in (("low", -5), ("high", 5)):
        detach(pools, name, whole(name, priority, f"echo {name} >>{ledger}"), *here)
    said = pools.argosy("explain", "low").good()
    assert "high" in until(
        "it says who is ahead",
        lambda: out if "high" in (out := pools.argosy("explain", "low").good().out) else "",
    ), said.told()
    assert not ledger.exists()
    pools.argosy("cancel", "holder").good()
    for name in ("low", "high"):
        assert ended(pools, name)["phase"] == "SUCCEEDED"
    assert ledger.read_text().split() == ["high", "low"]


def test_what_never_fits_is_refused_at_once(pools: Home) -> None:
    big = group("big", task("t", "true", "num_nodes: 5", "resources: {cpus: 4}"))
    said = pools.argosy("launch", "-y", write(pools, "big", big), "--infra", "local/rack")
    refused(said, 4, '"t"', "local/rack")
    refused(pools.argosy("status", "big"), 3, "'big'")


def test_a_lost_host_is_replaced_and_the_others_go_on(pools: Home) -> None:
    text = group(
        "spread",
        task("keep", f"exec sleep {nap(pools, 1)}", "resources: {cpus: 4}", "grace: 1s"),
        task("lose", f"exec sleep {nap(pools, 2)}", "resources: {cpus: 4}", "grace: 1s"),
    )
    running(pools, "spread", text, "--infra", "local/rack")
    kept, lost = sleeper(pools, 1), sleeper(pools, 2)
    host = node(pools, "spread", "lose-0")["host"]
    pools.argosy("chaos", "lose-host", "spread/lose/0").good()
    until("it runs elsewhere", lambda: with_word(nap(pools, 2)) not in ([], [lost]))
    assert node(pools, "spread", "lose-0")["host"] != host
    assert sleeper(pools, 1) == kept
    assert node(pools, "spread", "keep-0")["attempt"] == 1
    pools.argosy("chaos", "restore-host", "spread/lose/0")
    pools.argosy("cancel", "spread", "--now").good()
    assert not with_word(nap(pools, 1)) + with_word(nap(pools, 2))


def test_rlhf_is_valid_and_planned_on_a_pool_with_its_accelerators(pools: Home) -> None:
    assert "5 tasks" in pools.argosy("validate", RLHF).good().out
    said = pools.argosy("plan", RLHF, "--infra", "local/cards", "-o", "json").good()
    plan = json.loads(said.out)
    assert plan["fits"]
    nodes = [node for one in plan["tasks"] for node in one["nodes"]]
    assert all(node["infra"] == "local/cards" for node in nodes)
    assert sum(node["accelerator"].startswith("H100") for node in nodes) >= 4
    assert plan["price_per_hour_usd"] > 0
    if not list(Path("/dev").glob("nvidia[0-9]*")):
        refused(pools.argosy("launch", "-y", RLHF), 4, "H100", "--no-accelerators")


def test_cards_are_held_by_one_node_only(pools: Home) -> None:
    run = 'echo "cards $CUDA_VISIBLE_DEVICES on $ARGOSY_NODE"; exec sleep ' + nap(pools, 3)
    four = task("t", run, "num_nodes: 8", "resources: {accelerators: 'H100:4'}", "grace: 1s")
    running(pools, "shares", group("shares", four), "--infra", "local/cards")
    held: dict[str, list[str]] = {}

    def told() -> list[str]:
        lines = pools.argosy("logs", "shares").good().out.splitlines()
        return lines if len(lines) == 8 else []

    for one in until("all have told", told):
        words = one.partition("cards ")[2].split()
        host = pools.nodes("shares")[f"t-{words[2].rsplit('-', 1)[-1]}"]["host"]
        held.setdefault(host, []).extend(words[0].split(","))
    assert {host: sorted(cards) for host, cards in held.items()} == {
        f"cards-{number}": [str(card) for card in range(8)] for number in range(4)
    }
    pools.argosy("cancel", "shares", "--now").good()

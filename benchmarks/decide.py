"""How long one decision takes, for groups of 10, 100 and 5,000 nodes.

    python benchmarks/decide.py [--rounds 30]

"quiet": everything is as the record says. "news": one node reports that it became RUNNING. The
others stand once in a gang's life, and something changes for each of its nodes: "acquire", the
plan is there, and every node gets its lease; "create", all capacity is there, and every node gets
its first attempt; "start", all are READY and the barrier opens; "runs", all say that they run;
"end", all have succeeded; "cancel", the user ends what runs. Milliseconds of CPU time: the best
round, which others on the machine disturb least, the median, and the middle half. Budgets, of the
median: 0.2 ms for 10 nodes, 1.5 ms for 100, 80 ms for 5,000; near linear.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from argosy.decide.decide import decide
from argosy.model.group import Group, Outcome, Stage
from argosy.model.observed import Look, Observed
from argosy.testing.builders import (
    LIMITS,
    NOW,
    a_group,
    a_plan,
    a_running_group,
    a_task,
    an_intent,
    an_observed,
    seen_lease,
    well,
)

BUDGET_MS = {10: 0.2, 100: 1.5, 5000: 80.0}
MARGIN = 1.5  # a budget that is missed by more fails
TASKS = 5


def quiet(nodes: int) -> tuple[Group, Observed]:
    """Nothing is new."""
    group = decide_once(a_running_group(*tasks(nodes)))
    return group, well(group).observed()


def news(nodes: int) -> tuple[Group, Observed]:
    """One node is one stage further than its record."""
    group = decide_once(a_running_group(*tasks(nodes), stage=Stage.READY))
    return group, well(group).saying("task0-0", Stage.RUNNING).observed()


def acquire(nodes: int) -> tuple[Group, Observed]:
    """The planner has answered, and nothing was asked for yet."""
    group = decide(a_group(*tasks(nodes)), an_observed(), NOW, LIMITS).group
    return group, an_observed(answer=a_plan(group))


def create(nodes: int) -> tuple[Group, Observed]:
    """The capacity of every node was seen, and nothing runs there yet."""
    group = decide(*acquire(nodes), NOW, LIMITS).group
    seen = tuple(seen_lease(lease) for lease in group.leases)
    return group, an_observed(looks=[Look("local", NOW, seen)])


def end(nodes: int) -> tuple[Group, Observed]:
    """Every program has ended well, and nobody has heard of it."""
    group = decide_once(a_running_group(*tasks(nodes)))
    seen = well(group).observed()
    return group, saying(seen, stage=Stage.ENDED, outcome=Outcome.SUCCEEDED, exit_code=0)


def start(nodes: int) -> tuple[Group, Observed]:
    """Every node is READY, and nothing has started."""
    group = a_running_group(*tasks(nodes), stage=Stage.READY)
    return group, well(group).observed()


def runs(nodes: int) -> tuple[Group, Observed]:
    """Every program was told to start, and its agent says that it runs."""
    group = decide(*start(nodes), NOW, LIMITS).group
    return group, saying(well(group).observed(), stage=Stage.RUNNING, healthy=True)


def cancel(nodes: int) -> tuple[Group, Observed]:
    """Everything runs, and the user has had enough."""
    group = decide_once(a_running_group(*tasks(nodes)))
    return replace(group, intents=(an_intent(),)), well(group).observed()


CASES: dict[str, Callable[[int], tuple[Group, Observed]]] = {
    "quiet": quiet,
    "news": news,
    "acquire": acquire,
    "create": create,
    "start": start,
    "runs": runs,
    "end": end,
    "cancel": cancel,
}


def tasks(nodes: int) -> list:  # type: ignore[type-arg]
    """Five tasks that share the nodes."""
    return [a_task(f"task{index}", nodes // TASKS) for index in range(TASKS)]


def saying(seen: Observed, **facts: Any) -> Observed:
    """The same, but every agent says that of its attempts."""
    reports = {
        lease: replace(report, attempts=tuple(replace(one, **facts) for one in report.attempts))
        for lease, report in seen.reports.items()
    }
    return replace(seen, reports=reports)


def decide_once(group: Group) -> Group:
    """The record after one decision, so that what is derived once is there."""
    return decide(group, well(group).observed(), NOW, LIMITS).group


def measured(group: Group, seen: Observed, rounds: int) -> list[float]:
    """Milliseconds of CPU time for each round; small groups are repeated within a round."""
    repeat = max(1, 2000 // len(group.nodes))
    found = []
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(repeat):
            decide(group, seen, NOW, LIMITS)
        found.append((time.process_time() - began) / repeat * 1000.0)
    gc.enable()
    return found


def main() -> int:
    """Print the table; 1 when a budget is missed by more than the margin."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    missed = 0
    print(f"{'nodes':>6} {'case':8} {'best ms':>8} {'median':>8} {'middle half':>16} {'budget':>7}")
    for nodes, budget in BUDGET_MS.items():
        for name, case in CASES.items():
            group, seen = case(nodes)
            found = measured(group, seen, rounds if nodes <= 100 else max(5, rounds // 5))
            median = statistics.median(found)
            low, _, high = statistics.quantiles(found, n=4)
            over = median > budget * MARGIN
            missed += over
            spread = f"{low:.3f}-{high:.3f}"
            print(
                f"{nodes:6d} {name:8} {min(found):8.3f} {median:8.3f} {spread:>16} {budget:7g}"
                f"{'  MISSED' if over else ''}",
                flush=True,
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

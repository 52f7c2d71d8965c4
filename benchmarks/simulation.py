"""How many decisions a second the simulated world makes, over all cores.

    python benchmarks/simulation.py [--seeds 200]

Budgets: 6,000 decisions a second on two cores; 1,000 seeds of 250 decisions or more in 2 minutes.
"per core" is by CPU time, whoever else uses the machine; "in all" is that times the cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from argosy.testing.sim import run_seed

BUDGET = 3000.0  # decisions a second and core
MARGIN = 1.5  # a budget that is missed by more fails


def timed(seed: int) -> tuple[int, float, float]:
    """Decisions, CPU seconds and simulated seconds of one seed."""
    began = time.process_time()
    result = run_seed(seed, fast=True)
    assert not result.wrong, result.wrong
    return result.decisions, time.process_time() - began, result.seconds


def main() -> int:
    """Print the figures; 1 when the budget is missed by more than the margin."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    seeds = parser.parse_args().seeds
    cores = os.cpu_count() or 1
    began = time.perf_counter()
    with ProcessPoolExecutor(cores) as pool:
        rows = list(pool.map(timed, range(seeds), chunksize=5))
    wall = time.perf_counter() - began
    decisions = sum(row[0] for row in rows)
    per_core = decisions / sum(row[1] for row in rows)
    each = sorted(row[0] / row[1] for row in rows)
    hours = sum(row[2] for row in rows) / 3600.0
    print(f"{seeds} seeds, {decisions} decisions, {hours:.1f} simulated hours in {wall:.1f} s")
    low, high = each[len(each) // 4], each[len(each) * 3 // 4]
    print(f"per core {per_core:,.0f} decisions/s (middle half of the seeds {low:,.0f}-{high:,.0f})")
    in_all = f"{per_core * cores:,.0f} decisions/s on {cores} cores"
    print(f"in all   {in_all}; budget {BUDGET * cores:,.0f}")
    print(f"by the clock {decisions / wall:,.0f} decisions/s; mean {decisions / seeds:.0f} a seed")
    missed = per_core * MARGIN < BUDGET
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

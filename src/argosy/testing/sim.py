"""`python -m argosy.testing.sim --seed N`: replays one seed of the simulated world, in words."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, field

from argosy.testing.invariants import Violation
from argosy.testing.scenario import HORIZON, drawn_world

TICKS = HORIZON + 60.0  # seconds with faults


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one seed."""

    seed: int
    wrong: str  # "": nothing
    decisions: int
    seconds: float  # of simulated time
    strikes: Counter[str] = field(default_factory=Counter)
    story: str = ""  # told only when something is wrong, or when asked for


def run_seed(seed: int, *, ticks: float = TICKS, fast: bool = False, story: bool = False) -> Result:
    """Run a seed: `ticks` seconds of faults, then the liveness phase. Never raises Violation.

    `fast`: the same decision is made twice only now and then.
    """
    world = drawn_world(seed, fast=fast)
    wrong = ""
    try:
        world.run(ticks)
        world.settle()
    except Violation as error:
        wrong = str(error)
    except Exception as error:  # the story of a crash is wanted too
        world.say("world", "{}: {}", type(error).__name__, error)
        error.add_note(replay(seed, ticks))
        error.add_note(world.story.told())
        raise
    told = world.story.told() if wrong or story else ""
    return Result(seed, wrong, world.server.decisions, world.active, world.strikes, told)


def replay(seed: int, ticks: float = TICKS) -> str:
    """The command that shows this seed again."""
    return f"python -m argosy.testing.sim --seed {seed} --ticks {ticks:g} --story"


def main(argv: list[str] | None = None) -> int:
    """The command line; 1 when something that never may happen did."""
    parser = argparse.ArgumentParser(prog="python -m argosy.testing.sim", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seeds", type=int, default=1, help="so many, from --seed on")
    parser.add_argument("--ticks", type=float, default=TICKS, help="seconds with faults")
    parser.add_argument("--story", action="store_true", help="tell it, also when all is well")
    asked = parser.parse_args(argv)
    failed = 0
    strikes: Counter[str] = Counter()
    decisions = 0
    for seed in range(asked.seed, asked.seed + asked.seeds):
        result = run_seed(seed, ticks=asked.ticks, story=asked.story)
        strikes += result.strikes
        decisions += result.decisions
        if result.story and (asked.seeds == 1 or asked.story):
            print(result.story)
        if result.wrong:
            failed += 1
            print(f"seed {seed}: {result.wrong}\n  {replay(seed, asked.ticks)}")
    print(f"{asked.seeds} seeds, {decisions} decisions, {failed} failed")
    print("faults:", ", ".join(f"{name} {count}" for name, count in sorted(strikes.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

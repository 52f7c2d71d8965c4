"""The pure parts: deciding, planning, and the simulated world. CPU time, whoever else is busy.

    python benchmarks/thinking.py [--quick]

`decide.py` and `simulation.py` beside this print more about theirs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import decide
import simulation
from argosy.model.action import Replan
from argosy.model.ids import Serial
from argosy.model.needs import Accelerator, Capacity, Need
from argosy.model.plan import Offer, Plan
from argosy.model.spec import GroupSpec, TaskSpec
from argosy.plan.planner import plan
from measure import Budget, Options, Row, Spread, alone, load

HOSTS = 16
H100 = Accelerator("H100", 8)
BUDGET_PLAN = Budget(">= 500 groups/s", least=500.0)
BUDGET_SIMULATED = Budget(">= 3,000/s and core", least=3000.0)


def deciding(options: Options) -> Iterator[Row]:
    """One decision about 10, 100 and 5,000 nodes: nothing or one thing is new, or something is
    for every node."""
    for nodes, most in decide.BUDGET_MS.items():
        for name, case in decide.CASES.items():
            group, seen = case(nodes)
            rounds = options.rounds(30 if nodes <= 100 else 6)
            found = Spread(tuple(decide.measured(group, seen, rounds)))
            budget = Budget(f"<= {most:g} ms", most)
            yield Row(f"decide, {nodes:,} nodes, {name}", found, "ms", budget, {}, load())


def planning(options: Options) -> Iterator[Row]:
    """Groups of five tasks and seven nodes on a pool of hosts with cards."""
    card = (H100,)
    spec = GroupSpec(
        "planned",
        (
            TaskSpec("trainer", num_nodes=2, needs=(Need(cpus=8, accelerators=card),)),
            TaskSpec("rollout", num_nodes=2, needs=(Need(cpus=8, accelerators=card),)),
            TaskSpec("reward", needs=(Need(cpus=4),)),
            TaskSpec("replay", needs=(Need(cpus=4, memory_gib=32),)),
            TaskSpec("data", needs=(Need(cpus=2),)),
        ),
    )
    room = Capacity(64.0, 512.0, card)
    offers = [Offer("local/rack", f"rack-{number}", room, room) for number in range(HOSTS)]
    request = Replan(Serial(1, 1), tuple(spec.nodes()), ())
    values = []
    for _ in range(options.rounds(12)):
        began = time.process_time()
        for _ in range(50):
            if not isinstance(plan(request, spec, offers, 100.0), Plan):
                raise RuntimeError("no plan was found")
        values.append(50 / (time.process_time() - began))
    what = f"planning, 7 nodes on {HOSTS} hosts"
    yield Row(what, Spread(tuple(values)), "groups/s", BUDGET_PLAN, {}, load())


def simulated(options: Options) -> Iterator[Row]:
    """Decisions a second and core, of seeds with all faults."""
    with ProcessPoolExecutor(2) as pool:
        rows = list(pool.map(simulation.timed, range(options.rounds(60)), chunksize=5))
    each = Spread(tuple(row[0] / row[1] for row in rows))
    mean = sum(row[0] for row in rows) / len(rows)
    note = f"{mean:.0f} decisions a seed"
    yield Row("simulated decisions", each, "/s and core", BUDGET_SIMULATED, {}, load(), note=note)


LINES = (deciding, planning, simulated)

if __name__ == "__main__":
    alone(LINES, __doc__)

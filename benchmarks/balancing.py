"""The balanced address as rows of the table: `balanced_address.py` measures it, and prints more.

python benchmarks/balancing.py [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import balanced_address
from measure import Budget, Options, Row, Spread, alone, load

DIRECT = "direct connection"
BUDGETS = {
    "kept": Budget(">= 5,000/s a core", least=5000.0),
    "new": Budget(">= 1,000/s a core", least=1000.0),
}
NAMES = {"kept": "kept connections", "new": "a new connection each"}


def balanced(options: Options) -> Iterator[Row]:
    """Requests of 1 KiB through the proxy, per core of CPU time, in both networks."""
    args = argparse.Namespace(seconds=1.0, rounds=options.rounds(5), port=18431)
    for mode in ("host", "isolated"):
        for found in balanced_address.measured(mode, args):
            ours = Spread(tuple(1e6 / cost for cost in found.cost))
            beside = {
                DIRECT: Spread(tuple(found.direct)),
                "through the proxy by the clock": Spread(tuple(found.through)),
            }
            what = f"balanced address, {NAMES[found.kind]}, {mode} network"
            yield Row(what, ours, "/s a core", BUDGETS[found.kind], beside, load())


LINES = (balanced,)

if __name__ == "__main__":
    alone(LINES, __doc__)

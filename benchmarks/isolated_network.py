"""How long the isolated network of a group takes: to build, to start attempts in, to end.

    python benchmarks/isolated_network.py [--rounds 5] [--nodes 5 100]

"Attempts" are forks that enter their node and execute `true`, started one after the other and
waited for together; "plain" are the same without entering anything, in the same run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from argosy.agent.net import enter, isolated, names, trial
from argosy.agent.net.network import NetworkError

COLUMNS = ("build", "attempts", "plain", "destroy")


def start(spec: dict[str, Any] | None, writer: int) -> int:
    """Fork a wrapper that forks a program; the pipe's write end closes when both have ended."""
    child = os.fork()
    if child:
        return child
    try:
        if spec is not None and spec["join"]:
            enter.join(*spec["join"])
        program = os.fork()
        if program == 0:
            if spec is not None:
                enter.enter(spec)
            os.execv("/bin/true", ["true"])
        os.waitpid(program, 0)
    finally:
        os._exit(0)


def run_all(specs: list[dict[str, Any] | None]) -> float:
    """Seconds until all programs have run."""
    began = time.perf_counter()
    reader, writer = os.pipe()
    children = [start(spec, writer) for spec in specs]
    os.close(writer)
    for child in children:
        os.waitpid(child, 0)
    os.read(reader, 1)  # end-of-file: no wrapper is left
    os.close(reader)
    return time.perf_counter() - began


def one_round(nodes: int, way_out: bool) -> list[float]:
    """Seconds for each column."""
    with tempfile.TemporaryDirectory() as folder:
        labels = [f"n-{number}" for number in range(nodes)]
        began = time.perf_counter()
        mark = f"bench-{os.getpid()}"
        network = isolated.build(folder + "/net", mark, labels, way_out=way_out)
        names.rewrite(network.hosts, names.compose("bench", network))
        built = time.perf_counter() - began
        try:
            specs = [isolated.enter_attempt(network, label, label + ".bench") for label in labels]
            attempts = run_all([*specs])
            plain = run_all([None] * nodes)
        finally:
            began = time.perf_counter()
            isolated.destroy(network.record())
            destroyed = time.perf_counter() - began
    return [built, attempts, plain, destroyed]


def main() -> int:
    """Print medians and spread in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, nargs="+", default=[5, 100])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        answer = trial.trial(folder, "isolated")
        if answer["mode"] != "isolated":
            print(NetworkError(answer["failed_step"], answer["reason"]), answer["hint"])
            return 1
    print(f"{'nodes':<8}" + "".join(f"{name + ' ms':>22}" for name in COLUMNS))
    for nodes in args.nodes:
        rounds = [one_round(nodes, answer["way_out"]) for _ in range(args.rounds)]
        cells = [sorted(1000 * value for value in column) for column in zip(*rounds)]
        texts = [f"{statistics.median(c):.0f} ({c[0]:.0f}-{c[-1]:.0f})" for c in cells]
        print(f"{nodes:<8}" + "".join(f"{text:>22}" for text in texts))
    return 0


if __name__ == "__main__":
    sys.exit(main())

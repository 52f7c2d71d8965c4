"""Whole commands, from the fork to the exit: time and memory, beside a bare Python of the same run.

python benchmarks/commands.py [--quick] [--no-ray]
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from home import ARGOSY, Home, group_text
from marks import Marks, now
from measure import ROOT, Budget, Options, Ratio, Row, Spread, alone, interleaved, load
from peers import BIN

BARE = "bare Python"
NULL = subprocess.DEVNULL
QUIET: dict[str, Any] = {"stdin": NULL, "stdout": NULL, "stderr": NULL}
VALIDATED = ROOT / "examples" / "rlhf-five-tasks.yaml"
BUDGET_MEMORY = Budget("<= 45 MiB", 45.0)
BUDGETS = {
    "argosy --help": Budget("<= 120 ms; <= 8x bare Python", 120.0, ratio=Ratio(BARE, 8.0)),
    "argosy status": Budget("<= 250 ms; <= 16x bare Python", 250.0, ratio=Ratio(BARE, 16.0)),
    "argosy status GROUP": Budget("<= 250 ms; <= 16x bare Python", 250.0, ratio=Ratio(BARE, 16.0)),
    "argosy validate": Budget("<= 250 ms; <= 16x bare Python", 250.0, ratio=Ratio(BARE, 16.0)),
}


def commands(options: Options) -> Iterator[Row]:
    """`--help`, `status` of all and of one group, `validate` of five tasks."""
    with Home() as home:
        marks = Marks(home.folder)
        group = home.launch(home.file("shown", group_text("shown", marks)))
        home.running(group)
        lines = {
            "argosy --help": [*ARGOSY, "--help"],
            "argosy status": [*ARGOSY, "status"],
            "argosy status GROUP": [*ARGOSY, "status", "shown"],
            "argosy validate": [*ARGOSY, "validate", str(VALIDATED)],
            BARE: [sys.executable, "-c", "pass"],
            "honcho version": [str(BIN / "honcho"), "version"],
            "supervisord --version": [str(BIN / "supervisord"), "--version"],
        }
        timed = {name: partial(_seconds, line, home.env) for name, line in lines.items()}
        # This fills the caches too: bytecode and files are there from here on.
        mib = {name: Spread((_peak_mib(line, home.env),)) for name, line in lines.items()}
        found = interleaved(options.rounds(20), timed)
    beside = {name: one for name, one in found.items() if name not in BUDGETS}
    for name, budget in BUDGETS.items():
        yield Row(f"`{name}`", found[name], "ms", budget, beside, load(), 1000.0)
    others = {name: mib[name] for name in beside}
    for name in BUDGETS:
        yield Row(f"`{name}`: memory", mib[name], "MiB", BUDGET_MEMORY, others, load())


def _seconds(line: list[str], env: dict[str, str]) -> float:
    """From the fork to the exit of a command whose output goes nowhere."""
    began = now()
    subprocess.run(line, env=env, **QUIET, check=True)
    return now() - began


def _peak_mib(line: list[str], env: dict[str, str]) -> float:
    """Peak memory of a command, asked by a small process: who forks lends its own peak."""
    asks = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True,"
    asks += " stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL);"
    asks += " print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    command = [sys.executable, "-I", "-S", "-c", asks, *line]
    said = subprocess.run(command, env=env, capture_output=True, check=True).stdout
    return int(said) / 1024.0


LINES = (commands,)

if __name__ == "__main__":
    alone(LINES, __doc__)

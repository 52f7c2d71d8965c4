"""Whole commands, from the fork to the exit: time and memory, beside a bare Python of the same run.

python benchmarks/commands.py [--quick] [--no-ray]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial

from home import ARGOSY, Home, group_text
from marks import Marks, now
from measure import ROOT, Budget, Options, Ratio, Row, Spread, alone, interleaved, load
from peers import BIN

BARE = "bare Python"
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
        kib: dict[str, int] = {}
        timed = {name: partial(_run, name, line, home.env, kib) for name, line in lines.items()}
        for one in timed.values():
            one()  # bytecode and disk cache are there from here on
        found = interleaved(options.rounds(20), timed)
    beside = {name: one for name, one in found.items() if name not in BUDGETS}
    for name, budget in BUDGETS.items():
        yield Row(f"`{name}`", found[name], "ms", budget, beside, load(), 1000.0)
    ours = Spread(tuple(kib[name] / 1024.0 for name in BUDGETS))
    others = {name: Spread((kib[name] / 1024.0,)) for name in beside}
    yield Row("memory of these commands", ours, "MiB", BUDGET_MEMORY, others, load())


def _run(name: str, line: list[str], env: dict[str, str], kib: dict[str, int]) -> float:
    """Seconds of a command whose output goes nowhere; its peak memory goes into `kib`."""
    null = os.open(os.devnull, os.O_RDWR)
    began = now()
    pid = os.posix_spawn(
        line[0], line, env, file_actions=[(os.POSIX_SPAWN_DUP2, null, n) for n in (0, 1, 2)]
    )
    _, status, usage = os.wait4(pid, 0)
    took = now() - began
    os.close(null)
    if os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError(f"{' '.join(line)} exited with {os.waitstatus_to_exitcode(status)}")
    kib[name] = max(kib.get(name, 0), usage.ru_maxrss)
    return took


LINES = (commands,)

if __name__ == "__main__":
    alone(LINES, __doc__)

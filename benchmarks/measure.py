"""What every benchmark shares: rounds that interleave ours and the peers, spreads, rows, one table.

A figure is only worth something beside another one of the same minute: each round measures each
contestant once, in an order that turns, and a row says the load of the machine while it was made.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
COLUMNS: Final = (
    "what", "figure", "spread", "peers in the same run", "ratio", "budget", "verdict", "load",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spread:
    """Some measurements of one thing, all in one unit."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle."""
        return statistics.median(self.values)

    @property
    def p99(self) -> float:
        """Nearest rank; with fewer than 100 values it is the worst."""
        ranked = sorted(self.values)
        return ranked[min(len(ranked) - 1, -(-99 * len(ranked) // 100) - 1)]

    def text(self, scale: float = 1.0) -> str:
        """`min-max, p99 N, n=20`."""
        low, high = number(scale * min(self.values)), number(scale * max(self.values))
        return f"{low}-{high}, p99 {number(scale * self.p99)}, n={len(self.values)}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """Our median against a peer's of the same run: the only kind of budget that fails a run."""

    to: str  # the peer
    at_most: float
    margin: float = 1.5  # the run fails beyond `at_most` times this


@dataclass(frozen=True, slots=True)
class Budget:
    """A guide in absolute terms, and the ratio that binds. `least`: larger is better."""

    text: str
    at_most: float | None = None
    p99: float | None = None
    least: float | None = None
    ratio: Ratio | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; `scale` turns the measured unit into the one that is shown."""

    what: str
    ours: Spread
    unit: str
    budget: Budget
    peers: Mapping[str, Spread]
    load: str
    scale: float = 1.0
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours to the peer's; larger is worse, also where larger figures are better."""
        wanted = self.budget.ratio
        if wanted is None or wanted.to not in self.peers:
            return None
        ours, peer = self.ours.median, self.peers[wanted.to].median
        larger, smaller = (peer, ours) if self.budget.least is not None else (ours, peer)
        return larger / smaller if smaller else float("inf")

    @property
    def failed(self) -> bool:
        """A ratio was missed by more than its margin."""
        wanted, ratio = self.budget.ratio, self.ratio
        return wanted is not None and ratio is not None and ratio > wanted.at_most * wanted.margin

    @property
    def verdict(self) -> str:
        """In words."""
        if self.failed:
            return "**FAILED**"
        missed = self._missed()
        if self.budget.text == "none":
            return "for comparison"
        return "missed: " + ", ".join(missed) if missed else "held"

    def _missed(self) -> list[str]:
        budget, shown = self.budget, self.scale * self.ours.median
        found = []
        if budget.at_most is not None and shown > budget.at_most:
            found.append("figure")
        if budget.p99 is not None and self.scale * self.ours.p99 > budget.p99:
            found.append("p99")
        if budget.least is not None and shown < budget.least:
            found.append("figure")
        if budget.ratio is not None and (self.ratio or 0.0) > budget.ratio.at_most:
            found.append("ratio")
        return found

    def cells(self) -> tuple[str, ...]:
        """As the table shows them."""
        wanted = self.budget.ratio
        ratio = ""
        if wanted is not None and self.ratio is not None:
            ratio = f"{self.ratio:.2g}x {wanted.to} (<= {wanted.at_most:g}x)"
        peers = "; ".join(
            f"{name} {number(self.scale * one.median)}" for name, one in self.peers.items()
        )
        figure = f"{number(self.scale * self.ours.median)} {self.unit}"
        note = f" ({self.note})" if self.note else ""
        spread = self.ours.text(self.scale)
        return (
            self.what + note, figure, spread, peers, ratio, self.budget.text, self.verdict,
            self.load,
        )  # fmt: skip


def number(value: float) -> str:
    """Three digits that mean something: `12,300`, `41`, `0.38`."""
    if value >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def load() -> str:
    """The load average of the last minute, when asked."""
    return f"{os.getloadavg()[0]:.1f}"


def interleaved(rounds: int, contestants: Mapping[str, Callable[[], float]]) -> dict[str, Spread]:
    """Each contestant measured once in each round, in an order that turns."""
    names = list(contestants)
    found: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            found[name].append(contestants[name]())
    return {name: Spread(tuple(values)) for name, values in found.items()}


def table(rows: Sequence[Row]) -> str:
    """All rows in Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in rows]
    return "\n".join(lines)


def say(text: str) -> None:
    """What goes on, for whoever waits."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    quick: bool = False
    ray: bool = True

    def rounds(self, usual: int) -> int:
        """So many, or a quarter of it when it must be quick; two at least."""
        return max(2, usual // 4) if self.quick else usual


Line = Callable[[Options], Iterator[Row]]


def parsed(parser: argparse.ArgumentParser, words: Sequence[str] | None = None) -> Any:
    """The command line with what every benchmark takes."""
    parser.add_argument("--quick", action="store_true", help="a quarter of the rounds")
    parser.add_argument("--no-ray", action="store_true", help="without Ray, which is large")
    return parser.parse_args(words)


def alone(lines: Sequence[Line], doc: str | None) -> None:
    """Run the lines of one script and print their table; exits 1 when a ratio failed."""
    import peers

    asked = parsed(argparse.ArgumentParser(description=doc))
    options = Options(asked.quick, not asked.no_ray)
    peers.ensure(ray=options.ray)
    rows = [row for line in lines for row in line(options)]
    print(table(rows))
    sys.exit(any(row.failed for row in rows))

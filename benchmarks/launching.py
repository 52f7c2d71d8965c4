"""How long a group takes from the request to its last marker: five programs, the first launch of
all, a hundred nodes; in both networks, beside bare Popen, supervisord, honcho and Ray Jobs.

    python benchmarks/launching.py [--quick] [--no-ray]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import peers
from home import Home, group_text
from marks import FIVE, Marks, ShellMarks, now
from measure import Budget, Options, Ratio, Row, Spread, alone, interleaved, load

NETWORKS = ("host", "isolated")
HUNDRED = tuple(f"node{number}" for number in range(100))
BUDGET_FIVE = Budget("p50 <= 120 ms, p99 <= 300 ms; <= 3x bare Popen", 120.0, 300.0,
                     ratio=Ratio("bare Popen", 3.0, margin=2.0))  # fmt: skip
BUDGET_FIRST = Budget("<= 1.5 s", 1.5)
BUDGETS_HUNDRED = {
    # The ratio is that of the budget itself: 1.0 s where a bare Popen took 0.25 s.
    "launch": Budget("<= 1.0 s; <= 4x bare Popen", 1.0, ratio=Ratio("bare Popen", 4.0, 1.5)),
    "stop": Budget("<= 1.0 s", 1.0),
}
BUDGETS_INTERPRETERS = {
    "launch": Budget("<= 2x bare Popen", ratio=Ratio("bare Popen", 2.0, 1.5)),
    "stop": Budget("<= 1.0 s", 1.0),
}


def launched(
    home: Home, network: str, names: tuple[str, ...], kind: type[Marks] = Marks
) -> tuple[float, float]:
    """Seconds from the request to the last marker, and from `cancel` to the group's end."""
    marks = kind(home.folder, names)
    file = home.file("group", group_text("group", marks))
    began = now()
    group = home.launch(file, network=network)
    took = marks.last() - began
    home.running(group)
    return took, home.end(group)


def five(options: Options) -> Iterator[Row]:
    """The group that is used everywhere, on a warm server."""
    with ExitStack() as stack:
        home = stack.enter_context(Home())
        watched = stack.enter_context(closing(peers.Supervisord(home.folder, FIVE)))
        contestants: dict[str, Callable[[], float]] = {
            network: (lambda network=network: launched(home, network, FIVE)[0])
            for network in NETWORKS
        }
        contestants["bare Popen"] = lambda: peers.popen(home.folder, FIVE)[0]
        contestants["supervisord"] = watched.once
        contestants["honcho"] = lambda: peers.honcho(home.folder, FIVE)
        for contestant in contestants.values():
            contestant()  # warm
        found = interleaved(options.rounds(25), contestants)
    if options.ray:
        found["Ray Jobs"] = ray_five(options)
    beside = {name: one for name, one in found.items() if name not in NETWORKS}
    for network in NETWORKS:
        what = f"group of 5, warm, {network} network"
        yield Row(what, found[network], "ms", BUDGET_FIVE, beside, load(), 1000.0)


@functools.cache
def ray_five(options: Options) -> Spread:
    """The same five as Ray jobs; apart from the others, whom its processes would disturb."""
    with Home() as home, closing(peers.Ray(home.folder)) as ray:
        ray.once(FIVE)
        return Spread(tuple(ray.once(FIVE) for _ in range(3)))


def first(options: Options) -> Iterator[Row]:
    """The first launch of all: a new home, no server, no agent."""
    values = []
    for _ in range(options.rounds(5)):
        with Home() as home:
            marks = Marks(home.folder)
            file = home.file("group", group_text("group", marks))
            began = now()
            home.launch(file)
            values.append(marks.last() - began)
    yield Row("first launch on a fresh home", Spread(tuple(values)), "s", BUDGET_FIRST, {}, load())


def hundred(options: Options) -> Iterator[Row]:
    """A hundred nodes whose programs are shells: launch, and stop."""
    yield from _hundred(options, ShellMarks, "", BUDGETS_HUNDRED)


def hundred_interpreters(options: Options) -> Iterator[Row]:
    """A hundred nodes whose programs are Python's, most of which is the start of the programs."""
    yield from _hundred(options, Marks, " of Python", BUDGETS_INTERPRETERS)


def _hundred(
    options: Options, kind: type[Marks], of: str, budgets: dict[str, Budget]
) -> Iterator[Row]:
    found: dict[str, list[tuple[float, float]]] = {}
    with Home() as home, closing(peers.Supervisord(home.folder, HUNDRED, kind)) as watched:
        contestants: dict[str, Callable[[], tuple[float, float]]] = {
            "host": lambda: launched(home, "host", HUNDRED, kind),
            "isolated": lambda: launched(home, "isolated", HUNDRED, kind),
            "bare Popen": lambda: peers.popen(home.folder, HUNDRED, kind),
            "supervisord": lambda: (watched.start(), watched.stop()),
        }
        launched(home, "host", FIVE)
        for _ in range(options.rounds(5)):
            for name, contestant in contestants.items():
                found.setdefault(name, []).append(contestant())
    for place, (what, budget) in enumerate(budgets.items()):
        spreads = {name: Spread(tuple(v[place] for v in values)) for name, values in found.items()}
        beside = {name: one for name, one in spreads.items() if name not in NETWORKS}
        for network in NETWORKS:
            told = f"100 nodes{of}: {what}, {network} network"
            yield Row(told, spreads[network], "s", budget, beside, load())


LINES = (five, first, hundred, hundred_interpreters)

if __name__ == "__main__":
    alone(LINES, __doc__)

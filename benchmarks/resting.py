"""What Argosy costs while nothing happens, and how many groups one server carries.

python benchmarks/resting.py [--quick] [--no-ray]
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import peers
from home import Home, group_text
from marks import FIVE, Marks, now
from measure import Budget, Options, Row, Spread, alone, load
from processes import parent, percent_of_a_core, private_dirty_mib, rss_mib

GROUPS = 5  # that run while costs are taken
MANY = 1000  # groups of the last lines: 5,000 programs
AT_ONCE = 20  # of them that are on their way at the same time
ANSWERS = 1000
SETTLE = 3.0  # seconds until what a launch left to do is done
BUDGET_RSS = Budget("<= 120 MiB", 120.0)
BUDGET_CPU = Budget("<= 0.3 % of a core", 0.3)
BUDGET_AGENT_RSS = Budget("<= 32 MiB", 32.0)
BUDGET_AGENT_CPU = Budget("<= 0.2 % of a core", 0.2)
BUDGET_DIRTY = Budget("<= 0.2 MiB each", 0.2)
BUDGET_API = Budget("p99 <= 50 ms", p99=50.0)
BUDGET_GROUPS = Budget("1,000 groups in < 500 MiB", 500.0)


def idle(options: Options) -> Iterator[Row]:
    """Server and agent, with no group and with some that run."""
    rounds, seconds = options.rounds(4), 5.0
    with Home() as home, closing(peers.Supervisord(home.folder, FIVE)) as watched:
        beside = _peer(watched, rounds, seconds)
        home.client.ensure_server()
        server = home.client.server().pid
        time.sleep(SETTLE)
        none = _spread([percent_of_a_core([server], seconds) for _ in range(rounds)])
        yield _row("server idle, no group: CPU", none, "%", BUDGET_CPU, beside["cpu"])
        yield _row(
            "server idle, no group: memory", _spread([rss_mib(server)]), "MiB", BUDGET_RSS,
            beside["rss"],
        )  # fmt: skip
        all_marks = [_launched(home, number) for number in range(GROUPS)]
        agent = home.agents()[0]
        time.sleep(SETTLE)
        used = [
            (percent_of_a_core([server], seconds), percent_of_a_core([agent], seconds))
            for _ in range(rounds)
        ]
        told = f"{GROUPS} groups run"
        yield _row(f"server, {told}: CPU", _spread([one for one, _ in used]), "%", BUDGET_CPU)
        yield _row(f"server, {told}: memory", _spread([rss_mib(server)]), "MiB", BUDGET_RSS)
        cpu = _spread([one for _, one in used])
        yield _row(f"agent, {told}: CPU", cpu, "%", BUDGET_AGENT_CPU, beside["cpu"])
        rss = _spread([rss_mib(agent)])
        yield _row(f"agent, {told}: memory", rss, "MiB", BUDGET_AGENT_RSS, beside["rss"])
        all_marks.append(_launched(home, GROUPS, "host"))
        for network, marks in zip(("isolated", "host"), all_marks[-2:]):
            dirty = _spread([private_dirty_mib(parent(marks.pid(name))) for name in FIVE])
            what = f"per supervised process: private dirty, {network} network"
            yield _row(what, dirty, "MiB", BUDGET_DIRTY)


def _launched(home: Home, number: int, network: str = "isolated") -> Marks:
    marks = Marks(home.folder)
    file = home.file("group", group_text(f"group-{number}", marks))
    group = home.launch(file, network=network)
    marks.read()
    home.running(group)
    return marks


def _peer(watched: peers.Supervisord, rounds: int, seconds: float) -> dict[str, dict[str, Spread]]:
    watched.start()
    pid = watched.process.pid
    cpu = _spread([percent_of_a_core([pid], seconds) for _ in range(rounds)])
    found = {"cpu": {"supervisord": cpu}, "rss": {"supervisord": _spread([rss_mib(pid)])}}
    watched.stop()
    return found


def ray(options: Options) -> Iterator[Row]:
    """An idle Ray head, for comparison: it has no line in the budgets."""
    if not options.ray:
        return
    with Home() as home, closing(peers.Ray(home.folder)) as head:
        time.sleep(SETTLE)
        pids = head.processes()
        cpu = _spread([percent_of_a_core(head.processes(), 5.0) for _ in range(2)])
        yield _row("(peer) Ray head idle: CPU", cpu, "%", Budget("none"))
        rss = _spread([sum(map(rss_mib, pids))])
        yield _row("(peer) Ray head idle: memory", rss, "MiB", Budget("none"))


def many(options: Options) -> Iterator[Row]:
    """A thousand groups of five tasks that run (a quarter when quick); the API's answers."""
    count = options.rounds(MANY)
    text = "execution: parallel\n" + "".join(
        f"---\nname: {name}\nrun: exec sleep 100000\n" for name in FIVE
    )
    with Home() as home:
        home.client.ensure_server()
        server = home.client.server().pid
        groups: list[str] = []
        began = now()
        for number in range(count):
            file = home.file("many", f"name: many-{number}\n{text}")
            groups.append(home.launch(file, network="host"))
            home.running(groups[max(0, number - AT_ONCE)])
        for group in groups[-AT_ONCE:]:
            home.running(group)
        each = (now() - began) / count
        answers = []
        for turn in range(ANSWERS):
            asked = now()
            home.client.group(groups[turn * 7 % count])
            answers.append(now() - asked)
        agent = home.agents()[0]
        used = _spread([percent_of_a_core([server], 10.0)])
        told = f"{count:,} groups of five run"
        yield _row(
            f"{told}: launch of each, {AT_ONCE} at once", _spread([each]), "s", Budget("none")
        )
        yield Row(f"{told}: API answer", _spread(answers), "ms", BUDGET_API, {}, load(), 1000.0)
        yield _row(f"{told}: server memory", _spread([rss_mib(server)]), "MiB", BUDGET_GROUPS)
        yield _row(f"{told}: server CPU", used, "%", Budget("none"))
        yield _row(f"{told}: agent memory", _spread([rss_mib(agent)]), "MiB", Budget("none"))
        for group in groups:
            home.client.cancel(group, now=True)
        for group in groups:
            home.client.wait(group)


def _spread(values: list[float]) -> Spread:
    return Spread(tuple(values))


def _row(
    what: str, ours: Spread, unit: str, budget: Budget, beside: dict[str, Spread] | None = None
) -> Row:
    return Row(what, ours, unit, budget, beside or {}, load())


LINES = (idle, ray, many)

if __name__ == "__main__":
    alone(LINES, __doc__)

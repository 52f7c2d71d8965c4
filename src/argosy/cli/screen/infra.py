"""Infras for people: tables of infras and hosts, offers, strangers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from argosy.cli.screen.paint import Paint
from argosy.cli.screen.table import table
from argosy.views.text import plural, price

INFRA_HEADERS: Final = ("INFRA", "HOSTS", "CPUS", "MEMORY", "ACCELERATORS", "HELD BY", "")
HOST_HEADERS: Final = ("HOST", "STATE", "CPUS", "MEMORY", "ACCELERATORS", "HELD BY")
STRANGER_HEADERS: Final = ("LEASE", "HOST", "STATE", "ISSUED AFTER")
VERDICTS: Final = {
    "now": ("now", "green"), "not-now": ("not now", "yellow"), "never": ("never", "red"),
}  # fmt: skip
UNKNOWN: Final = {True: "no group", False: "another server"}  # `own` of a holder
HOSTS_SHOWN: Final = 20  # of one infra in `offers`
HOLDERS_SHOWN: Final = 4


def check_lines(infra: dict[str, Any], paint: Paint) -> list[str]:
    """One infra: whether it works, its facts, problems and hints, its hosts."""
    facts = dict(infra.get("facts", ()))
    asleep = facts.pop("state", "")  # nobody has asked it yet
    state = asleep or paint("works", "green")
    state = state if infra["works"] else paint("does not work", "red")
    lines = [f"{paint(infra['name'], 'bold')}: {state}"]
    lines += [f"  {key}: {value}" for key, value in facts.items()]
    lines += [f"  {paint('problem:', 'red')} {text}" for text in infra.get("problems", ())]
    lines += [f"  {paint('hint:', 'cyan')} {text}" for text in infra.get("hints", ())]
    return lines + host_lines(infra.get("hosts", ()), paint)


def host_lines(hosts: Sequence[dict[str, Any]], paint: Paint) -> list[str]:
    """The hosts of an infra in a table; what is free of what there is."""
    if not hosts:
        return []
    return [f"  {line}" for line in table(HOST_HEADERS, map(_host_row, hosts), paint)]


def list_lines(infras: Sequence[dict[str, Any]], paint: Paint) -> list[str]:
    """One line an infra; sums over its hosts that are up."""
    lines = table(INFRA_HEADERS, map(_infra_row, infras), paint)
    for infra in infras:
        lines += [f"{paint('hint:', 'cyan')} {text}" for text in infra["hints"]]
    return lines


def offer_lines(found: dict[str, Any], paint: Paint) -> list[str]:
    """Every infra with its verdict, why, who holds what, and how to get it."""
    lines = [f"need: {found['need']}"]
    for one in found["infras"]:
        words, style = VERDICTS[one["verdict"]]
        cost = one["price_per_hour_usd"]
        first, *more = one["text"] or [""]
        end = f", {price(cost)} per hour and node" if cost else ""
        name = paint(one["name"], "bold")
        lines.append(f"{name}: {paint(words, style)}: {first}{end}")
        lines += [f"  {text}" for text in more]
        if one["verdict"] != "never":
            fitting = set(one["fitting"])
            hosts = [host for host in one["hosts"] if not fitting or host["host"] in fitting]
            lines += host_lines(hosts[:HOSTS_SHOWN], paint)
            if len(hosts) > HOSTS_SHOWN:
                lines.append(f"  and {len(hosts) - HOSTS_SHOWN} more hosts")
        lines += [f"  {paint('hint:', 'cyan')} {text}" for text in one["hints"]]
    return lines


def stranger_lines(found: dict[str, Any], paint: Paint) -> list[str]:
    """What belongs to no group, in a table."""
    rows = [
        (one["lease"], one["host"] or "(the whole group)", one["state"], _when(one["since"]))
        for one in found["leases"]
    ]
    return table(STRANGER_HEADERS, rows, paint)


def _infra_row(infra: dict[str, Any]) -> tuple[str, ...]:
    hosts = infra["hosts"]
    up = [host for host in hosts if host["state"] == "up"]
    away = ", ".join(_away(hosts, {one["host"]: one for one in infra["lost"]}))
    free, total = _sum(up, "free"), _sum(hosts, "total")
    return (
        infra["name"],
        f"{len(up)}/{len(hosts)}" if hosts else "",
        _cpus(free[0], total[0]),
        _memory(free[1], total[1]),
        " ".join(f"{name}:{free[2][name]}/{count}" for name, count in total[2].items()),
        _held_by(hosts),
        infra["problem"] or away or ("" if hosts else "not asked yet"),
    )


def _away(hosts: Iterable[dict[str, Any]], lost: dict[str, dict[str, Any]]) -> list[str]:
    """`gpu-3 lost (by ada)`, `gpu-4 unreachable`."""
    found = [f"{host['host']} {host['state']}" for host in hosts if host["state"] != "up"]
    known = {host["host"] for host in hosts}
    found += [f"{name} lost" for name in lost if name not in known]
    if len(found) > HOLDERS_SHOWN:
        return [*found[:HOLDERS_SHOWN], f"{len(found) - HOLDERS_SHOWN} more away"]
    return found


def _sum(hosts: Iterable[dict[str, Any]], what: str) -> tuple[float, float, Counter[str]]:
    cpus = memory = 0.0
    cards: Counter[str] = Counter()
    for host in hosts:
        room = host[what]
        cpus += room.get("cpus", 0.0)
        memory += room.get("memory_gib", 0.0)
        for card in room.get("accelerators", ()):
            cards[card["name"]] += card["count"]
    return cpus, memory, cards


def _held_by(hosts: Iterable[dict[str, Any]]) -> str:
    """`rl (3 nodes), another server (1 node)`."""
    counts: Counter[str] = Counter()
    for host in hosts:
        for one in host["holders"]:
            counts[one["name"] or UNKNOWN[one["own"]]] += one["nodes"]
    shown = [f"{name} ({plural(nodes, 'node')})" for name, nodes in counts.most_common()]
    more = [f"{len(shown) - HOLDERS_SHOWN} more"] if len(shown) > HOLDERS_SHOWN else []
    return ", ".join(shown[:HOLDERS_SHOWN] + more)


def _host_row(host: dict[str, Any]) -> tuple[str, ...]:
    total, free = host.get("total", {}), host.get("free", {})
    cards = [
        f"{one['name']}:{_free(free, one['name'])}/{one['count']}"
        for one in total.get("accelerators", ())
    ]
    return (
        host["host"],
        host.get("state", ""),
        _cpus(free.get("cpus", 0), total.get("cpus", 0)),
        _memory(free.get("memory_gib", 0), total.get("memory_gib", 0)),
        " ".join(cards),
        _held_by([host]),
    )


def _cpus(free: float, total: float) -> str:
    """`2/16`; "" where it is not known what there is."""
    return f"{free:g}/{total:g}" if total else ""


def _memory(free: float, total: float) -> str:
    return f"{free:.0f}/{total:.0f} GiB" if total else ""


def _free(free: dict[str, Any], name: str) -> int:
    return sum(one["count"] for one in free.get("accelerators", ()) if one["name"] == name)


def _when(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M") if at else "unknown"

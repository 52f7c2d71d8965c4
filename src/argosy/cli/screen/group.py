"""A group as lines: one screen of everything, a few lines of progress, a row in a list."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Final

from argosy.cli.screen.paint import Paint
from argosy.cli.screen.table import table
from argosy.views.closing import next_steps, summary
from argosy.views.shapes import GroupRow, NodeView, Overview, ReasonView, SpentView, TaskView
from argosy.views.text import duration, ending, plural, price, signal_name, size

PROGRESS_TASKS_MOST = 12
NAMED_MOST = 6  # that wait for one cause
NODE_HEADERS = (
    "NODE", "PHASE", "FOR", "ATTEMPT", "INFRA", "HOST", "ADDRESS", "CPU", "MEMORY", "ENDED",
    "REASON",
)  # fmt: skip
FILES: Final = re.compile(r"waits for its files: (\d+) % of (.+)")  # as an agent says it
BAR: Final = 24  # cells
LIST_HEADERS = ("NAME", "PHASE", "TASKS", "AGE", "RESTARTS", "INFRA", "CAUSE", "ID")


def group_lines(view: Overview, paint: Paint, columns: int = 0) -> list[str]:
    """One group on a screen: its state, its nodes, why it waits, what would help."""
    lines = [_head(view, paint), f"  {_facts(view)}", ""]
    rows = [_node_row(view, task, node, paint) for task in view.tasks for node in task.nodes]
    lines += table(NODE_HEADERS, rows, paint, columns)
    balanced = [address for task in view.tasks for address in task.balanced]
    if balanced:
        lines += ["", "balanced: " + ", ".join(balanced)]
    if view.restarts_spent:
        lines += ["", "restarts spent: " + ", ".join(map(_spent, view.restarts_spent))]
    if view.reasons:
        lines += ["", *reason_lines(view.reasons, paint)]
    if view.unreachable:
        lines += ["", "may still hold something: " + ", ".join(view.unreachable)]
    lines += [f"{paint('hint:', 'cyan')} {hint}" for hint in next_steps(view)]
    return lines


def list_lines(rows: Iterable[GroupRow], paint: Paint, columns: int = 0) -> list[str]:
    """Groups, one a line."""
    body = [
        (
            paint(one.name, "bold"),
            paint.phase(one.phase),
            one.tasks,
            duration(one.age),
            str(one.restarts) if one.restarts else "",
            one.infra,
            one.cause,
            one.id,
        )
        for one in rows
    ]
    return table(LIST_HEADERS, body, paint, columns)


def reason_lines(reasons: Iterable[ReasonView], paint: Paint) -> list[str]:
    """Why something waits: who, since when, what would mend it; one cause is told once."""
    alike: dict[tuple[str, str], list[ReasonView]] = {}
    for reason in reasons:
        alike.setdefault((reason.code, reason.text), []).append(reason)
    lines = []
    for same in alike.values():
        one = max(same, key=lambda reason: reason.age or 0.0)
        age = f" {duration(one.age)}" if one.age is not None else ""
        about = paint(_together(same), "bold") + (":" if len(same) > 1 else "")
        told = _sentence(f"{paint('waits', 'yellow')}{age}", one.text)
        lines.append(f"{about} {told} {_code(one, paint)}")
        if one.hint:
            lines.append(f"  {paint('hint:', 'cyan')} {one.hint}")
    return lines


def _together(reasons: list[ReasonView]) -> str:
    """`web-0, web-1 and 6 more`: who waits for one and the same cause."""
    names = [reason.about or "the group" for reason in reasons]
    more = f" and {len(names) - NAMED_MOST} more" if len(names) > NAMED_MOST else ""
    return ", ".join(names[:NAMED_MOST]) + more


def progress_lines(view: Overview, passed: float, paint: Paint) -> list[str]:
    """What is not up yet, and why; `passed` are the seconds since `view` was made."""
    up, nodes = sum(task.up for task in view.tasks), len(view.nodes())
    age = duration(view.age + (0 if view.final else passed))
    head = f"{paint(view.name, 'bold')} {paint.phase(view.phase)} {age}, {up} of {nodes} up"
    waiting = [task for task in view.tasks if task.phase not in ("RUNNING", "SUCCEEDED")]
    if not waiting or view.phase in ("RUNNING", "ENDING"):
        return [head + paint("  (Ctrl-C detaches)", "dim")]
    wide = max(len(task.name) for task in waiting)
    lines = [head]
    for task in waiting[:PROGRESS_TASKS_MOST]:
        told = _waits(task, view, passed)
        lines.append(f"  {task.name:<{wide}}  {paint.phase(task.phase)}  {told}".rstrip())
    if len(waiting) > PROGRESS_TASKS_MOST:
        lines.append(f"  and {plural(len(waiting) - PROGRESS_TASKS_MOST, 'more task')}")
    return lines


def closing_lines(view: Overview, paint: Paint) -> list[str]:
    """How it ended, why, and what to do next."""
    told = summary(view)
    lines = [paint(told, "green" if view.exit_code == 0 else "red")]
    if view.restarts:
        lines[0] += f" ({plural(view.restarts, 'restart')})"
    if view.price_usd:
        lines[0] += f", {price(view.price_usd)}"
    if view.unreachable:
        lines.append("hosts that may still hold something: " + ", ".join(view.unreachable))
    return lines + [f"{paint('hint:', 'cyan')} {hint}" for hint in next_steps(view)]


def clock(at: float) -> str:
    """Local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _head(view: Overview, paint: Paint) -> str:
    why = "" if not view.final and not view.cause else f"  {summary(view).partition(': ')[2]}"
    return f"{paint(view.name, 'bold')}  {paint.phase(view.phase)}{why.rstrip()}"


def _facts(view: Overview) -> str:
    facts = [f"submitted {clock(view.submitted_at)}"]
    facts.append(f"{'took' if view.final else 'age'} {duration(view.age)}")
    if view.incarnation > 1:
        facts.append(f"incarnation {view.incarnation}")
    if view.restarts:
        facts.append(plural(view.restarts, "restart"))
    if view.price_usd:
        facts.append(f"{price(view.price_usd)} so far")
    return ", ".join([*facts, f"id {view.id}"])


def _node_row(view: Overview, task: TaskView, node: NodeView, paint: Paint) -> tuple[str, ...]:
    since = duration(max(0.0, view.now - node.since)) if node.since and not node.outcome else ""
    probed = " (not healthy)" if node.phase == "RUNNING" and not node.healthy else ""
    return (
        node.node if task.primary else f"{node.node} {paint('aux', 'dim')}",
        paint.phase(node.phase) + paint(probed, "yellow"),
        since,
        str(node.attempt) if node.attempt > 1 else "",
        node.infra if node.infra != node.host else "",
        node.host,
        node.address,
        f"{node.cpu_percent:.0f}%" if node.cpu_percent is not None else "",
        size(node.rss_bytes) if node.rss_bytes is not None else "",
        _ended(node),
        node.waits_for,
    )


def _ended(node: NodeView) -> str:
    if not node.outcome:
        return ""
    if node.outcome in ("lost", "stopped"):
        return node.outcome
    told = signal_name(node.signal) if node.signal is not None else f"exit {node.exit_code}"
    if node.signal is None and node.exit_code is None:
        told = ending(node.outcome, None, None)
    cause = node.text or (node.cause if node.cause not in ("", "exit", "signal") else "")
    return f"{told}: {cause}" if cause else told


def _waits(task: TaskView, view: Overview, passed: float) -> str:
    """`1 of 2 up; waits 3 s: rollout to be healthy`; a bar while files travel."""
    count = f"{task.up} of {len(task.nodes)} up" if len(task.nodes) > 1 else ""
    if bar := files_bar(task):
        return "; ".join(filter(None, (count, bar)))
    node = next((one for one in task.nodes if one.waits_for), None)
    if node is None:
        stages = {one.stage for one in task.nodes if one.phase not in ("RUNNING", "SUCCEEDED")}
        return "; ".join(filter(None, (count, "/".join(sorted(stages)).lower())))
    since = node.waits_since
    age = f" {duration(view.now - since + passed)}" if since else ""
    return "; ".join(filter(None, (count, _sentence(f"waits{age}", node.waits_for))))


def files_bar(task: TaskView) -> str:
    """`files [######..................] 25 % of 12 MiB`; "" while none are on the way."""
    on_the_way = [found for one in task.nodes if (found := FILES.search(one.waits_for))]
    if not on_the_way:
        return ""
    # Each node gets all of them; the one that has least decides when the others start.
    slowest = min(on_the_way, key=lambda found: int(found[1]))
    percent, nodes = min(100, int(slowest[1])), len(on_the_way)
    full = BAR * percent // 100
    bar = "#" * full + "." * (BAR - full)
    where = f", the slowest of {nodes} nodes" if nodes > 1 else ""
    return f"files [{bar}] {percent} % of {slowest[2]}{where}"


def _sentence(waits: str, text: str) -> str:
    """`waits 3 s for the agent`, `waits 3 s: the agent is silent`."""
    what = text.removeprefix("waits for ")
    return f"{waits} for {what}" if what != text else f"{waits}: {text}"


def _spent(one: SpentView) -> str:
    by = one.unit.removeprefix("*")
    unit = by if by == one.unit else f"the group by {by}" if by else "the group"
    return f"{unit} {one.spent}" + (f" of {one.most}" if one.most is not None else "")


def _code(one: ReasonView, paint: Paint) -> str:
    return paint(f"[{one.code}]", "dim")

"""A plan as lines: places, names, order, restarts, endings, prices, warnings."""

from __future__ import annotations

from argosy.cli.screen.paint import Paint
from argosy.cli.screen.table import table
from argosy.views.shapes import PlannedNode, PlannedTask, PlanView
from argosy.views.text import duration, plural, price

HEADERS = ("NODE", "HOST NAME", "WHERE", "NEEDS", "PRICE/H", "STARTS")
NODES_MOST = 4  # of one task that are shown one by one


def plan_lines(plan: PlanView, paint: Paint, columns: int = 0) -> list[str]:
    """Everything that a person wants to know before saying yes."""
    nodes = sum(task.num_nodes for task in plan.tasks)
    head = f"{paint(plan.name, 'bold')}: {plural(len(plan.tasks), 'task')}, {plural(nodes, 'node')}"
    if plan.price_per_hour_usd:
        head += f", {price(plan.price_per_hour_usd)} per hour"
    head += f", network {plan.network}" if plan.network else ""
    lines = [head]
    rows = [row for task in plan.tasks for row in _rows(plan, task, paint)]
    lines += table(HEADERS, rows, paint, columns)
    lines += [""] + [line for task in plan.tasks for line in _life(task, paint)]
    lines += _limits(plan)
    lines += [f"{paint('chosen:', 'dim')} {text}" for text in plan.chosen]
    lines += [f"{paint('refused:', 'red')} {text}" for text in plan.refused]
    lines += [f"{paint('warning:', 'yellow')} {text}" for text in plan.warnings]
    if not plan.fits:
        when = "not even when nobody else is there" if plan.never else "not now"
        lines.append(paint(f"it does not fit: {when}", "red"))
    return lines


def brief_lines(plan: PlanView, paint: Paint, columns: int = 0) -> list[str]:
    """What `launch` shows of a plan: places, refusals and warnings."""
    lines = plan_lines(plan, paint, columns)
    return lines[: lines.index("")] + [
        line for line in lines if "warning:" in line or "refused:" in line or "not fit" in line
    ]


def _rows(plan: PlanView, task: PlannedTask, paint: Paint) -> list[tuple[str, ...]]:
    order = _order(plan, task)
    shown = task.nodes if task.num_nodes <= NODES_MOST else task.nodes[: NODES_MOST - 2]
    rows = [_row(node, order, paint) for node in shown]
    if len(shown) < task.num_nodes:
        rows.append((paint(f"and {task.num_nodes - len(shown) - 1} more", "dim"), *[""] * 5))
        rows.append(_row(task.nodes[-1], order, paint))
    return rows


def _row(node: PlannedNode, order: str, paint: Paint) -> tuple[str, ...]:
    where = f"{node.infra}:{node.host}" if node.host and node.host != node.infra else node.infra
    need = node.accelerator or node.need
    if node.accelerator and node.need and node.accelerator not in node.need:
        need = f"{node.accelerator}, {node.need}"
    elif node.accelerator:
        need = node.need
    return (
        node.node,
        node.host_name,
        where or paint("nowhere", "red"),
        need if need != "any host" else "",
        price(node.price_per_hour_usd) if node.price_per_hour_usd else "",
        order,
    )


def _order(plan: PlanView, task: PlannedTask) -> str:
    if not task.waits_for:
        return "at once"
    waits = " and ".join(one.replace(" to be succeeded", " to succeed") for one in task.waits_for)
    return f"{task.order}. after {waits}"


def _life(task: PlannedTask, paint: Paint) -> list[str]:
    parts = [f"restart {task.restart}", f"ends {task.ending}"]
    if task.ready:
        parts.insert(0, f"healthy by {task.ready}")
    if task.balanced:
        parts.append("balanced at " + ", ".join(task.balanced))
    kind = "" if task.primary else paint(" (auxiliary)", "dim")
    return [f"{paint(task.name, 'bold')}{kind}: " + "; ".join(parts)]


def _limits(plan: PlanView) -> list[str]:
    limits = []
    if plan.max_duration:
        limits.append(f"ends FAILED after {duration(plan.max_duration)}")
    if plan.on_failure == "stop":
        limits.append("the first failed primary ends it")
    return ["limits: " + "; ".join(limits)] if limits else []

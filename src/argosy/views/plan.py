"""A plan as people read it before they say yes: places, order, restarts, endings, prices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from argosy.model.ids import NodeId, TaskName
from argosy.model.plan import NoPlan, Placement, Plan
from argosy.model.spec import EndsWith, Execution, GroupSpec, Probe, Ready, Restart, TaskSpec
from argosy.views.shapes import PlannedNode, PlannedTask, PlanView
from argosy.views.text import duration, plural


def plan_view(
    spec: GroupSpec, answer: Plan | NoPlan, warnings: tuple[str, ...] = (), network: str = ""
) -> PlanView:
    """The planner's answer for a whole spec; `warnings` are those of the file."""
    placed = {one.node: one for one in answer.placements} if isinstance(answer, Plan) else {}
    orders = start_order(spec)
    tasks = tuple(_task(spec, task, orders[task.name], placed) for task in spec.tasks)
    return PlanView(
        name=spec.name,
        fits=isinstance(answer, Plan),
        never=isinstance(answer, NoPlan) and answer.never,
        execution=spec.execution.value,
        network=network or spec.network,
        tasks=tasks,
        chosen=answer.report.chosen,
        refused=answer.report.refused,
        warnings=tuple(dict.fromkeys((*warnings, *answer.report.warnings))),
        price_per_hour_usd=sum(one.price_per_hour_usd for one in placed.values()),
        start_timeout=spec.start_timeout,
        max_duration=spec.max_duration,
        on_failure=spec.on_failure.value,
    )


def start_order(spec: GroupSpec) -> dict[TaskName, int]:
    """When each task starts: 1 at once, 2 after something of 1, and so on.

    Tasks of a serial group come one after the other. A cycle (which the rules of the file refuse)
    ends the counting at the number of tasks.
    """
    if spec.execution is Execution.SERIAL:
        return {task.name: place for place, task in enumerate(spec.tasks, 1)}
    orders = {task.name: 1 for task in spec.tasks}
    for _ in spec.tasks:
        before = dict(orders)
        for task in spec.tasks:
            after = [before[name] + 1 for name, _ in task.depends_on if name in before]
            orders[task.name] = min(max(after, default=1), len(spec.tasks))
        if orders == before:
            break
    return orders


def _task(
    spec: GroupSpec, task: TaskSpec, order: int, placed: Mapping[NodeId, Placement]
) -> PlannedTask:
    name = spec.balanced_name(task.name)
    return PlannedTask(
        name=task.name,
        num_nodes=task.num_nodes,
        primary=task.primary,
        order=order,
        waits_for=_waits(spec, task),
        ready=_ready(task.ready),
        restart=_restart(task.restart),
        ending=_ending(spec, task),
        balanced=tuple(f"{name}:{port}" for port in task.balance),
        nodes=tuple(_node(spec, task, node, placed.get(node)) for node in task.nodes()),
    )


def _node(
    spec: GroupSpec, task: TaskSpec, node: NodeId, placement: Placement | None
) -> PlannedNode:
    name = spec.host_name(node) if spec.inter_connection is not False else ""
    if placement is None:
        needs = " or ".join(need.describe() for need in task.needs)
        return PlannedNode(node=str(node), host_name=name, need=needs)
    return PlannedNode(
        node=str(node),
        host_name=name,
        infra=placement.infra,
        host=placement.host or "",
        need=placement.need.describe(),
        accelerator=str(placement.accelerator) if placement.accelerator else "",
        price_per_hour_usd=placement.price_per_hour_usd,
    )


def _waits(spec: GroupSpec, task: TaskSpec) -> tuple[str, ...]:
    own = tuple(f"{name} to be {condition.value}" for name, condition in task.depends_on)
    place = spec.tasks.index(task)
    if spec.execution is Execution.SERIAL and place:
        return (f"{spec.tasks[place - 1].name} to be succeeded", *own)
    return own


def _ready(ready: Ready | None) -> str:
    if ready is None:
        return ""
    match ready.kind:
        case Probe.HTTP:
            return f"http :{ready.port}{ready.path}"
        case Probe.TCP:
            return f"tcp :{ready.port}"
        case Probe.COMMAND:
            return f"command {ready.text}"
        case Probe.LOG:
            return f"log /{ready.text}/"
        case _:
            assert_never(ready.kind)


def _restart(restart: Restart) -> str:
    """`on failure, at most 3 per node; on lost hosts always`."""
    lost = "on lost hosts" if restart.on_lost else ""
    causes = ["any failure"] if restart.on_failure else []
    if restart.on_codes and not restart.on_failure:
        causes = ["exit " + "/".join(map(str, restart.on_codes))]
    if not causes:
        return lost or "never"
    most = "without limit" if restart.max is None else f"at most {restart.max} per"
    unit = "" if restart.max is None else f" {restart.scope.value}"
    along = f", with {', '.join(restart.along)}" if restart.along else ""
    told = f"on {causes[0]}, {most}{unit}{along}"
    return f"{told}; {lost}" if lost else told


def _ending(spec: GroupSpec, task: TaskSpec) -> str:
    if not task.primary:
        delay = duration(task.termination_delay) if task.termination_delay else "at once"
        after = f"{delay} after the primaries" if task.termination_delay else "with the primaries"
        return f"{after}, SIGKILL {duration(task.grace)} after SIGTERM"
    if task.ends_with is EndsWith.HEAD:
        return "when its head ends"
    return (
        "when it ends" if task.num_nodes == 1 else f"when its {plural(task.num_nodes, 'node')} end"
    )

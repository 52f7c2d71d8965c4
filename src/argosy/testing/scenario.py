"""Draws a whole world from a seed: groups of every shape, infras with little room, faults."""

from __future__ import annotations

from random import Random

from argosy.model.action import Limits
from argosy.model.group import Group, Node
from argosy.model.ids import Serial, ServerId, group_id
from argosy.model.needs import Need
from argosy.model.spec import (
    Condition,
    EndsWith,
    Execution,
    GroupSpec,
    OnFailure,
    Probe,
    Ready,
    Restart,
    Scope,
    TaskSpec,
)
from argosy.testing.faults import plan_faults
from argosy.testing.world import World
from argosy.testing.world_infra import HOST_CPUS

NAMES = ("data", "rollout", "reward", "trainer")
GROUPS = ("alpha", "beta", "gamma", "delta")
HORIZON = 260.0  # seconds over which faults strike


def drawn_world(seed: int, *, faults: int | None = None, fast: bool = False) -> World:
    """The world of a seed: groups are submitted as time passes, faults strike by themselves.

    `faults`: how many are drawn; None: the seed says it.
    """
    world = World(seed, limits=Limits(pass_limit=300.0), fast=fast)
    rng = world.rng
    specs = [a_drawn_group(rng, name) for name in GROUPS[: rng.choice((3, 4, 4))]]
    add_infras(world, specs)
    for count, spec in enumerate(specs, start=1):
        submit(world, spec, count, rng.uniform(0.0, 30.0))
    world.server.start()
    chosen = rng.choice((0, 8, 12, 16, 20, 28)) if faults is None else faults
    world.after(31.0, plan_faults, world, HORIZON, chosen)
    early = rng.randrange(4) if faults is None else 0
    world.after(0.0, plan_early, world, early)
    return world


def plan_early(world: World, count: int) -> None:
    """Some faults strike while the first gangs gather."""
    plan_faults(world, 40.0, count)


def submit(world: World, spec: GroupSpec, count: int, after: float) -> None:
    """Submit a group after so many seconds."""
    needed = {name for task in spec.tasks for name, how in task.depends_on if how == "succeeded"}

    world.to_come += 1

    def now() -> None:
        world.to_come -= 1
        group = Group(
            group_id(ServerId("5eed01"), Serial(1, count)),
            spec,
            submitted_at=world.server.now(),
            nodes=tuple(Node(node) for node in spec.nodes()),
        )
        world.store.needed_to_succeed[group.id] = needed
        world.store.create(group)
        world.server.wake(group.id)

    if after:
        world.after(after, now)
    else:
        now()


def a_drawn_group(rng: Random, name: str) -> GroupSpec:
    """A group of one to four tasks."""
    count = rng.choice((1, 2, 2, 3, 3, 4))
    names = list(NAMES[-count:])
    serial = count > 1 and rng.random() < 0.15
    pin = rng.choice((None, None, "local/pool", "local/pool", "kubernetes/test"))
    tasks: list[TaskSpec] = []
    for place, task in enumerate(names):
        primary = serial or place == count - 1 or rng.random() < 0.3
        tasks.append(a_drawn_task(rng, task, tasks, primary=primary, pin=pin, serial=serial))
    return GroupSpec(
        name,
        tuple(tasks),
        execution=Execution.SERIAL if serial else Execution.PARALLEL,
        start_timeout=rng.choice((40.0, 90.0, 200.0)),
        hold_timeout=rng.choice((5.0, 15.0, 30.0)),
        priority=rng.choice((0, 0, 0, 5, -5)),
        max_duration=rng.uniform(150.0, 500.0) if rng.random() < 0.08 else None,
        on_failure=rng.choice((OnFailure.WAIT, OnFailure.STOP)),
        restarts=rng.choice((0, 1, 2)),
        inter_connection=rng.choice((None, None, False)),
    )


def a_drawn_task(
    rng: Random, name: str, before: list[TaskSpec], *, primary: bool, pin: str | None, serial: bool
) -> TaskSpec:
    """One task that may depend on those before it."""
    depends: tuple[tuple[str, Condition], ...] = ()
    if before and not serial and rng.random() < 0.4:
        other = rng.choice(before)
        # What must succeed has to come to an end by itself; a service is only awaited healthy.
        depends = ((other.name, rng.choice(list(Condition))),)
    nodes = rng.choice((1, 1, 1, 2, 2, 3))
    return TaskSpec(
        name,
        nodes,
        needs=(Need(infra=pin, cpus=rng.choice((1.0, 2.0, 3.0))),),
        depends_on=depends,
        ready=Ready(Probe.TCP, 8000) if rng.random() < 0.4 else None,
        restart=a_drawn_restart(rng, nodes, before, serial=serial),
        balance=(8000,) if rng.random() < 0.3 else (),
        grace=rng.choice((0.5, 2.0, 10.0)),
        termination_delay=rng.choice((0.0, 0.0, 5.0)),
        ends_with=EndsWith.HEAD if nodes > 1 and rng.random() < 0.15 else EndsWith.ALL,
        primary=primary,
    )


def a_drawn_restart(rng: Random, nodes: int, before: list[TaskSpec], *, serial: bool) -> Restart:
    """When and how often a task is restarted."""
    scope = rng.choice((Scope.NODE, Scope.TASK, Scope.TASK, Scope.GROUP))
    if nodes == 1 and scope is Scope.TASK:
        scope = Scope.NODE
    along: tuple[str, ...] = ()
    if before and not serial and rng.random() < 0.15:
        along = (rng.choice(before).name,)
    return Restart(
        on_failure=rng.random() < 0.5,
        on_codes=(137,) if rng.random() < 0.2 else (),
        max=rng.choice((None, 0, 1, 2, 3)) if scope is Scope.GROUP else rng.choice((0, 1, 2, 3)),
        backoff_first=rng.choice((0.0, 1.0, 5.0)),
        backoff_most=20.0,
        scope=scope,
        along=along,
    )


def add_infras(world: World, specs: list[GroupSpec]) -> None:
    """A pool and a cloud, each with room for the largest group and little more."""
    rng = world.rng
    most = max(sum((task.needs[0].cpus or 0.0) * task.num_nodes for task in s.tasks) for s in specs)
    pool = world.add_infra("local/pool")
    wide = max(task.needs[0].cpus or 0.0 for spec in specs for task in spec.tasks)
    hosts = max(1, -(-int(most) // int(HOST_CPUS - wide + 1))) + rng.choice((0, 0, 1))
    for index in range(hosts):
        pool.add_host(f"h{index + 1}", HOST_CPUS)
    world.add_infra("kubernetes/test", elastic=most + rng.choice((0.0, 3.0, 8.0)))

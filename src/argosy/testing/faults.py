"""The faults of a simulated world: each finds something to strike, and says so when it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from argosy.model.group import Group, Intent, Verb
from argosy.testing.world_agent import Host
from argosy.testing.world_infra import SimInfra
from argosy.testing.world_programs import Program
from argosy.testing.world_store import Backup

if TYPE_CHECKING:
    from argosy.testing.world import World

Fault = Callable[["World"], bool]  # whether it found something to strike


def busy(world: World) -> list[Host]:
    """Hosts that live and hold something of ours."""
    return [
        host
        for infra in world.infras.values()
        for host in dict.fromkeys(held.host for held in infra.held.values())
        if host is not None and host.alive and host.name in infra.hosts
    ]


def pick_host(world: World) -> Host | None:
    """A host to strike: one that holds something, if any."""
    hosts = busy(world)
    return world.rng.choice(hosts) if hosts else None


def pick_program(world: World) -> tuple[Host, Program] | None:
    """A running program to strike."""
    found = [(h, p) for h in world.hosts() if h.alive for p in h.programs.values()]
    return world.rng.choice(found) if found else None


def pick_group(world: World) -> Group | None:
    """A group that has not ended."""
    found = [group for group in world.store.records.values() if not group.phase.final]
    return world.rng.choice(found) if found else None


# --- hosts ---------------------------------------------------------------------------------------


def host_gone(world: World) -> bool:
    """A host dies, and the infra says so."""
    return host_dies(world, "gone")


def host_absent(world: World) -> bool:
    """A host dies, and the infra no longer shows it."""
    return host_dies(world, "absent")


def host_reboot(world: World) -> bool:
    """A host of a pool restarts; nobody can see it meanwhile."""
    return host_dies(world, "reboot")


def host_dies(world: World, how: str) -> bool:
    """A host dies in one of the ways of `SimInfra.lose`; some come back."""
    host = pick_host(world)
    if host is None or (how == "reboot" and host.infra.elastic):
        return False
    world.strike(f"host-{how}")
    host.infra.lose(host, how)
    if not host.infra.elastic:
        world.after(world.rng.uniform(5.0, 200.0), host.boot_again)
    return True


def host_leaves(world: World) -> bool:
    """A cloud says that it takes a host back, and does so some time later."""
    host = pick_host(world)
    if host is None or not host.infra.elastic or not host.infra.drain(host):
        return False
    world.strike("host-leaving")

    def go() -> None:
        if host.alive and not world.quiet:
            host.infra.lose(host, "absent")

    world.after(world.rng.uniform(1.0, 60.0), go)
    return True


def host_freezes(world: World) -> bool:
    """Everything on a host stands still for a while."""
    host = pick_host(world)
    if host is None or host.frozen:
        return False
    world.strike("host-frozen")
    host.say("freezes")
    host.freeze()
    world.after(world.rng.uniform(5.0, 200.0), thaw, host)
    return True


def thaw(host: Host) -> None:
    """A frozen host goes on."""
    if host.frozen:
        host.world.strike("host-thawed")
        host.say("thaws")
        host.thaw()


def agent_crash(world: World) -> bool:
    """An agent dies, its programs do not."""
    host = pick_host(world)
    if host is None or not host.agent_up:
        return False
    world.strike("agent-crash")
    host.say("agent dies")
    host.crash_agent()
    world.after(world.rng.uniform(0.5, 60.0), host.restart_agent)
    return True


def wrapper_vanishes(world: World) -> bool:
    """The wrapper of a running program is killed: its status can never be known."""
    found = pick_program(world)
    if found is None:
        return False
    host, program = found
    world.strike("wrapper-vanished")
    host.say("the wrapper of {} vanishes", program.attempt)
    program.wrapper = False
    host.timer(0.02, host.notice, program.lease, program.attempt)
    return True


# --- network -------------------------------------------------------------------------------------


def cut(world: World) -> bool:
    """Nothing passes between the server and a host."""
    return cut_link(world, up=True, down=True)


def cut_reports(world: World) -> bool:
    """Half open: assignments arrive, reports do not."""
    return cut_link(world, up=True, down=False)


def cut_assignments(world: World) -> bool:
    """Half open: reports arrive, assignments do not."""
    return cut_link(world, up=False, down=True)


def cut_link(world: World, *, up: bool, down: bool) -> bool:
    """A link is cut in one direction or both, and healed after a while."""
    host = pick_host(world)
    if host is None or host.cut_up or host.cut_down:
        return False
    name = "cut-both" if up and down else "cut-reports" if up else "cut-assignments"
    world.strike(name)
    host.say("{}", name)
    host.cut_up, host.cut_down = up, down
    host.hearing()
    world.after(world.rng.uniform(10.0, 600.0), heal, host)
    return True


def heal(host: Host) -> None:
    """A cut heals."""
    if host.cut_up or host.cut_down:
        host.say("link heals")
        host.cut_up = host.cut_down = False
        host.hearing()


def fence(world: World) -> bool:
    """A host of a pool is cut off for longer than its fence: it ends all, and is then given up."""
    host = pick_host(world)
    if host is None or host.infra.elastic or host.cut_up or host.cut_down:
        return False
    host.say("is cut off, and has a fence")
    host.cut_up = host.cut_down = True
    host.hearing()
    world.after(world.rng.uniform(10.0, 60.0), fence_out, host)
    return True


def fence_out(host: Host) -> None:
    """The fence of a host that is cut off runs out; the link heals after that."""
    world = host.world
    if world.quiet:
        return
    world.after(world.rng.uniform(6.0, 200.0), heal, host)
    if not host.alive or host.frozen:
        return
    world.strike("fence-out")
    host.infra.fence(host)

    def given_up() -> None:
        if not world.quiet:
            host.infra.give_up(host)

    world.after(5.0, given_up)


# --- looks, messages -----------------------------------------------------------------------------


def blind(world: World) -> bool:
    """An infra's looks see nothing for a while."""
    infra = world.rng.choice(list(world.infras.values()))
    infra.blind_until = world.active + world.rng.uniform(3.0, 120.0)
    world.say(infra.name, "cannot be looked at")
    return True


def storm(world: World) -> bool:
    """For a while, messages of one or two kinds suffer."""
    chances = world.server.chances
    names = [name for name in chances.__slots__ if not getattr(chances, name)]
    if not names:
        return False
    name = world.rng.choice(names)
    setattr(chances, name, world.rng.uniform(0.2, 0.8))
    world.say("network", "a storm: {}", name)

    def over() -> None:
        setattr(world.server.chances, name, 0.0)

    world.after(world.rng.uniform(10.0, 150.0), over)
    return True


# --- capacity ------------------------------------------------------------------------------------


def refuse_later(world: World) -> bool:
    """The next acquires are refused, for now."""
    return refuse(world, lambda: world.rng.uniform(1.0, 30.0))


def refuse_never(world: World) -> bool:
    """The next acquire is refused for ever."""
    return refuse(world, lambda: float("inf"))


def refuse(world: World, retry: Callable[[], float]) -> bool:
    """An infra refuses its next few acquires; `retry` says when each may be asked again."""
    infra: SimInfra = world.rng.choice(list(world.infras.values()))
    infra.refusing += [retry() for _ in range(world.rng.choice((1, 1, 2, 3)))]
    return True


def shrink(world: World) -> bool:
    """Somebody else takes a part of what is free."""
    infra = world.rng.choice(list(world.infras.values()))
    if infra.shrink(world.rng.uniform(0.4, 1.0)) <= 0.0:
        return False
    world.strike("capacity-shrinks")
    world.say(infra.name, "has less to give")
    world.after(world.rng.uniform(10.0, 200.0), infra.grow_back)
    return True


# --- server --------------------------------------------------------------------------------------


def crash_between(world: World) -> bool:
    """The server dies between a save and any prefix of its actions."""
    if not world.server.up or world.server.crash_after is not None:
        return False
    world.server.crash_after = world.rng.choice((0, 0, 1, 2, 5))
    return True


def crash_now(world: World) -> bool:
    """The server dies at any other moment."""
    if not world.server.up:
        return False
    world.strike("server-killed")
    world.server.crash()
    world.after(world.rng.uniform(0.5, 120.0), world.server.start)
    return True


def stall(world: World) -> bool:
    """The server stands still while all else goes on."""
    if not world.server.up or world.server.stalled:
        return False
    seconds = world.rng.uniform(7.0, 120.0)
    world.strike("server-stalls")
    world.say("server", "stands still for {} s", seconds)
    world.server.stall(seconds)
    return True


def conflict(world: World) -> bool:
    """A user's wish is written between load and save."""
    group = pick_group(world)
    if group is None:
        return False
    task = world.rng.choice(group.spec.tasks)
    world.server.conflict_next = Intent(Verb.RESTART, 0.0, task.name, by="conflict")
    return True


def second_controller(world: World) -> bool:
    """A second controller decides on an older record."""
    world.server.stale_next = world.rng.choice((1, 1, 2, 4))
    return True


def take_backup(world: World) -> bool:
    """Now and then somebody makes a backup, and much later puts it back."""
    if world.to_come:
        return False
    backup = Backup(world.store)
    wait = world.rng.choice((world.rng.uniform(0.5, 10.0), world.rng.uniform(10.0, 120.0)))
    world.after(wait, restore, world, backup)
    return True


def restore(world: World, backup: Backup) -> None:
    """The store is an older version of itself; a server starts on it."""
    if world.quiet or world.store.records == backup.records:
        return
    if world.clock() + world.wall_offset <= world.store.last_life + 1:
        return  # a clock set back *and* an old store could repeat a life: that is not promised
    if all(group.phase.final for group in world.store.records.values()):
        return
    world.strike("store-restored")
    if world.server.up:
        world.server.crash()
    changed = [k for k, v in world.store.records.items() if backup.records[k] != v]
    world.store.restore(backup)
    world.server.older.clear()
    world.truth.was_restored(changed)
    world.say("user", "puts an older backup of the store back")
    world.after(world.rng.uniform(0.5, 20.0), world.server.start)


def suspend(world: World) -> bool:
    """The whole machine sleeps."""
    world.strike("suspend")
    world.suspend(world.rng.uniform(30.0, 3600.0))
    return True


def wall_jump(world: World) -> bool:
    """The wall clock is set; a server that starts later begins from there."""
    by = world.rng.uniform(-300.0, 300.0)
    world.strike("wall-jump")
    world.say("machine", "its wall clock jumps by {} s", by)
    world.wall_offset += by
    return True


# --- users ---------------------------------------------------------------------------------------


def cancel(world: World) -> bool:
    """A user cancels a group."""
    return wish(world, Verb.CANCEL)


def cancel_now(world: World) -> bool:
    """A user cancels a group without grace."""
    return wish(world, Verb.CANCEL_NOW)


def restart(world: World) -> bool:
    """A user restarts a node, a task or a group by hand."""
    return wish(world, Verb.RESTART)


def wish(world: World, verb: Verb) -> bool:
    """Somebody cancels or restarts a group, or a part of it."""
    group = pick_group(world)
    if group is None:
        return False
    task = world.rng.choice(group.spec.tasks)
    chosen = verb is Verb.RESTART and world.rng.random() < 0.8
    index = world.rng.randrange(task.num_nodes) if chosen and world.rng.random() < 0.5 else None
    world.strike(f"user-{verb.value}")
    world.say("user", "asks {} of {} {}", verb.value, group.id, task.name if chosen else "")
    intent = Intent(verb, world.server.now(), task.name if chosen else "", index, "user")
    world.store.intend(group.id, intent)
    world.server.wake(group.id)
    return True


EVERYWHERE: Final[tuple[tuple[Fault, int], ...]] = (
    (host_gone, 3), (host_absent, 2), (host_reboot, 3), (host_freezes, 3), (agent_crash, 3),
    (wrapper_vanishes, 4), (cut, 3), (cut_reports, 3), (cut_assignments, 3), (blind, 3),
    (storm, 12), (refuse_later, 3), (refuse_never, 2), (shrink, 3), (crash_between, 4),
    (crash_now, 2), (stall, 2), (conflict, 2), (second_controller, 3), (suspend, 2),
    (wall_jump, 2), (cancel, 2), (cancel_now, 2), (restart, 3), (take_backup, 1),
    (host_leaves, 4), (fence, 3),
)  # fmt: skip
"""Every fault with its weight in the draw."""

COUNTED: Final = (
    "refused-later", "refused-never", "late-acquire", "slow-host", "host-gone", "host-absent",
    "host-reboot", "host-leaving", "host-frozen", "host-thawed", "agent-crash",
    "wrapper-vanished", "cut-both",
    "cut-reports", "cut-assignments", "cut-report", "cut-assignment", "partial-look", "blind-look",
    "late-look", "late-report", "lost-action", "repeated-action", "late-action",
    "older-assignment", "program-fails", "ignores-sigterm", "setup-fails", "controller-crash",
    "server-killed", "server-stalls", "save-conflict", "second-controller", "store-restored",
    "suspend", "wall-jump", "probe-flaps", "user-cancel", "user-cancel-now", "user-restart",
    "late-plan", "capacity-shrinks", "fence-out",
)  # fmt: skip
"""What a set of seeds must have met, each at least 50 times."""


def plan_faults(world: World, horizon: float, count: int) -> None:
    """Draw `count` faults over so many seconds."""
    faults = [fault for fault, _ in EVERYWHERE]
    weights = [weight for _, weight in EVERYWHERE]
    for fault in world.rng.choices(faults, weights, k=count):
        world.after(world.rng.uniform(0.5, horizon), strike, world, fault, 8)


def strike(world: World, fault: Fault, tries: int) -> None:
    """Let a fault strike; when it finds nothing to strike, again a little later."""
    if not world.quiet and not fault(world) and tries:
        world.after(world.rng.uniform(1.0, 10.0), strike, world, fault, tries - 1)

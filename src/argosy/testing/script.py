"""Stories: a script of what befalls a calm world, and the timeline that comes of it, in words.

A script has one order a line; `#` begins a comment. First what there is:

    pool local/pool h1=4 h2=4            a pool with its hosts and their cores
    cloud kubernetes/test 16             a cloud with so many cores in all
    group demo start_timeout=60          fields of GroupSpec
    task trainer nodes=2 cpus=3 on_failure=1 max=2 scope=task    of the group above
    program demo/trainer-0@1 run_for=5 exit_code=3     of one attempt; demo/trainer: of all others

Then what happens, `at SECONDS ORDER...`; the orders are the methods of `Orders`. The last line is
`until SECONDS`, or `settle`: the liveness phase.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from argosy.model.group import Intent, Verb
from argosy.model.ids import GroupId
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
from argosy.testing import faults
from argosy.testing.scenario import submit
from argosy.testing.world import World
from argosy.testing.world_agent import Host
from argosy.testing.world_programs import Behaviour
from argosy.testing.world_store import Backup

ENUMS: dict[str, Callable[[str], Any]] = {
    "execution": Execution,
    "on_failure_group": OnFailure,
    "ends_with": EndsWith,
    "scope": Scope,
}


def number(text: str) -> Any:
    """A whole number, a fraction, or the text itself."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def pairs(words: list[str]) -> dict[str, str]:
    """`a=1 b=2` as a mapping; a word alone is "1"."""
    return {key: value or "1" for key, _, value in (word.partition("=") for word in words)}


def a_restart(given: dict[str, str]) -> Restart:
    """The restart that a task's words describe; takes them out of `given`."""
    names = {one.name for one in fields(Restart)}
    told: dict[str, Any] = {}
    for key in [one for one in given if one in names]:
        value = given.pop(key)
        if key == "scope":
            told[key] = Scope(value)
        elif key == "along":
            told[key] = tuple(value.split(","))
        elif key in ("on_failure", "on_lost"):
            told[key] = value == "1"
        else:
            told[key] = number(value)
    return Restart(**told)


def a_task(words: list[str]) -> TaskSpec:
    """The task that a line describes."""
    name, *more = words
    given = pairs(more)
    restart = a_restart(given)
    need = Need(infra=given.pop("infra", None), cpus=float(given.pop("cpus", "1")))
    told: dict[str, Any] = {"primary": given.pop("aux", "") != "1"}
    if "depends_on" in given:
        other, _, how = given.pop("depends_on").partition(":")
        told["depends_on"] = ((other, Condition(how or "started")),)
    if "ready" in given:
        told["ready"] = Ready(Probe.TCP, int(given.pop("ready")))
    if "ends_with" in given:
        told["ends_with"] = EndsWith(given.pop("ends_with"))
    nodes = int(given.pop("nodes", "1"))
    told |= {key: number(value) for key, value in given.items()}
    return TaskSpec(name, nodes, needs=(need,), restart=restart, **told)


class Orders:
    """What may be ordered in a script: `at 5 lose h2 gone` is `lose(["h2", "gone"])`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.specs: dict[str, GroupSpec] = {}
        self.backup: Backup | None = None

    def host(self, name: str) -> Host:
        """A host by its name."""
        return next(one for one in self.world.hosts() if one.name == name)

    def group(self, name: str) -> GroupId:
        """A group by its name."""
        return next(k for k, v in self.world.store.records.items() if v.spec.name == name)

    def submit(self, words: list[str]) -> None:
        """submit GROUP"""
        submit(self.world, self.specs[words[0]], len(self.world.store.records) + 1, 0.0)

    def lose(self, words: list[str]) -> None:
        """lose HOST gone|absent|reboot"""
        host = self.host(words[0])
        host.infra.lose(host, words[1])

    def drain(self, words: list[str]) -> None:
        """drain HOST"""
        host = self.host(words[0])
        host.infra.drain(host)

    def fence(self, words: list[str]) -> None:
        """fence HOST"""
        host = self.host(words[0])
        host.infra.fence(host)

    def give_up(self, words: list[str]) -> None:
        """give_up HOST"""
        host = self.host(words[0])
        host.infra.give_up(host)

    def boot(self, words: list[str]) -> None:
        """boot HOST"""
        self.host(words[0]).boot_again()

    def freeze(self, words: list[str]) -> None:
        """freeze HOST"""
        host = self.host(words[0])
        host.say("freezes")
        host.freeze()

    def thaw(self, words: list[str]) -> None:
        """thaw HOST"""
        faults.thaw(self.host(words[0]))

    def cut(self, words: list[str]) -> None:
        """cut HOST both|reports|assignments"""
        host, how = self.host(words[0]), words[1]
        host.cut_up, host.cut_down = how != "assignments", how != "reports"
        host.say("is cut off: {}", how)
        host.hearing()

    def heal(self, words: list[str]) -> None:
        """heal HOST"""
        faults.heal(self.host(words[0]))

    def kill_agent(self, words: list[str]) -> None:
        """kill_agent HOST"""
        host = self.host(words[0])
        host.say("agent dies")
        host.crash_agent()

    def start_agent(self, words: list[str]) -> None:
        """start_agent HOST"""
        self.host(words[0]).restart_agent()

    def kill_wrapper(self, words: list[str]) -> None:
        """kill_wrapper NODE: of what runs there"""
        for host in self.world.hosts():
            for program in list(host.programs.values()):
                if str(program.node) == words[0]:
                    host.say("the wrapper of {} vanishes", program.attempt)
                    program.wrapper = False
                    host.timer(0.02, host.notice, program.lease, program.attempt)

    def repeat_report(self, words: list[str]) -> None:
        """repeat_report HOST: all that its agent has to say, twice"""
        host = self.host(words[0])
        host.say("reports everything twice")
        host.report_all()
        host.report_all()

    def crash(self, words: list[str]) -> None:
        """crash [N]: the server dies; with N: after the next save and N of its actions"""
        if words:
            self.world.server.crash_after = int(words[0])
        else:
            self.world.server.crash()

    def start(self, words: list[str]) -> None:
        """start: the server"""
        self.world.server.start()

    def stall(self, words: list[str]) -> None:
        """stall SECONDS: the server stands still"""
        self.world.say("server", "stands still for {} s", float(words[0]))
        self.world.server.stall(float(words[0]))

    def suspend(self, words: list[str]) -> None:
        """suspend SECONDS: the machine sleeps"""
        self.world.suspend(float(words[0]))

    def save(self, words: list[str]) -> None:
        """save: make a backup of the store"""
        self.world.say("user", "makes a backup of the store")
        self.backup = Backup(self.world.store)

    def restore(self, words: list[str]) -> None:
        """restore: put the backup back"""
        assert self.backup is not None
        faults.restore(self.world, self.backup)

    def refuse(self, words: list[str]) -> None:
        """refuse INFRA SECONDS|never: the next acquire"""
        seconds = float("inf") if words[1] == "never" else float(words[1])
        self.world.infras[words[0]].refusing.append(seconds)

    def blind(self, words: list[str]) -> None:
        """blind INFRA SECONDS: looks see nothing"""
        self.world.say(words[0], "cannot be looked at for {} s", float(words[1]))
        self.world.infras[words[0]].blind_until = self.world.active + float(words[1])

    def slow_acquire(self, words: list[str]) -> None:
        """slow_acquire SECONDS: what is asked for from now on arrives so late; 0: as usual"""
        self.world.server.acquire_delay = float(words[0])

    def slow_plan(self, words: list[str]) -> None:
        """slow_plan SECONDS: the planner's answers take so long from now on; 0: as usual"""
        self.world.server.plan_delay = float(words[0])

    def take(self, words: list[str]) -> None:
        """take HOST CORES: somebody else holds so many cores of it"""
        host = self.host(words[0])
        host.say("others hold {} cores of it", float(words[1]))
        host.infra.others[host.name] = float(words[1])

    def shrink(self, words: list[str]) -> None:
        """shrink INFRA SHARE: somebody else takes what is free"""
        self.world.say(words[0], "has less to give")
        self.world.infras[words[0]].shrink(float(words[1]))

    def grow(self, words: list[str]) -> None:
        """grow INFRA: it is free again"""
        self.world.say(words[0], "has everything to give again")
        self.world.infras[words[0]].grow_back()

    def cancel(self, words: list[str]) -> None:
        """cancel GROUP"""
        self.wish(words, Verb.CANCEL)

    def cancel_now(self, words: list[str]) -> None:
        """cancel_now GROUP"""
        self.wish(words, Verb.CANCEL_NOW)

    def restart(self, words: list[str]) -> None:
        """restart GROUP [TASK [INDEX]]"""
        self.wish(words, Verb.RESTART)

    def wish(self, words: list[str], verb: Verb) -> None:
        """Somebody asks something of a group, or of its task or node."""
        group = self.group(words[0])
        task = words[1] if len(words) > 1 else ""
        index = int(words[2]) if len(words) > 2 else None
        self.world.say("user", "asks {} of {} {}", verb.value, group, task)
        at = self.world.server.now()
        self.world.store.intend(group, Intent(verb, at, task, index, "user"))
        self.world.server.wake(group)


def play(script: str) -> str:
    """The timeline of a script, and what the records say in the end."""
    world = World(1, calm=True)
    orders = Orders(world)
    name = ""
    for line in script.splitlines():
        words = shlex.split(line, comments=True)
        match words:
            case []:
                continue
            case ["pool", infra, *hosts]:
                pool = world.add_infra(infra)
                for host in hosts:
                    pool.add_host(host.partition("=")[0], float(host.partition("=")[2]))
            case ["cloud", infra, cores]:
                world.add_infra(infra, elastic=float(cores))
            case ["group", name, *more]:
                told = {k: ENUMS.get(k, number)(v) for k, v in pairs(more).items()}
                orders.specs[name] = GroupSpec(name, (), **told)
            case ["task", *more]:
                spec = orders.specs[name]
                orders.specs[name] = replace(spec, tasks=(*spec.tasks, a_task(more)))
            case ["program", what, *more]:
                program(world, what, pairs(more))
            case ["at", at, order, *more]:
                world.after(float(at), getattr(orders, order), more)
            case ["until", seconds]:
                world.server.start()
                world.run_until(float(seconds), lambda: False)
            case ["settle"]:
                world.server.start()
                world.run(max(at for at, *_ in world.heap))
                world.settle()
            case _:
                raise ValueError(f"no such order: {line}")
    return f"{world.story.told()}\n\n{records(world)}"


def program(world: World, what: str, given: dict[str, str]) -> None:
    """Say what the attempts of a node or task do."""
    behaviour = Behaviour(**{key: number(value) for key, value in given.items()})
    where, _, count = what.partition("@")
    group, _, node = where.partition("/")
    if count:
        world.behaviours.told[group, node, int(count)] = behaviour
    else:
        world.behaviours.usual[group, node] = behaviour


def records(world: World) -> str:
    """What the records say: phases, budgets, and every attempt with where its log is."""
    lines = []
    for group in world.store.records.values():
        spent = "".join(f", {unit} restarted {count} times" for unit, count in group.restarts)
        lines.append(
            f"{group.spec.name} is {group.phase}: {group.text or group.cause or '-'}{spent}"
        )
        for one in group.attempts:
            how = f"{one.outcome}" if one.outcome else f"{one.stage.name}"
            code = f" with {one.exit_code}" if one.exit_code is not None else ""
            cause = f" ({one.cause})" if one.cause else ""
            lines.append(f"  {one.node}#{one.number} on {one.infra}/{one.host}: {how}{code}{cause}")
    return "\n".join(lines) + "\n"

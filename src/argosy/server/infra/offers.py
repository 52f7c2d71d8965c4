"""What could be had now for a need, on each infra: now, not now because, or never."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from argosy.control.control import Control
from argosy.errors import ArgosyError, InputError, InputErrors
from argosy.infra.api import Infra
from argosy.model.action import Replan
from argosy.model.ids import ZERO, InfraName
from argosy.model.plan import NoPlan, Offer, Plan
from argosy.model.spec import GroupSpec, TaskSpec
from argosy.plan.candidates import Room, choices, rooms
from argosy.plan.planner import plan
from argosy.plan.report import NO_ACCELERATORS
from argosy.server.infra.holders import ANSWER_SECONDS, held, meant, told
from argosy.spec.parse import parse
from argosy.views.text import plural

TASK: Final = "need"
NODES_MOST: Final = 1000  # counted
NOW, NOT_NOW, NEVER = "now", "not-now", "never"
ORDER: Final = (NOW, NOT_NOW, NEVER)


@dataclass(frozen=True, slots=True)
class Asked:
    """A need in the words of the file, and where: a name or a pattern, "" for everywhere."""

    accelerators: tuple[str, ...] = ()
    cpus: str = ""
    memory: str = ""
    infra: str = ""


async def survey(control: Control, asked: Asked) -> dict[str, Any]:
    """The answer of every infra, the best first. Raises InputError, NotFound."""
    spec = spec_of(asked)
    infras = meant(control, asked.infra)
    found = await asyncio.gather(*(_one(control, one, spec) for one in infras))
    ranked = sorted(found, key=lambda one: (ORDER.index(one["verdict"]), one["name"]))
    return {"need": spec.tasks[0].needs[0].describe(), "infras": ranked}


def spec_of(asked: Asked) -> GroupSpec:
    """A group of one node with that need. Raises InputError in the words of the flags."""
    words: dict[str, Any] = {"cpus": asked.cpus, "memory": asked.memory}
    resources = {name: value for name, value in words.items() if value}
    if asked.accelerators:
        resources["accelerators"] = list(asked.accelerators)
    # JSON is YAML: so values are read by the same rules as in a file.
    text = json.dumps({"name": TASK, "resources": resources, "run": "true"})
    try:
        spec = parse(text, file=TASK, base="/").spec
    except InputErrors as errors:  # without their places: there is no file
        found = [InputError(one.text, code=one.code, hint=one.hints) for one in errors.errors]
        raise (found[0] if len(found) == 1 else InputErrors(tuple(found))) from errors
    task = spec.tasks[0]
    needs = tuple(replace(need, infra=asked.infra or None) for need in task.needs)
    return replace(spec, tasks=(replace(task, needs=needs),))


async def _one(control: Control, infra: Infra, spec: GroupSpec) -> dict[str, Any]:
    task = spec.tasks[0]
    there = await held(infra)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            offers = control.lost_hosts.offered(await infra.offers(task.needs[0]))
            if not offers:  # a context of the kubeconfig that nobody has used yet
                return _unknown(infra.name, "not asked yet", (f"`--infra {infra.name}` asks it",))
    except TimeoutError:
        return _unknown(infra.name, f"no answer within {ANSWER_SECONDS:g} s", ())
    except (ArgosyError, OSError) as error:
        hints = error.hints if isinstance(error, ArgosyError) else ()
        return _unknown(infra.name, str(error), hints)
    answer = plan(Replan(ZERO, tuple(spec.nodes()), ()), spec, offers, control.clock.now())
    fitting = [room for room in rooms(offers) if _fits(room, task)]
    return {
        "name": infra.name,
        "verdict": _verdict(answer),
        "text": _words(answer, fitting, offers, task),
        "hints": _hints(infra.name, answer),
        "price_per_hour_usd": _price(answer),
        "fitting": [room.offer.host for room in fitting if room.offer.host],
        "hosts": told(control, there),
    }


def _unknown(name: InfraName, text: str, hints: Sequence[str]) -> dict[str, Any]:
    return {
        "name": name, "verdict": NOT_NOW, "text": [text], "hints": list(hints),
        "price_per_hour_usd": 0.0, "fitting": [], "hosts": [],
    }  # fmt: skip


def _verdict(answer: Plan | NoPlan) -> str:
    if isinstance(answer, Plan):
        return NOW
    return NEVER if answer.never else NOT_NOW


def _price(answer: Plan | NoPlan) -> float:
    return answer.placements[0].price_per_hour_usd if isinstance(answer, Plan) else 0.0


def _fits(room: Room, task: TaskSpec) -> bool:
    return any(room.takes(choice) for choice in choices(task))


def _words(
    answer: Plan | NoPlan, fitting: list[Room], offers: Sequence[Offer], task: TaskSpec
) -> list[str]:
    if isinstance(answer, NoPlan):
        return [_about_the_infra(line) for line in answer.report.refused]
    fixed = [room for room in fitting if room.fixed]
    if not fixed:
        return ["it would be made when asked for"]
    hosts = plural(sum(1 for offer in offers if offer.host is not None), "host")
    if all(room.elastic for room in fixed) and not task.needs[0].accelerators:
        return [f"{len(fixed)} of {hosts}; cores and memory are not counted there"]
    count = sum(_count(room, task) for room in fixed)
    more = f"{NODES_MOST} or more such nodes" if count >= NODES_MOST else _nodes(count)
    return [f"{len(fixed)} of {hosts}, with room for {more}"]


def _nodes(count: int) -> str:
    return "one such node" if count == 1 else f"{count} such nodes"


def _about_the_infra(line: str) -> str:
    """A refusal of the planner without the task, which is only a means here."""
    _, wanted, rest = line.partition(" wanted, ")
    return (rest if wanted else line).removesuffix(f": {NO_ACCELERATORS}")


def _count(room: Room, task: TaskSpec) -> int:
    """How many such nodes fit; the room is full afterwards."""
    count = 0
    while count < NODES_MOST:
        way = next((choice for choice in choices(task) if room.takes(choice)), None)
        if way is None:
            break
        room.take(way)
        count += 1
    return count


def _hints(name: InfraName, answer: Plan | NoPlan) -> list[str]:
    """How to get it there."""
    if isinstance(answer, Plan):
        return []
    kind, _, pool = name.partition("/")
    if not answer.never:
        return ["a group that is launched waits in the queue until it is free"]
    if kind == "kubernetes":
        return ["the cluster needs a node with as much: ask who runs it for a node pool"]
    if pool:
        return ["`argosy config edit`: the hosts of the pool stand there"]
    return []

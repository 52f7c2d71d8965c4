"""Rules between tasks: names, dependencies, primaries, restarts along, ports."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from argosy.model.ids import TaskName, dns_label
from argosy.model.spec import Condition, EndsWith, Execution, Scope
from argosy.spec.keys.model import MAX_NAME, MAX_NODES
from argosy.spec.keys.shapes import Fields
from argosy.spec.source.notes import Mark, Notes
from argosy.spec.source.words import listed, nearest_word
from argosy.spec.task import Draft, never_ends

_GROUP_NAME = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_TASK_NAME = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)  # dots: in pipelines and single tasks
_NODE_NAME = re.compile(r"(.+)-(0|[1-9][0-9]{0,4})", re.ASCII)
PRIMARY_WORDS: Final = ("primary_tasks", "termination_delay")


def check_name(name: str, mark: Mark, what: str, notes: Notes, *, dots: bool = False) -> None:
    """Note a name that cannot become a part of a host name. `what` is "group" or "task"."""
    label = dns_label(name)
    if not (_TASK_NAME if dots else _GROUP_NAME).fullmatch(name) or not label:
        good = label[:MAX_NAME].rstrip("-")
        hint = f"`name: {good}` would do" if good else "use letters, digits, `-` and `_`"
        text = f"the name `{name[:60]}` of a {what} has other signs than letters, digits, `-`, `_`"
        if not label:
            text = f"the name `{name[:60]}` of a {what} has neither a letter nor a digit"
        notes.error(mark, "name", text, hint)
    elif len(label) > MAX_NAME:
        notes.error(
            mark, "name-too-long",
            f"the name of a {what} has {len(label)} characters; {MAX_NAME} fit into a host name",
            f"shorten it by {len(label) - MAX_NAME}",
        )  # fmt: skip


def check_tasks(drafts: list[Draft], execution: Execution, notes: Notes) -> None:
    """Everything that concerns more than one task, but the header."""
    _check_unique(drafts, notes)
    _check_balanced(drafts, notes)
    _check_count(drafts, notes)
    for one in drafts:
        _check_along(one, drafts, notes)
    _check_depends(drafts, execution, notes)


def _check_unique(drafts: list[Draft], notes: Notes) -> None:
    seen: dict[str, Draft] = {}
    for one in drafts:
        label = dns_label(one.spec.name)
        first = seen.setdefault(label, one)
        if first is one or not label:
            continue
        same = first.spec.name == one.spec.name
        notes.error(
            one.mark("name"), "duplicate-task",
            f"two tasks are named `{one.spec.name[:60]}`" if same else
            f"`{first.spec.name[:60]}` and `{one.spec.name[:60]}` have one host name, `{label}`",
            f"rename one; the first is in line {first.mark('name').line}",
        )  # fmt: skip


def _check_balanced(drafts: list[Draft], notes: Notes) -> None:
    """A balanced task named `a-1` would have the host name of node 1 of `a`."""
    by_label = {dns_label(one.spec.name): one for one in drafts}
    for one in drafts:
        form = _NODE_NAME.fullmatch(dns_label(one.spec.name)) if one.spec.balance else None
        other = by_label.get(form[1]) if form else None
        if form and other and int(form[2]) < other.spec.num_nodes:
            notes.error(
                one.mark("name"), "balanced-name",
                f"`{form[0]}` is the balanced name of `{one.spec.name}` and the host name of a node"
                f" of `{other.spec.name}`",
                "rename one of the two tasks",
            )  # fmt: skip


def _check_count(drafts: list[Draft], notes: Notes) -> None:
    total = sum(one.spec.num_nodes for one in drafts)
    if total > MAX_NODES:
        biggest = max(drafts, key=lambda one: one.spec.num_nodes)
        notes.error(
            biggest.mark("num_nodes"), "too-many-nodes",
            f"the tasks have {total:,} nodes together; a group has at most {MAX_NODES:,}",
            "lower `num_nodes`, or make several groups",
        )  # fmt: skip


def known_task(
    name: str, mark: Mark, about: str, names: Iterable[str], notes: Notes
) -> TaskName | None:
    """The task of that name, also in other letter case; None after an error with the nearest."""
    every = list(names)
    if name in every:
        return name
    near = nearest_word(name, every)
    notes.error(
        mark, "unknown-task", f"`{about}` names `{name[:60]}`, and there is no such task",
        f"did you mean `{near}`?" if near else f"tasks: {listed(every)}",
    )  # fmt: skip
    return None


def _check_along(one: Draft, drafts: list[Draft], notes: Notes) -> None:
    restart: Fields | None = one.fields.get("restart")
    if restart is None:
        return
    names = [other.spec.name for other in drafts]
    for name in one.along:
        known_task(name, restart.mark("with"), "restart.with", names, notes)
        if name == one.spec.name:
            notes.error(
                restart.mark("with"), "restart-with",
                f"`restart.with` of `{name}` names the task itself",
                "name other tasks; `scope: task` restarts all nodes of this one",
            )  # fmt: skip
    if one.along and one.spec.restart.scope is Scope.GROUP:
        notes.warn(
            restart.mark("with"), "restart-with",
            "`with` adds nothing to `scope: group`, which restarts every task", "remove `with`",
        )  # fmt: skip


def conditions(one: Draft, drafts: dict[TaskName, Draft]) -> tuple[tuple[TaskName, Condition], ...]:
    """What a task waits for; without a condition: healthy where there is a probe, else started."""
    made = []
    for key, word in one.depends:
        other = drafts.get(key.text)
        if other is not None:
            default = Condition.HEALTHY if other.spec.ready else Condition.STARTED
            made.append((other.spec.name, Condition(word) if word else default))
    return tuple(dict.fromkeys(made))


def _check_depends(drafts: list[Draft], execution: Execution, notes: Notes) -> None:
    by_name = {one.spec.name: one for one in drafts}
    order = {one.spec.name: position for position, one in enumerate(drafts)}
    for one in drafts:
        seen: set[str] = set()
        for key, word in one.depends:
            other = by_name.get(key.text)
            if known_task(key.text, key.mark, "depends_on", by_name, notes) is None or not other:
                continue
            if key.text in seen:
                notes.error(key.mark, "depends-twice", f"`{key.text}` is named twice", "keep one")
            seen.add(key.text)
            if other is one:
                notes.error(
                    key.mark, "cycle", f"`{key.text}` depends on itself", "remove it"
                )  # fmt: skip
            elif word == Condition.HEALTHY and other.spec.ready is None:
                notes.error(
                    key.mark, "never-healthy",
                    f"`{one.spec.name}` waits for `{key.text}` to be healthy, and `{key.text}` has"
                    " no probe",
                    f"add `ready: {{tcp: PORT}}` to `{key.text}`, or wait for `started`",
                )  # fmt: skip
            elif execution is Execution.SERIAL and order[key.text] > order[one.spec.name]:
                notes.error(
                    key.mark, "serial-order",
                    f"`{key.text}` comes later in a serial group, so `{one.spec.name}` would never"
                    " start",
                    "put the documents into the order in which they run",
                )  # fmt: skip
    _check_cycles(by_name, notes)


def _check_cycles(by_name: dict[TaskName, Draft], notes: Notes) -> None:
    """Note each circle of dependencies once, with all its members. (Kahn, then a walk.)"""
    waits = {
        name: [k.text for k, _ in one.depends if k.text in by_name and k.text != name]
        for name, one in by_name.items()
    }
    left = dict(waits)
    while free := [name for name, others in left.items() if not any(o in left for o in others)]:
        for name in free:
            del left[name]
    while left:
        circle = _circle(left)
        key = next(k for k, _ in by_name[circle[0]].depends if k.text == circle[1 % len(circle)])
        notes.error(
            key.mark, "cycle",
            "these tasks wait for each other: " + " -> ".join(listed_circle(circle)),
            "remove one of these `depends_on`",
        )  # fmt: skip
        for name in circle:
            left.pop(name, None)
        while free := [name for name, others in left.items() if not any(o in left for o in others)]:
            for name in free:
                del left[name]


def _circle(left: dict[TaskName, list[TaskName]]) -> list[TaskName]:
    walk: list[TaskName] = []
    name = next(iter(left))
    while name not in walk:
        walk.append(name)
        name = next(other for other in left[name] if other in left)
    return walk[walk.index(name) :]


def listed_circle(circle: list[TaskName]) -> list[str]:
    """The members of a circle, the first again at the end; a long one is cut."""
    shown = circle if len(circle) <= 12 else [*circle[:11], "..."]
    return [*shown, circle[0]]


def primaries(header: Fields | None, drafts: list[Draft], notes: Notes) -> set[TaskName]:
    """The names of the primary tasks: all, unless the header names some."""
    every = [one.spec.name for one in drafts]
    named: tuple[str, ...] = header.get("primary_tasks", ()) if header is not None else ()
    if header is None or not named:
        return set(every)
    mark = header.mark("primary_tasks")
    found = {known_task(name, mark, "primary_tasks", every, notes) for name in named}
    return {name for name in found if name is not None}


def delays(
    header: Fields | None, primary: set[TaskName], drafts: list[Draft], notes: Notes
) -> dict[TaskName, float]:
    """The termination delay of each task, in seconds."""
    value = header.get("termination_delay") if header is not None else None
    names = [one.spec.name for one in drafts]
    if header is None or value is None:
        return dict.fromkeys(names, 0.0)
    if not isinstance(value, tuple):
        return dict.fromkeys(names, float(value))
    default = 0.0
    own: dict[TaskName, float] = {}
    for key, seconds in value:
        if key.text == "default" and "default" not in names:
            default = seconds
            continue
        name = known_task(key.text, key.mark, "termination_delay", [*names, "default"], notes)
        if name in primary:
            notes.warn(
                key.mark, "delay-of-primary",
                f"`termination_delay` of `{name}` means nothing, since the task is primary",
                "remove it, or name only the deciding tasks in `primary_tasks`",
            )  # fmt: skip
        if name is not None:
            own[name] = seconds
    return {name: own.get(name, default) for name in names}


def lint_budget(header: Fields | None, drafts: list[Draft], notes: Notes) -> None:
    """Warn of failures that restart the whole group, where the group may not be started anew."""
    if header is not None and header.get("restarts", 0):
        return
    for one in drafts:
        restart = one.spec.restart
        fails = restart.on_failure or restart.on_codes
        if restart.scope is Scope.GROUP and fails and restart.max is None:
            own: Fields = one.fields.get("restart")
            notes.warn(
                own.mark("scope"), "no-budget",
                f"a failure of `{one.spec.name}` is to restart the group, and the group's"
                " `restarts` are 0",
                "write `restarts: N` into the header, or `max: N` here",
            )  # fmt: skip


def lint_endless(drafts: list[Draft], primary: set[TaskName], notes: Notes) -> None:
    """Warn of primaries that wait for ever on ranks above 0, so that their group never ends."""
    for one in drafts:
        task = one.spec
        if task.name not in primary or not never_ends(task) or task.ends_with is EndsWith.HEAD:
            continue
        hint = (
            "add `ends_with: head`: the task is over when node 0 is"
            if task.num_nodes > 1
            else "name the tasks that decide in `primary_tasks`, and leave this one out"
        )
        notes.warn(
            one.mark("run"), "never-ends",
            f"task `{task.name}` never ends: its script waits for ever, and the group waits for it",
            hint,
        )  # fmt: skip

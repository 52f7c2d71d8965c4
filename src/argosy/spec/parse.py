"""A task file to a GroupSpec: the order of the steps. Pure; every error of the file at once."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace

from argosy.errors import InputErrors
from argosy.model.ids import dns_label
from argosy.model.spec import Execution, GroupSpec, OnFailure, TaskSpec
from argosy.spec import rules
from argosy.spec.keys.model import HEADER, MAX_NAME
from argosy.spec.keys.resources import INFRAS, read_infra
from argosy.spec.keys.shapes import Fields
from argosy.spec.keys.skypilot import legacy_placement
from argosy.spec.layout import Layout, apply_sets, lay_out, with_defaults
from argosy.spec.mounts import Folders
from argosy.spec.overrides import Overrides
from argosy.spec.source.file import Map, Scalar, absent, documents, open_notes
from argosy.spec.source.notes import LocalPath, Mark, Notes, Warning_
from argosy.spec.task import Draft, draft, with_conditions
from argosy.spec.variables import Missing, note_missing, variables_of

NETWORKS = ("isolated", "host")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A file that is right, and what is doubtful about it, in the order of the file.

    `local_paths` are what it takes from the submitter's machine: whether they are there is for
    those to find out who may look.
    """

    spec: GroupSpec
    warnings: tuple[Warning_, ...] = ()
    local_paths: tuple[LocalPath, ...] = ()


def parse(
    text: bytes | str,
    *,
    file: str,
    base: str,
    home: str = "",
    overrides: Overrides | None = None,
    user: str = "",
    secrets_later: bool = False,
) -> Parsed:
    """What the file means, with every default filled in and every rule checked.

    `file` is its name, for messages; `base` the absolute folder that relative paths start from,
    `home` the submitter's (without it `~` stays as it is). With `secrets_later` a secret without a
    value is a warning. Raises InputErrors with every error.
    """
    chosen = overrides or Overrides()
    decoded, notes = open_notes(text, file)
    layout = lay_out(documents(decoded, notes), notes)
    if layout is None:
        notes.raise_errors()
        raise InputErrors(())  # not reached: no layout without an error
    layout = apply_sets(layout, chosen.sets, notes)
    chosen = _checked(chosen, notes)
    header = HEADER.read(layout.header, "", notes)
    _look_at_header(layout, notes)
    name = _group_name(layout, header, file, chosen, notes)
    missing = Missing()
    drafts = _drafts(layout, name, chosen, Folders(base, home), missing, notes)
    note_missing(missing, notes, secrets_later=secrets_later)
    rules.check_tasks(drafts, layout.execution, notes)
    spec = _group(layout, header, name, drafts, notes)
    notes.raise_errors()
    spec = replace(spec, user=user, network=chosen.network)
    return Parsed(spec, notes.sorted_warnings(), tuple(notes.local_paths))


def _checked(overrides: Overrides, notes: Notes) -> Overrides:
    """The overrides with the infra's name made regular; flags that are wrong are noted."""
    if overrides.network not in ("", *NETWORKS):
        flag = f"--network {overrides.network}"
        notes.error(
            Mark(0, 0, flag), "network", f"`{overrides.network[:60]}` is no kind of network",
            "give `--network isolated` or `--network host`",
        )  # fmt: skip
    if not overrides.infra:
        return overrides
    mark = Mark(0, 0, f"--infra {overrides.infra[:80]}")
    infra = read_infra(Scalar(overrides.infra, overrides.infra, mark), "--infra", notes)
    return replace(overrides, infra=infra or INFRAS[0])


def _look_at_header(layout: Layout, notes: Notes) -> None:
    placement = layout.header.get("placement")
    if placement is not None and not absent(placement):
        legacy_placement(placement, notes)
    if layout.execution is not Execution.SERIAL:
        return
    for key, value in layout.header.pairs:
        if key.text in rules.PRIMARY_WORDS and not absent(value):
            notes.error(
                key.mark, "serial-primary",
                f"`{key.text}` is for tasks that run together; in a serial group the last decides",
                "remove it, or write `execution: parallel`",
            )  # fmt: skip


def _group_name(
    layout: Layout, header: Fields | None, file: str, overrides: Overrides, notes: Notes
) -> str:
    """The DNS form of the group's name: `--name`, the header's, the only task's, the file's."""
    single = layout.tasks[0].get("name") if layout.single and not layout.headed else None
    if overrides.name:
        mark = Mark(0, 0, f"--name {overrides.name[:80]}")
        rules.check_name(overrides.name, mark, "group", notes)
        return dns_label(overrides.name)
    if header is not None and "name" in header:
        name = str(header.get("name"))
        rules.check_name(name, header.mark("name"), "group", notes)
        return dns_label(name)
    if isinstance(single, Scalar) and single.native is not None:
        return dns_label(single.text)
    stem = posixpath.basename(file.replace("\\", "/")).partition(".")[0]
    return dns_label(stem)[:MAX_NAME].strip("-") or "group"


def _drafts(
    layout: Layout,
    group: str,
    overrides: Overrides,
    folders: Folders,
    missing: Missing,
    notes: Notes,
) -> list[Draft]:
    found: list[Draft] = []
    together = layout.headed and layout.execution is Execution.PARALLEL
    for position, document in enumerate(layout.tasks):
        task = with_defaults(document, layout.header)
        name = group if len(layout.tasks) == 1 else f"{group}-{position}"
        written = task.get("name")
        if together and (written is None or absent(written)):
            notes.error(
                document.mark, "no-name", "this task has no `name`, and in a group each has one",
                "add `name: ...`; its nodes are reached by it",
            )  # fmt: skip
        variables = variables_of(task, overrides, missing, notes)
        made = draft(task, name, variables, overrides=overrides, folders=folders, notes=notes)
        if made is not None:
            dots = not together
            rules.check_name(made.spec.name, made.mark("name"), "task", notes, dots=dots)
            found.append(made)
    return found


def _group(
    layout: Layout, header: Fields | None, name: str, drafts: list[Draft], notes: Notes
) -> GroupSpec:
    head = header or Fields(Map(Mark(1, 1)))
    primary = rules.primaries(header, drafts, notes)
    delay = rules.delays(header, primary, drafts, notes)
    rules.lint_endless(drafts, primary, notes)
    rules.lint_budget(header, drafts, notes)
    by_name = {one.spec.name: one for one in drafts}
    given = [one.priority for one in drafts if one.priority is not None]

    def finished(one: Draft) -> TaskSpec:
        task = with_conditions(one.spec, rules.conditions(one, by_name))
        return replace(
            task, primary=task.name in primary, termination_delay=delay.get(task.name, 0.0)
        )

    return GroupSpec(
        name=name,
        tasks=tuple(finished(one) for one in drafts),
        execution=layout.execution,
        inter_connection=head.get("inter_connection"),
        start_timeout=float(head.get("start_timeout", 900.0)),
        priority=int(head.get("priority", max(given, default=0))),
        max_duration=head.get("max_duration"),
        on_failure=OnFailure(head.get("on_failure", "wait")),
        restarts=int(head.get("restarts", 0)),
    )

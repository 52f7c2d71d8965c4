"""The volumes that a group names, put into its spec; and what may change of one that is there."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace

from argosy.errors import ArgosyError, Conflict, InputError, InputErrors, NotFound
from argosy.model.spec import GroupSpec, TaskSpec, VolumeMount
from argosy.model.volumes import Volume, VolumeSpec

CHANGEABLE = ("size_gib", "labels")


def resolved(spec: GroupSpec, volumes: Mapping[str, Volume]) -> GroupSpec:
    """The spec with what each name means. Raises NotFound, Conflict, InputErrors."""
    if not any(task.volumes for task in spec.tasks):
        return spec
    _check_shared(spec)
    errors: list[ArgosyError] = []
    tasks = tuple(_resolved(task, volumes, errors) for task in spec.tasks)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise InputErrors(tuple(InputError(one.text, code=one.code, hint=one.hints)
                                for one in errors))  # fmt: skip
    return replace(spec, tasks=tasks)


def _resolved(task: TaskSpec, volumes: Mapping[str, Volume], errors: list[ArgosyError]) -> TaskSpec:
    mounts = []
    for mount in task.volumes:
        if not mount.name or mount.ephemeral:
            mounts.append(mount)
            continue
        found = volumes.get(mount.name)
        if found is None:
            errors.append(_unknown(task, mount, volumes))
        elif found.deleting:
            errors.append(_going(task, mount, found))
        else:
            mounts.append(replace(mount, volume=found.spec, id=found.id))
    return replace(task, volumes=tuple(mounts))


def _going(task: TaskSpec, mount: VolumeMount, volume: Volume) -> Conflict:
    state = "is being deleted" if volume.whole else "is not whole: making it was interrupted"
    mending = f"`argosy volumes delete {mount.name} -y` finishes it"
    if not volume.whole:
        mending = "make it again as before, and it goes on; or delete it"
    return Conflict(
        f'task "{task.name}" mounts the volume {mount.name!r}, which {state}',
        code="volumes/deleted",
        hint=mending,
    )


def _unknown(task: TaskSpec, mount: VolumeMount, volumes: Mapping[str, Volume]) -> NotFound:
    near = difflib.get_close_matches(mount.name, volumes, n=1, cutoff=0.5)
    made = _how_to_make(mount.name, task.needs[0].infra or "local")
    return NotFound(
        f'task "{task.name}" mounts the volume {mount.name!r} at {mount.destination}, and there '
        "is none of that name",
        code="volumes/unknown",
        hint=(f"did you mean {near[0]!r}?", made) if near else made,
    )


def _how_to_make(name: str, infra: str) -> str:
    """The command that makes one where the task may run."""
    command, kind = f"argosy volumes create {name}", infra.partition("/")[0]
    match kind:
        case "local" if infra == "local":
            return f"`{command}` makes one on this machine"
        case "kubernetes":
            return f"`{command} --infra {infra} --size 10Gi` makes a claim there"
        case "local" | "ssh" if infra != "ssh" and "*" not in infra:
            return f"`{command} --infra {infra}` makes one there"
        case "ssh":
            return f"`{command} --infra ssh/POOL` makes one on a host of a pool"
    return f"`{command} --infra INFRA` makes one there: docs/volumes.md"


def _check_shared(spec: GroupSpec) -> None:
    """Tasks that share a volume of the group describe the same one."""
    first: dict[str, tuple[str, VolumeSpec]] = {}
    for task in spec.tasks:
        for mount in task.volumes:
            if not (mount.ephemeral and mount.name):
                continue
            before, known = first.setdefault(mount.name, (task.name, mount.spec))
            if known != mount.spec:
                raise InputError(
                    f'the tasks "{before}" and "{task.name}" describe the volume {mount.name!r} '
                    "of the group in two ways",
                    code="volumes/two-ways",
                    hint="give it the same `size`, `type`, `labels` and `config` in both",
                )


def changed(before: Volume, spec: VolumeSpec) -> Volume:
    """The volume with what `spec` changes. Raises Conflict for what cannot change."""
    if before.deleting:
        state = "is being deleted" if before.whole else "is another one, which is not whole"
        raise Conflict(
            f"the volume {spec.name!r} {state}",
            code="volumes/deleted",
            hint=f"`argosy volumes delete {spec.name}` finishes that; then make this one",
        )
    kept = {name: getattr(before.spec, name) for name in CHANGEABLE}
    if replace(spec, **kept) != before.spec:
        fields = [
            name
            for name in VolumeSpec.__dataclass_fields__
            if name not in CHANGEABLE and getattr(spec, name) != getattr(before.spec, name)
        ]
        what = ", ".join(_word(name) for name in fields)
        raise Conflict(
            f"the volume {spec.name!r} is there, and cannot change its {what}",
            code="volumes/cannot-change",
            hint=f"`argosy volumes delete {spec.name}` first, or give this one another name",
        )
    return replace(before, spec=spec)


def same(before: Volume, spec: VolumeSpec) -> Volume:
    """The volume, which is what `spec` says. Raises Conflict where it is another one."""
    after = changed(before, spec)
    if after == before:
        return before
    what = " and ".join(
        word
        for name, word in (("size_gib", "another size"), ("labels", "other labels"))
        if getattr(spec, name) != getattr(before.spec, name)
    )
    raise Conflict(
        f"the volume {spec.name!r} is there already, with {what}",
        code="volumes/there",
        hint=(
            f"`argosy volumes apply FILE` changes the size and the labels of {spec.name}",
            f"`argosy volumes delete {spec.name}` first, or give this one another name",
        ),
    )


def _word(field: str) -> str:
    return {"kind": "type", "storage_class": "storage_class_name"}.get(field, field)

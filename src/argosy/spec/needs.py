"""`resources` to needs: alternatives, places, and the words that only some infras carry out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from argosy.model.needs import Accelerator, Need
from argosy.spec.keys.shapes import Fields
from argosy.spec.overrides import Overrides
from argosy.spec.source.notes import NOWHERE, Mark, Notes

_PLACES: Final = ("infra", "cloud", "region", "zone")
_MACHINES: Final = ("local", "ssh", "slurm", "kubernetes")  # infras without instance types
_OTHER: Final = (
    "disk_tier", "network_tier", "local_disk", "priority_class", "accelerator_args", "autostop",
    "volumes",
)  # fmt: skip

# What `plan` says of each word that was read and checked: carried out by nobody yet, or not on the
# infra of the task (plan/cautions.py).
_SENTENCES: Final = {
    "use_spot": "there is no spot capacity, so ordinary capacity is used",
    "instance_type": "machine types belong to clouds, which this version does not reach",
    "image_id": "no image is run there: the task runs on the host's own system",
    "disk_size": "no disk is made; the host's own disk is used",
    "ephemeral_storage": "no disk is made; the host's own disk is used",
    "disk_tier": "disks belong to clouds; the host's own disk is used",
    "local_disk": "disks belong to clouds; the host's own disk is used",
    "volumes": "disks belong to clouds; the host's own disk is used",
    "network_tier": "the host's own network is used",
    "max_hourly_cost": "it is compared with the prices that an infra names; this machine has none",
    "labels": "labels are for clouds and Kubernetes; nothing is labelled here",
    "accelerator_args": "TPUs belong to clouds, which this version does not reach",
    "autostop": "capacity is given back as soon as a task has ended",
    "priority_class": "priority classes belong to Kubernetes; `priority` orders groups here",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `resources` says of one task."""

    needs: tuple[Need, ...] = (Need(),)
    ordered: bool = False
    ports: tuple[str, ...] = ()
    recovery: Any = None  # a name or Fields; None: nothing
    recovery_mark: Mark = NOWHERE
    priority: int | None = None
    sentences: tuple[str, ...] = ()


def wanted_of(resources: Fields | None, overrides: Overrides, notes: Notes) -> Wanted:
    """The needs of a task, after `--infra` and `--no-accelerators`."""
    if resources is None:
        return Wanted(needs=(_overridden(Need(), overrides),))
    _check_pairs(resources, notes)
    word = "ordered" if resources.get("ordered") else "any_of"
    alternatives: tuple[Fields, ...] = resources.get(word) or ()
    base = {k: v for k, v in resources.values.items() if k not in ("any_of", "ordered")}
    all_values = [_over(base, one.values) for one in alternatives] or [base]
    for one in alternatives:
        _check_place(one, notes)
    needs = tuple(dict.fromkeys(_overridden(_need(v), overrides) for v in all_values))
    recovery, mark = _recovery(resources, alternatives, notes)
    said = {key for values in all_values for key, value in values.items() if value is not False}
    return Wanted(
        needs=needs,
        ordered=word == "ordered" and len(needs) > 1,
        ports=needs[0].ports,
        recovery=recovery,
        recovery_mark=mark,
        priority=max((v["priority"] for v in all_values if "priority" in v), default=None),
        sentences=tuple(
            f"`resources.{key}`: {text}" for key, text in _SENTENCES.items() if key in said
        ),
    )


def _check_pairs(resources: Fields, notes: Notes) -> None:
    if "any_of" in resources and "ordered" in resources:
        notes.error(
            resources.mark("ordered"), "any-of-and-ordered",
            "`any_of` and `ordered` are both given",
            "keep `any_of` (the cheapest that fits) or `ordered` (the first that fits)",
        )  # fmt: skip
    for one, other in (("accelerators", "gpus"), ("disk_size", "ephemeral_storage"),
                       ("priority", "priority_class")):  # fmt: skip
        if one in resources and other in resources:
            notes.error(
                resources.mark(other), "given-twice", f"`{one}` and `{other}` are both given",
                f"keep `{one}`",
            )  # fmt: skip
    _check_place(resources, notes)


def _check_place(resources: Fields, notes: Notes) -> None:
    old = [key for key in _PLACES[1:] if key in resources]
    if "infra" in resources and old:
        notes.error(
            resources.mark(old[0]), "infra-and-cloud",
            f"`infra` is given, and `{old[0]}` too, which is its old form",
            f"remove `{old[0]}`, and write all into `infra: cloud/region/zone`",
        )  # fmt: skip


def _over(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """`own` put over `base`: a place replaces the whole place, labels are joined."""
    beneath = dict(base)
    for words in (_PLACES, ("accelerators", "gpus"), ("disk_size", "ephemeral_storage")):
        if any(key in own for key in words):
            beneath = {key: value for key, value in beneath.items() if key not in words}
    made = {**beneath, **own}
    if "labels" in base and "labels" in own:
        joined = {key.text: (key, value) for key, value in (*base["labels"], *own["labels"])}
        made["labels"] = tuple(joined.values())
    return made


def _need(values: dict[str, Any]) -> Need:
    cards, in_order = values.get("accelerators") or values.get("gpus") or ((), False)
    cpus = values.get("cpus")
    memory = values.get("memory")
    disk = values.get("disk_size") or values.get("ephemeral_storage")
    labels = tuple((key.text, value) for key, value in values.get("labels", ()))
    return Need(
        infra=_infra(values),
        cpus=cpus[0] if cpus else None,
        cpus_exact=bool(cpus and cpus[1]),
        memory_gib=memory[0] if memory else None,
        memory_exact=bool(memory and memory[1]),
        accelerators=cards,
        accelerators_ordered=in_order,
        use_spot=bool(values.get("use_spot")),
        instance_type=values.get("instance_type"),
        disk_gib=disk[0] if disk else None,
        image=values.get("image_id"),
        ports=values.get("ports", ()),
        labels=labels,
        max_price_per_hour_usd=values.get("max_hourly_cost"),
        other=tuple((key, _plain(values[key])) for key in _OTHER if key in values),
    )


def _plain(value: Any) -> str:
    return str(value[0] if isinstance(value, tuple) else value)


def _infra(values: dict[str, Any]) -> str | None:
    infra: str | None = values.get("infra")
    if infra is not None:
        return None if set(infra) <= {"*", "/"} else infra
    old = [values.get("cloud"), values.get("region"), values.get("zone")]
    while old and old[-1] is None:
        old.pop()
    return "/".join(part or "*" for part in old) or None


def _overridden(need: Need, overrides: Overrides) -> Need:
    cards: tuple[Accelerator, ...] = () if overrides.no_accelerators else need.accelerators
    made = replace(
        need, accelerators=cards, accelerators_ordered=need.accelerators_ordered and len(cards) > 1
    )
    if not overrides.infra:
        return made
    kind = overrides.infra.partition("/")[0]
    kept = None if kind in _MACHINES else need.instance_type
    return replace(made, infra=overrides.infra, instance_type=kept)


def _recovery(
    resources: Fields, alternatives: tuple[Fields, ...], notes: Notes
) -> tuple[Any, Mark]:
    """`job_recovery`, which must be the same for all alternatives."""
    found = [(f.get("job_recovery"), f.mark("job_recovery"))
             for f in (resources, *alternatives) if "job_recovery" in f]  # fmt: skip
    if not found:
        return None, NOWHERE
    for value, mark in found[1:]:
        if _compared(value) != _compared(found[0][0]):
            notes.error(
                mark, "recovery-differs", "`job_recovery` differs between alternatives",
                "write it once, beside `any_of`",
            )  # fmt: skip
    return found[0]


def _compared(value: Any) -> Any:
    return value.values if isinstance(value, Fields) else value

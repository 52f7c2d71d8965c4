"""What an infra would be sent for a file, as text; nothing is made, and nothing is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from argosy.control.control import Control
from argosy.errors import InputError, NotFound
from argosy.infra.api import Exports
from argosy.model.action import LeaseRequest, lease_request
from argosy.model.ids import InfraName, Serial, group_id, lease_id
from argosy.model.plan import Placement, Plan
from argosy.model.spec import GroupSpec
from argosy.plan.candidates import named
from argosy.views.near import unknown_infra

PREVIEW: Final = 0  # the count of a group that no launch is given


def refuse_unknown(control: Control, asked: InfraName) -> None:
    """Raises InputError for a kind of infra that is not exported to, NotFound for an unknown one.

    `asked`: `kubernetes/prod`, or `kubernetes` for the one that a launch would choose.
    """
    if _exporting(control, named(asked, control.infras)):
        return
    kinds = sorted({one.name.partition("/")[0] for one in _exporting(control, control.infras)})
    if asked.partition("/")[0] in kinds:
        text, hints = unknown_infra(asked, control.infras)
        raise NotFound(text, code="infra/unknown", hint=hints)
    raise InputError(
        f"nothing can be exported to {asked!r} here",
        code="export/no-infra",
        hint=f"choose {' or '.join(kinds)}" if kinds else "name a context in config.yaml: "
        "docs/kubernetes.md shows how",
    )  # fmt: skip


async def exported(
    control: Control, spec: GroupSpec, asked: InfraName, *, whole: bool
) -> tuple[str, tuple[str, ...]]:
    """The text, and what is to be said of it. `spec` names `asked` in all its needs.

    What does not fit now, or an infra that does not answer, is exported all the same: with no
    host chosen. Raises InputError where several infras are meant and none has room.
    """
    found = await control.plan(spec)
    placements = found.placements if isinstance(found, Plan) else ()
    notes = () if isinstance(found, Plan) else found.report.refused
    infra = _chosen(control, asked, placements)
    spec = control.volumes.placed(control.volumes.resolved(spec))
    requests = _requests(control, spec, placements or _anywhere(spec, infra.name))
    text = await infra.manifests(requests, whole=whole)
    return text, notes


def _exporting(control: Control, names: Iterable[InfraName]) -> list[Exports]:
    """Those of them that can be exported to."""
    found = (control.infras[name] for name in sorted(set(names)))
    return [one for one in found if isinstance(one, Exports)]


def _chosen(control: Control, asked: InfraName, placements: tuple[Placement, ...]) -> Exports:
    """The infra of the plan; without one, the only one that may be meant."""
    names = {one.infra for one in placements} or named(asked, control.infras)
    found = _exporting(control, names)
    if len(found) == 1:
        return found[0]
    contexts = ", ".join(sorted(one.name.partition("/")[2] for one in found))
    raise InputError(
        f"several infras are called {asked}, and none has room now",
        code="export/several",
        hint=f"`--context` chooses one of {contexts}",
    )


def _anywhere(spec: GroupSpec, infra: InfraName) -> tuple[Placement, ...]:
    """Every node with its first choice, on a host that the infra picks."""
    found = []
    for node in spec.nodes():
        need = spec.task(node.task).needs[0]
        card = need.accelerators[0] if need.accelerators else None
        found.append(Placement(node, infra, None, need, card))
    return tuple(found)


def _requests(
    control: Control, spec: GroupSpec, placements: tuple[Placement, ...]
) -> tuple[LeaseRequest, ...]:
    group = group_id(control.store.server_id, Serial(control.life, PREVIEW))
    return tuple(
        lease_request(group, spec, lease_id(group, Serial(control.life, number)), placement)
        for number, placement in enumerate(placements, start=1)
    )

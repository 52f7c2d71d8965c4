"""What one decision looks at: also what no decision tells of."""

from __future__ import annotations

from dataclasses import replace

from argosy.control.observer import left_behind
from argosy.model.group import Phase
from argosy.model.ids import Serial, group_lease, lease_id
from argosy.model.observed import SeenLease, SeenState
from argosy.testing.builders import a_running_group

GROUP = a_running_group()
OWN = GROUP.leases[0].id
STRAY = lease_id(GROUP.id, Serial(1, 99))
WIDE = group_lease(GROUP.id)


def shown(*leases: str) -> tuple[SeenLease, ...]:
    return tuple(SeenLease(one, SeenState.UP) for one in leases)


def test_what_a_record_has_is_told_of_by_its_decision() -> None:
    assert not left_behind(shown(OWN, WIDE), shown(), GROUP)


def test_what_a_record_has_given_up_leaves_room_when_it_is_gone() -> None:
    assert left_behind(shown(OWN, STRAY), shown(OWN), GROUP)
    assert not left_behind(shown(OWN, STRAY), shown(OWN, STRAY), GROUP)


def test_what_a_group_leaves_that_is_over_or_forgotten_is_told_of_too() -> None:
    over = replace(GROUP, phase=Phase.CANCELLED)
    for group in (over, None):
        assert left_behind(shown(WIDE), shown(), group)
        assert not left_behind(shown(WIDE), shown(WIDE), group)

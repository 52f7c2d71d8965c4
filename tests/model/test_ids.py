"""Ids are unique over homes, and short enough for where they go."""

from __future__ import annotations

from argosy.model.ids import Serial, ServerId, attempt_id, group_id

LABEL_MOST = 63  # of a label of Kubernetes, and of a part of a host name


def test_ids_bear_all_of_their_home_and_fit_into_a_label() -> None:
    late = Serial(0xFFFFFFFF, 9999)
    one, other = (group_id(ServerId(server), late) for server in ("0123456789ab", "0123456789ac"))
    assert one != other
    assert len(attempt_id(one, late)) <= LABEL_MOST

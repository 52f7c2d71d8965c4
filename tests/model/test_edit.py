"""An edited value is the one that `dataclasses.replace` gives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from argosy.model.edit import edited
from argosy.model.group import Group, LeaseState, Stage
from argosy.testing.builders import a_lease, a_node, a_running_group, a_task, newest

GROUP: Group = a_running_group(a_task())
CHANGES: list[tuple[Any, dict[str, Any]]] = [
    (a_node(), {"number": 3, "replace": True}),
    (a_lease(), {"state": LeaseState.RELEASING}),
    (newest(GROUP, "trainer-0"), {"stage": Stage.ENDED, "exit_code": 3}),
    (GROUP, {"version": 7, "text": "moved"}),
    (GROUP.placing, {}),
]


@pytest.mark.parametrize(("value", "changes"), CHANGES)
def test_an_edited_value_is_a_changed_copy(value: Any, changes: dict[str, Any]) -> None:
    before = replace(value)
    made = edited(value, **changes)
    assert made == replace(value, **changes)
    assert type(made) is type(value)
    assert made is not value
    assert value == before


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="Node has no field 'numbr'"):
        edited(a_node(), numbr=3)


def test_an_edited_value_is_frozen() -> None:
    with pytest.raises(AttributeError):
        edited(a_node(), number=3).number = 4  # type: ignore[misc]


def test_what_checks_itself_when_it_is_made_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Checked:
        one: int
        two: int

        def __post_init__(self) -> None:
            raise NotImplementedError

    with pytest.raises(AssertionError, match="would not run it"):
        edited(object.__new__(Checked), one=1)

"""An edited value is what `dataclasses.replace` gives; a maker makes what its class makes."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest

from argosy.model.edit import changer, edited, maker
from argosy.model.group import Group, LeaseState, Node, Stage
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


def test_changes_may_come_in_a_mapping() -> None:
    assert changer(Node)(a_node(), {"number": 3}) == replace(a_node(), number=3)


@dataclass(frozen=True, slots=True)
class Plain:
    """As it is written."""

    one: int
    two: str = "two"
    three: tuple[int, ...] = ()


make_plain = maker(Plain)


@pytest.mark.parametrize("values", [(1,), (1, "b"), (1, "b", (3,))])
def test_a_maker_takes_what_the_class_takes(values: tuple[Any, ...]) -> None:
    named: dict[str, Any] = dict(zip(("one", "two", "three"), values))
    assert make_plain(*values) == make_plain(**named) == Plain(*values)


def test_a_made_value_is_frozen_and_can_be_copied() -> None:
    made = make_plain(1)
    with pytest.raises(FrozenInstanceError):
        made.one = 2  # type: ignore[misc]
    assert type(made) is Plain
    assert pickle.loads(pickle.dumps(made)) == made == replace(make_plain(2), one=1)
    assert hash(made) == hash(Plain(1))


@pytest.mark.parametrize("values", [{}, {"one": 1, "four": 4}])
def test_a_maker_takes_the_fields_of_its_class_only(values: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="make_Plain"):
        make_plain(**values)


def test_what_makes_its_defaults_has_no_maker() -> None:
    @dataclass(frozen=True, slots=True)
    class Making:
        one: list[int] = field(default_factory=list)

    with pytest.raises(AssertionError):
        maker(Making)

"""The agent's own `dataclass` does what Python's does, where ours use it."""

from __future__ import annotations

import dataclasses

import pytest

from argosy.agent import records


def both(**options):
    """The same two classes, of each kind."""
    made = []
    for module in (dataclasses, records):

        class Point:
            x: int
            y: int = 2

        class Line:
            ends: list
            by_name: dict
            begin: object = None

        frozen = module.dataclass(frozen=True)
        made.append((frozen(Point), frozen(Line)))
    return made


PAIRS = both()


@pytest.mark.parametrize(("point", "line"), PAIRS)
def test_values_are_what_their_fields_are(point, line):
    assert point(1) == point(x=1, y=2) != point(1, 3)
    assert hash(point(1)) == hash(point(1, 2))
    assert point(1) != (1, 2)
    assert repr(point(1)).endswith("Point(x=1, y=2)")
    assert {point(1): "a"}[point(1, y=2)] == "a"


@pytest.mark.parametrize(("point", "line"), PAIRS)
def test_what_does_not_fit_is_refused(point, line):
    for values, named in (((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1})):
        with pytest.raises(TypeError):
            point(*values, **named)
    with pytest.raises(AttributeError):
        point(1).x = 5
    with pytest.raises(AttributeError):
        del point(1).x


def test_copies_and_plain_values_are_the_same():
    found = []
    for module, (point, line) in zip((dataclasses, records), PAIRS, strict=True):
        one = line([point(1), (point(2), 3)], {"a": point(4)}, point(5))
        found.append((module.asdict(one), repr(module.replace(one, ends=[]))))
    assert found[0] == found[1]


def test_a_default_that_is_made_is_made_for_each():
    @records.dataclass
    class Book:
        pages: dict = records.field(default_factory=dict)

    one, other = Book(), Book()
    one.pages["a"] = 1
    assert other.pages == {}
    with pytest.raises(TypeError):
        hash(one)

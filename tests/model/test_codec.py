"""Values of the model survive the way to JSON and back, whatever they hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from argosy.errors import Broken
from argosy.model import action, codec, group, ids, needs, observed, plan, spec
from argosy.model.action import Replan
from argosy.model.group import Attempt, Group
from argosy.model.ids import NodeId, Serial
from argosy.model.spec import GroupSpec, TaskSpec
from argosy.testing.builders import a_group, a_task

RECORDS = sorted(
    {
        value
        for module in (action, group, ids, needs, observed, plan, spec)
        for value in vars(module).values()
        if isinstance(value, type) and (is_dataclass(value) or hasattr(value, "_fields"))
    },
    key=lambda kind: kind.__name__,
)

texts = st.text(max_size=8)
st.register_type_strategy(str, texts)
st.register_type_strategy(float, st.floats(allow_nan=False))
lean = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@lean
def test_every_record_survives_the_round_trip(kind: type, data: st.DataObject) -> None:
    value = data.draw(st.from_type(kind))
    text = json.dumps(codec.encode(value, with_secrets=True), allow_nan=False)
    assert codec.decode(kind, json.loads(text)) == value


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@lean
def test_text_that_is_written_at_once_is_the_same(kind: type, data: st.DataObject) -> None:
    value = data.draw(st.from_type(kind))
    assert codec.text(value) == codec.dumps(codec.encode(value))


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@lean
def test_fields_of_a_newer_version_are_ignored(kind: type, data: st.DataObject) -> None:
    value = data.draw(st.from_type(kind))
    written = {**codec.encode(value, with_secrets=True), "of_a_newer_version": [1]}
    assert codec.decode(kind, written) == value


def test_missing_fields_take_their_default() -> None:
    full = codec.encode(a_group())
    needed = {"id", "spec", "submitted_at"}
    old = {name: value for name, value in full.items() if name in needed}
    read = codec.decode(Group, old)
    assert read == Group(read.id, read.spec, read.submitted_at)


def test_a_missing_field_without_default_is_a_clear_error() -> None:
    with pytest.raises(Broken, match="Attempt") as caught:
        codec.decode(Attempt, {"id": "a"})
    assert caught.value.code == "codec/record"
    assert caught.value.hints


@given(name=texts, value=st.text(min_size=4, max_size=8).filter(lambda text: text != codec.MASK))
@lean
def test_secrets_are_masked_unless_asked_for(name: str, value: str) -> None:
    task = a_task("t", secrets=((name, value),))
    assert codec.encode(task)["secrets"] == [[name, codec.MASK]]
    assert codec.encode(task, with_secrets=True)["secrets"] == [[name, value]]


def test_secrets_are_masked_inside_a_group_too() -> None:
    value = a_group(a_task("t", secrets=(("TOKEN", "hunter2"),)))
    assert "hunter2" not in codec.dumps(codec.encode(value))
    assert "hunter2" in codec.dumps(codec.encode(value, with_secrets=True))


def test_a_union_carries_the_name_of_its_class() -> None:
    wish = Replan(Serial(1, 2), (NodeId("t", 0),), ())
    decision = action.Decision(a_group(), (wish,), (), (), float("inf"))
    written = codec.encode(decision)
    assert written["actions"][0]["kind"] == "Replan"
    assert written["wake_at"] == "inf"
    assert codec.decode(action.Decision, written) == decision


def test_an_unknown_member_of_a_union_is_a_clear_error() -> None:
    decision = codec.encode(action.Decision(a_group(), (), (), (), 1.0))
    with pytest.raises(Broken):
        codec.decode(action.Decision, {**decision, "actions": [{"kind": "Nonsense"}]})


@dataclass(frozen=True, slots=True)
class Shapes:
    """Containers that no record has today."""

    by_node: Mapping[NodeId, int]
    pairs: dict[str, float]
    listed: list[NodeId]
    mixed: tuple[NodeId, str, float]
    either: int | str | None


def test_other_containers_work_too() -> None:
    value = Shapes({NodeId("a", 1): 2}, {"x": float("inf")}, [NodeId("b", 0)],
                   (NodeId("c", 3), "d", float("-inf")), None)  # fmt: skip
    text = json.dumps(codec.encode(value), allow_nan=False)
    assert codec.decode(Shapes, json.loads(text)) == value


def test_compiled_functions_are_kept() -> None:
    kind: Any = GroupSpec
    assert codec.encoder(kind, False) is codec.encoder(kind, False)
    assert codec.encoder(kind, False) is not codec.encoder(kind, True)


def test_each_secret_field_exists() -> None:
    for kind, name in codec.SECRETS:
        assert name in {field.name for field in fields(kind)}
    hidden = {field.name for field in fields(TaskSpec) if not field.repr}
    assert {name for kind, name in codec.SECRETS if kind is TaskSpec} == hidden

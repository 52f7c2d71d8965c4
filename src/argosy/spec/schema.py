"""JSON Schema of the file, for editors: made of the file model, so it cannot differ from it."""

from __future__ import annotations

from typing import Any, Final

from argosy.spec.keys.model import HEADER, TASK
from argosy.spec.keys.shapes import Record

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The schema of one document: the header, or a task. Draft 2020-12."""
    return {
        "$schema": DRAFT,
        "title": "Argosy task file",
        "description": "One document of a task file: the header of a group, or a task.",
        "anyOf": [{"$ref": "#/$defs/header"}, {"$ref": "#/$defs/task"}],
        "$defs": {
            "header": _described(HEADER, "The header: the first document of a group."),
            "task": _described(TASK, "A task: one kind of member of a group."),
        },
    }


def _described(record: Record, text: str) -> dict[str, Any]:
    """The record's schema. Every key may also be null, which means that it is not given."""
    made = record.schema()
    made["properties"] = {name: _or_null(value) for name, value in made["properties"].items()}
    return {"description": text, **made}


def _or_null(value: dict[str, Any]) -> dict[str, Any]:
    rest = {key: part for key, part in value.items() if key != "description"}
    if not rest or "not" in rest:
        return value
    made = {"anyOf": [rest, {"type": "null"}]}
    return {"description": value["description"], **made} if "description" in value else made

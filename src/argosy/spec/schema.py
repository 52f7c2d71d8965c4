"""JSON Schema of the file, for editors: made of the file model, so it cannot differ from it."""

from __future__ import annotations

from typing import Any, Final

from argosy.spec.keys.model import HEADER, TASK

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The schema of one document: the header, or a task. Draft 2020-12."""
    return {
        "$schema": DRAFT,
        "title": "Argosy task file",
        "description": "One document of a task file: the header of a group, or a task.",
        "anyOf": [{"$ref": "#/$defs/header"}, {"$ref": "#/$defs/task"}],
        "$defs": {
            "header": {
                "description": "The header: the first document of a group.",
                **HEADER.schema(),
            },
            "task": {"description": "A task: one kind of member of a group.", **TASK.schema()},
        },
    }

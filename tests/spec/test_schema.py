"""The JSON Schema and the reference page say what the reader does."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
import yaml

from argosy.spec import schema
from argosy.spec.keys import model
from tests.spec.reading import TRAPS
from tests.spec.test_traps import RIGHT

ROOT = Path(__file__).parents[2]
SCHEMA = schema()
KINDS = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
    "number": (int, float), "integer": int,
}  # fmt: skip


def fits(value, rule: dict) -> bool:
    """Whether `value` is valid by the words of JSON Schema that ours uses."""
    if "$ref" in rule:
        return fits(value, SCHEMA["$defs"][rule["$ref"].rpartition("/")[2]])
    if "anyOf" in rule and not any(fits(value, one) for one in rule["anyOf"]):
        return False
    if "not" in rule and fits(value, rule["not"]):
        return False
    if "enum" in rule and value not in rule["enum"]:
        return False
    kinds = rule.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(is_a(value, kind) for kind in kinds):
        return False
    return sized(value, rule) and inner(value, rule)


def is_a(value, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, KINDS[kind])


def sized(value, rule: dict) -> bool:
    if isinstance(value, str):
        return re.search(rule.get("pattern", ""), value) is not None
    if isinstance(value, int | float) and not isinstance(value, bool):
        least, most = rule.get("minimum", value), rule.get("maximum", value)
        return least <= value <= most and value > rule.get("exclusiveMinimum", value - 1)
    return True


def inner(value, rule: dict) -> bool:
    if isinstance(value, list):
        return all(fits(item, rule.get("items", {})) for item in value)
    if isinstance(value, dict):
        known, other = rule.get("properties", {}), rule.get("additionalProperties", True)
        for key, part in value.items():
            hidden = str(key).startswith("_") and "patternProperties" in rule
            below = known.get(str(key), True if hidden else other)
            if below is False or (isinstance(below, dict) and not fits(part, below)):
                return False
    return True


def test_schema_is_plain_json_of_the_2020_draft():
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert [one["$ref"] for one in SCHEMA["anyOf"]] == ["#/$defs/header", "#/$defs/task"]


@pytest.mark.parametrize(("name", "record"), [("header", model.HEADER), ("task", model.TASK)])
def test_schema_has_every_key_with_a_description(name, record):
    properties = SCHEMA["$defs"][name]["properties"]
    assert list(properties) == [key.name for key in record.keys]
    assert all(value["description"] for value in properties.values())
    assert SCHEMA["$defs"][name]["additionalProperties"] is False


@pytest.mark.parametrize("name", sorted(set(RIGHT) - {"bom", "header-unknown-key"}))
def test_files_that_are_right_are_valid(name):
    text = (TRAPS / f"{name}.yaml").read_text()
    loaded = json.loads(json.dumps(list(yaml.safe_load_all(text)), default=str))  # dates as text
    documents = [one for one in loaded if one is not None]
    assert all(fits(document, SCHEMA) for document in documents)


@pytest.mark.parametrize(
    "document",
    [
        {"runs": "x", "run": "x"},
        {"num_nodes": 0, "run": "x"},
        {"run": ["x"]},
        {"run": "x", "resources": {"cpu": 1}},
        {"run": "x", "ready": {"tcp": 70000}},
        {"run": "x", "restart": {"scope": "world"}},
        {"run": "x", "grace": "1.5m"},
        {"run": "x", "pool": {}},
        {"run": "x", "ports": 80},
        {"name": "g", "execution": "parallel", "run": "x"},
        {"name": "g", "execution": "paralel"},
    ],
)
def test_documents_that_are_wrong_are_not_valid(document):
    assert not fits(document, SCHEMA)


def test_reference_page_is_current():
    spec = importlib.util.spec_from_file_location("make_format", ROOT / "docs/make_format.py")
    make_format = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_format)
    page = (ROOT / "docs/format.md").read_text()
    assert make_format.filled(page) == page, "run `python docs/make_format.py`"


def test_examples_of_the_reference_page_are_right():
    from tests.spec.reading import read

    page = (ROOT / "docs/format.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(examples) >= 4
    for text in examples:
        assert read(text).spec.tasks

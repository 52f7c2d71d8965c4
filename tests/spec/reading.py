"""Short ways to read a file in a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.errors import InputError, InputErrors
from argosy.model.spec import GroupSpec, TaskSpec
from argosy.spec import Overrides, Parsed, parse

TRAPS = Path(__file__).parent / "traps"
BASE = "/work/code"
HOME = "/home/ada"


def read(text: str | bytes, **overrides) -> Parsed:
    """What `text` means, as `group.yaml`."""
    return parse(
        text, file="group.yaml", base=BASE, home=HOME, overrides=Overrides(**overrides), user="ada"
    )


def group(text: str | bytes, **overrides) -> GroupSpec:
    return read(text, **overrides).spec


def task(text: str, **overrides) -> TaskSpec:
    """The only task of `text`."""
    (only,) = group(text, **overrides).tasks
    return only


def errors(text: str | bytes, **overrides) -> tuple[InputError, ...]:
    with pytest.raises(InputErrors) as caught:
        read(text, **overrides)
    return caught.value.errors


def said(found: tuple[InputError, ...]) -> list[str]:
    """Each error as `line:column code`."""
    return [_line(error.place, error.code) for error in found]


def _line(place, code: str) -> str:
    return f"{place.line}:{place.column} {code.removeprefix('spec/')}"


def warned(parsed: Parsed) -> list[str]:
    """Each warning as `line:column code`."""
    return [_line(warning.place, warning.code) for warning in parsed.warnings]


def trap(name: str, **overrides) -> Parsed:
    """What the trap file of that name means."""
    return read((TRAPS / f"{name}.yaml").read_bytes(), **overrides)

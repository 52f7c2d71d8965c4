"""JSON to the frozen values of the views: unknown keys are ignored, missing ones keep defaults.

So a client and a server of neighbouring versions understand each other.
"""

from __future__ import annotations

from dataclasses import fields
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_HINTS: dict[Any, dict[str, Any]] = {}  # the fields of a class with their types, once found


def decode(kind: type[T], value: dict[str, Any]) -> T:
    """`value` as a `kind`, a dataclass whose fields are plain, dataclasses, or tuples of these."""
    hints = _hints(kind)
    known = {name: _value(hint, value[name]) for name, hint in hints.items() if name in value}
    return kind(**known)


def _hints(kind: Any) -> dict[str, Any]:
    if kind not in _HINTS:
        hints = get_type_hints(kind)
        _HINTS[kind] = {one.name: hints[one.name] for one in fields(kind)}
    return _HINTS[kind]


def _value(hint: Any, value: Any) -> Any:
    origin = get_origin(hint)
    if value is None:
        return None
    if origin is tuple:
        item = get_args(hint)[0]
        return tuple(_value(item, one) for one in value)
    if origin in (Union, UnionType):
        return _value(next(one for one in get_args(hint) if one is not type(None)), value)
    if hasattr(hint, "__dataclass_fields__"):
        return decode(hint, value)
    return value

"""Values of the model to plain JSON data and back, derived from their type hints.

Every type is compiled once into a pair of functions. Unknown fields (of a newer version) are
ignored, missing ones take their default. A union of dataclasses carries the name of its class as
`kind`. Secrets are masked unless they are asked for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from json.encoder import encode_basestring
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, NewType, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from argosy.errors import Broken
from argosy.model.spec import TaskSpec

T = TypeVar("T")
Convert = Callable[[Any], Any]
Write = Callable[[Any], str]

KIND: Final = "kind"
MASK: Final = "***"
SECRETS: Final = frozenset({(TaskSpec, "secrets")})  # fields of (name, value) pairs
LARGEST: Final = sys.float_info.max
COMPACT: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def encode(value: Any, *, with_secrets: bool = False) -> Any:
    """`value`, a dataclass of the model, as JSON data; secrets are masked unless asked for."""
    kind: Any = type(value)
    return encoder(kind, with_secrets)(value)


def decode(kind: type[T], data: Any) -> T:
    """The value that `encode` made `data` from. Raises Broken when it does not fit `kind`."""
    try:
        return cast(T, decoder(cast(Any, kind))(data))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise Broken(
            f"a record is no {kind.__name__}: {error}",
            code="codec/record",
            hint="restore the home from a backup, or move its store.db away to start afresh",
        ) from error


def dumps(data: Any) -> str:
    """JSON data as compact text, one line."""
    return COMPACT.encode(data)


def text(value: Any) -> str:
    """`dumps(encode(value))`, written at once in a third of the time, for who writes thousands."""
    kind: Any = type(value)
    return writer(kind)(value)


@cache
def encoder(kind: Any, with_secrets: bool) -> Convert:
    """The function that turns a value of type `kind` into JSON data."""
    return _encoder(kind, with_secrets) or _same


@cache
def decoder(kind: Any) -> Convert:
    """The function that turns JSON data into a value of type `kind`."""
    return _decoder(kind) or _same


@cache
def writer(kind: Any) -> Write:
    """The function that turns a value of type `kind` into JSON text; secrets are masked."""
    return _writer(kind)


def _same(value: Any) -> Any:
    return value


# A compiler answers None for "as it is", so that containers of plain values copy at C speed.


def _encoder(kind: Any, with_secrets: bool) -> Convert | None:
    kind = _resolve(kind)
    if _is_record(kind):
        return _encode_fields(cast(type, kind), with_secrets)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return attrgetter("_value_")
    if kind is float:
        return _float_out
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _encode_union(args, with_secrets)
    if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        return _encode_fixed([_encoder(arg, with_secrets) for arg in args])
    if _is_mapping(origin):
        return _encode_mapping(
            _encoder(args[0], with_secrets), _encoder(args[1], with_secrets), _text_like(args[0])
        )
    if _is_set(origin):
        return _encode_set(_encoder(args[0], with_secrets))
    if _is_sequence(origin):
        return _encode_items(_encoder(args[0], with_secrets))
    return None


def _decoder(kind: Any) -> Convert | None:
    kind = _resolve(kind)
    if _is_record(kind):
        return _decode_fields(cast(type, kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if kind is float:
        return _float_in
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _decode_union(args)
    if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        return _decode_fixed([_decoder(arg) for arg in args])
    if _is_mapping(origin):
        return _decode_mapping(_decoder(args[0]), _decoder(args[1]), _text_like(args[0]))
    if _is_set(origin):
        return _decode_items(_decoder(args[0]), frozenset)
    if _is_sequence(origin):
        return _decode_items(_decoder(args[0]), list if origin is list else tuple)
    return None


def _resolve(kind: Any) -> Any:
    """The type below a NewType."""
    while isinstance(kind, NewType):
        kind = kind.__supertype__
    return kind


def _is_record(kind: Any) -> bool:
    """Whether it has named fields: a dataclass, or a named tuple as ids are."""
    return is_dataclass(kind) or hasattr(kind, "_fields")


def _names(kind: Any) -> tuple[str, ...]:
    """The names of a record's fields, in the order in which its constructor takes them."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else kind._fields


def _text_like(kind: Any) -> bool:
    """Whether values of the type may be keys of a JSON object."""
    kind = _resolve(kind)
    return isinstance(kind, type) and issubclass(kind, str)


def _is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _is_set(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, AbstractSet)


def _is_sequence(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Sequence)


# --- dataclasses ---------------------------------------------------------------------------------


def _encode_fields(kind: type, with_secrets: bool) -> Convert:
    hints = get_type_hints(kind)
    names = _names(kind)
    made: list[tuple[str, Convert]] = []
    for name in names:
        secret = (kind, name) in SECRETS and not with_secrets
        convert = _masked if secret else _later(_encoder, hints[name], with_secrets)
        if convert is not None:
            made.append((name, convert))
    # attrgetter answers a bare value for one name, so a second one is always asked for.
    values = attrgetter(*names, *(["__class__"] if len(names) < 2 else [])) if names else None

    def write(value: Any) -> dict[str, Any]:
        data = dict(zip(names, values(value))) if values is not None else {}
        for name, convert in made:
            data[name] = convert(data[name])
        return data

    return write


def _decode_fields(kind: type) -> Convert:
    hints = get_type_hints(kind)
    names = _names(kind)
    made = [(name, convert) for name in names if (convert := _later(_decoder, hints[name]))]

    def read(data: Any) -> Any:
        values = {name: data[name] for name in names if name in data}
        for name, convert in made:
            if name in values:
                values[name] = convert(values[name])
        return kind(**values)

    return read


def _later(compile_: Callable[..., Convert | None], kind: Any, *more: Any) -> Convert | None:
    """The compiled function of a field's type; dataclasses come from the cache of the module."""
    if _is_record(_resolve(kind)):
        return encoder(kind, *more) if compile_ is _encoder else decoder(kind)
    return compile_(kind, *more)


def _masked(pairs: Any) -> list[list[str]]:
    return [[name, MASK] for name, _ in pairs]


# --- unions --------------------------------------------------------------------------------------


def _encode_union(args: tuple[Any, ...], with_secrets: bool) -> Convert | None:
    members, optional = _members(args)
    if len(members) == 1:
        inner = _later(_encoder, members[0], with_secrets)
        return None if inner is None else _unless_none(inner)
    if not any(_is_record(member) for member in members):
        return _float_out if float in members else None
    by_type = {member: encoder(member, with_secrets) for member in _tagged(members)}

    def write(value: Any) -> Any:
        if optional and value is None:
            return None
        return {KIND: type(value).__name__, **by_type[type(value)](value)}

    return write


def _decode_union(args: tuple[Any, ...]) -> Convert | None:
    members, optional = _members(args)
    if len(members) == 1:
        inner = _later(_decoder, members[0])
        return None if inner is None else _unless_none(inner)
    if not any(_is_record(member) for member in members):
        return None
    by_name = {member.__name__: decoder(member) for member in _tagged(members)}

    def read(data: Any) -> Any:
        if optional and data is None:
            return None
        return by_name[data[KIND]](data)

    return read


def _members(args: tuple[Any, ...]) -> tuple[list[Any], bool]:
    """The types of a union without None, and whether None was one of them."""
    members = [_resolve(arg) for arg in args if arg is not NoneType]
    return members, len(members) < len(args)


def _tagged(members: list[Any]) -> list[type]:
    for member in members:
        assert _is_record(member), f"{member} in a union of dataclasses"
        named = _names(member)
        assert KIND not in named, f"{member} has a field of the tag's name"
    return members


def _unless_none(inner: Convert) -> Convert:
    return lambda value: None if value is None else inner(value)


# --- containers and numbers ----------------------------------------------------------------------


def _encode_items(inner: Convert | None) -> Convert:
    return list if inner is None else lambda items: [inner(item) for item in items]


def _decode_items(inner: Convert | None, kind: Convert) -> Convert:
    return kind if inner is None else lambda items: kind([inner(item) for item in items])


def _encode_set(inner: Convert | None) -> Convert:
    convert = inner or _same
    return lambda items: sorted(convert(item) for item in items)


def _encode_fixed(inner: list[Convert | None]) -> Convert:
    if not any(inner):
        return list
    converts = [convert or _same for convert in inner]
    return lambda items: [convert(item) for convert, item in zip(converts, items, strict=True)]


def _decode_fixed(inner: list[Convert | None]) -> Convert:
    if not any(inner):
        return tuple
    converts = [convert or _same for convert in inner]
    return lambda items: tuple(
        [convert(item) for convert, item in zip(converts, items, strict=True)]
    )


def _encode_mapping(key: Convert | None, value: Convert | None, text_keys: bool) -> Convert:
    left, right = key or _same, value or _same
    if text_keys:
        return lambda items: {left(k): right(v) for k, v in items.items()}
    return lambda items: [[left(k), right(v)] for k, v in items.items()]


def _decode_mapping(key: Convert | None, value: Convert | None, text_keys: bool) -> Convert:
    left, right = key or _same, value or _same
    if text_keys:
        return lambda items: {left(k): right(v) for k, v in items.items()}
    return lambda items: {left(k): right(v) for k, v in items}


def _float_out(value: Any) -> Any:
    """JSON knows no infinity: it becomes the text "inf"."""
    if isinstance(value, float) and not -LARGEST <= value <= LARGEST:
        return repr(value)
    return value


def _float_in(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value


# --- text at once --------------------------------------------------------------------------------


def _writer(kind: Any) -> Write:
    kind = _resolve(kind)
    if _is_record(kind) and not any(owner is kind for owner, _ in SECRETS):
        return _write_fields(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {one: dumps(one.value) for one in kind}.__getitem__
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        members, optional = _members(args)
        if optional and len(members) == 1:
            return _null_or(writer(members[0]))
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return _write_items(writer(args[0]))
    convert = encoder(kind, False)  # what is rare takes the long way
    return lambda value: dumps(convert(value))


def _write_fields(kind: Any) -> Write:
    """Written out field by field, as `model.edit` does it: one long f-string."""
    hints, names = get_type_hints(kind), _names(kind)
    known: dict[str, Any] = {f"write_{name}": writer(hints[name]) for name in names}
    pairs = [f'"{name}":{{write_{name}(value.{name})}}' for name in names]
    exec(f"def write(value): return f'{{{{{','.join(pairs)}}}}}'", known)
    write: Write = known["write"]
    return write


def _write_items(inner: Write) -> Write:
    return lambda items: f"[{','.join(map(inner, items))}]" if items else "[]"


def _null_or(inner: Write) -> Write:
    return lambda value: "null" if value is None else inner(value)


def _write_float(value: float) -> str:
    return repr(value) if -LARGEST <= value <= LARGEST else dumps(_float_out(value))


_PLAIN: Final[Mapping[Any, Write]] = {
    str: encode_basestring,
    int: int.__repr__,
    bool: {True: "true", False: "false"}.__getitem__,
    float: _write_float,
}

"""The shapes that values of a task file can have: each reads a node, and says its JSON Schema.

A file model is made of these. `read` answers the value, or None after it has noted an error; so one
pass finds every error, each with the place of the very word that is wrong.
(pydantic would cost two thirds of the time that `argosy validate` may take, and loses the places.)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from argosy.spec.keys import durations
from argosy.spec.source import broken
from argosy.spec.source.file import Items, Map, Node, Scalar, absent, native
from argosy.spec.source.notes import Mark, Notes
from argosy.spec.source.words import listed, nearest_word

Json = dict[str, Any]


class Shape(Protocol):
    """How one value is read, and described to editors."""

    def read(self, node: Node, about: str, notes: Notes) -> Any:
        """The value; None when an error was noted. `about` is the key, for messages."""
        ...

    def schema(self) -> Json:
        """JSON Schema, draft 2020-12."""
        ...


def kind_of(node: Node) -> str:
    """What was written, in words."""
    match node:
        case Map():
            return "a map"
        case Items():
            return "a list"
        case Scalar(native=None):
            return "nothing"
        case Scalar(native=bool()):
            return f"`{node.text}`, which YAML reads as true or false"
        case Scalar():
            return f"`{node.text[:60]}`" if node.text else "an empty text"


def braces(node: Node) -> bool:
    """`{name}`: a placeholder of `str.format`, which YAML reads as a map of keys without values."""
    return (
        isinstance(node, Map)
        and node.flow
        and bool(node.pairs)
        and all(absent(value) for _, value in node.pairs)
    )


def wrong(node: Node, about: str, wanted: str, hint: str, notes: Notes) -> None:
    """Note that `node` is not what `about` takes; templates are named as such."""
    if braces(node) or (isinstance(node, Scalar) and broken.is_template(node.text)):
        broken.strange_key(node.mark, True, notes)
    else:
        secret = isinstance(node, Scalar) and about.startswith("secrets")
        given = "one text" if secret else kind_of(node)
        notes.error(node.mark, "wrong-value", f"`{about}` takes {wanted}, not {given}", hint)


@dataclass(frozen=True)
class Text:
    """Text; numbers and booleans are taken as they are spelled."""

    wanted: str = "text"
    hint: str = "write text"
    pattern: str = ""
    script: bool = False  # `{{ }}` and `$` mean nothing to us
    empty: bool = True
    variables: bool = True  # False: `$NAME` is an error, since nothing is substituted here

    def read(self, node: Node, about: str, notes: Notes) -> str | None:
        if not isinstance(node, Scalar) or node.native is None:
            wrong(node, about, self.wanted, self.hint, notes)
            return None
        text = node.text
        if "\0" in text:
            null_character(node.mark, about, notes)
            return None
        if self.script:
            return text
        if broken.is_template(text):
            broken.strange_key(node.mark, True, notes)
            return None
        if not self.variables and dollar(text):
            not_substituted(node.mark, about, text, notes)
            return None
        fits = re.fullmatch(self.pattern, text, re.ASCII) if self.pattern else True
        if not fits or not (text or self.empty):
            wrong(node, about, self.wanted, self.hint, notes)
            return None
        return text

    def schema(self) -> Json:
        made: Json = {"type": ["string", "number"] if not self.script else "string"}
        if self.pattern:
            made["pattern"] = f"^(?:{self.pattern})$"
        return made


def null_character(mark: Mark, about: str, notes: Notes) -> None:
    """Note a NUL, which neither files nor variables of a program can hold."""
    notes.error(mark, "null-character", f"`{about}` holds a NUL character", "remove it")


_DOLLAR = re.compile(r"\$(\{|[A-Za-z_])")


def dollar(text: str) -> bool:
    """Whether `text` looks as if a variable should be put in."""
    return _DOLLAR.search(text) is not None


def not_substituted(mark: Mark, about: str, text: str, notes: Notes) -> None:
    """Note a variable in a place where none is substituted."""
    notes.error(
        mark,
        "variable",
        f"`{about}` holds `{text[:60]}`, and no variables are substituted there",
        f"write the value, or set it when you launch: `--set TASK.{about}=VALUE`",
    )


@dataclass(frozen=True)
class Flag:
    """true or false."""

    def read(self, node: Node, about: str, notes: Notes) -> bool | None:
        if isinstance(node, Scalar) and isinstance(node.native, bool):
            return node.native
        hint = f"write `{about.rpartition('.')[2]}: true` or `false`, without quotes"
        wrong(node, about, "true or false", hint, notes)
        return None

    def schema(self) -> Json:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Whole:
    """A whole number between two limits; quotes around it do not matter."""

    least: int
    most: int

    def read(self, node: Node, about: str, notes: Notes) -> int | None:
        value = whole(node)
        if value is not None and self.least <= value <= self.most:
            return value
        if isinstance(node, Scalar) and dollar(node.text):
            not_substituted(node.mark, about, node.text, notes)
            return None
        limits = f"from {self.least} to {self.most}"
        hint = f"write a whole number {limits}"
        wrong(node, about, f"a whole number {limits}", hint, notes)
        return None

    def schema(self) -> Json:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


def whole(node: Node) -> int | None:
    """The whole number that was written; None when it is none."""
    if not isinstance(node, Scalar) or isinstance(node.native, bool):
        return None
    if isinstance(node.native, int):
        return node.native
    if isinstance(node.native, str) and re.fullmatch(r"-?[0-9]{1,18}", node.text, re.ASCII):
        return int(node.text)
    return None


@dataclass(frozen=True)
class Number:
    """A number, with a fraction or without."""

    above: float = -math.inf  # greater than this

    def read(self, node: Node, about: str, notes: Notes) -> float | None:
        value = number(node)
        if value is not None and value > self.above:
            return value
        limit = "" if self.above == -math.inf else f" above {self.above:g}"
        wrong(node, about, f"a number{limit}", f"write a number{limit}", notes)
        return None

    def schema(self) -> Json:
        made: Json = {"type": "number"}
        if self.above != -math.inf:
            made["exclusiveMinimum"] = self.above
        return made


def number(node: Node) -> float | None:
    """The finite number that was written; None when it is none."""
    if not isinstance(node, Scalar) or isinstance(node.native, bool) or node.native is None:
        return None
    try:
        value = float(node.native)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) and abs(value) < 1e15 else None


@dataclass(frozen=True)
class Duration:
    """A length of time; the value is in seconds."""

    least: int = 0

    def read(self, node: Node, about: str, notes: Notes) -> float | None:
        value = None
        if isinstance(node, Scalar) and isinstance(node.native, str | int):
            value = durations.seconds(node.text) if not isinstance(node.native, bool) else None
        if value is not None and value >= self.least:
            return float(value)
        hint = "write whole seconds, or a number with s, m, h, d or w: `90`, `30s`, `5m`"
        wrong(node, about, "a duration", hint, notes)
        return None

    def schema(self) -> Json:
        return {
            "anyOf": [
                {"type": "integer", "minimum": self.least},
                {"type": "string", "pattern": durations.PATTERN},
            ]
        }


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]
    any_case: bool = False

    def read(self, node: Node, about: str, notes: Notes) -> str | None:
        text = node.text if isinstance(node, Scalar) and node.native is not None else None
        if text is not None:
            for word in self.words:
                if text == word or (self.any_case and text.lower() == word.lower()):
                    return word
        near = nearest_word(text, self.words) if text else ""
        hint = f"did you mean `{near}`?" if near else f"write one of: {listed(self.words)}"
        wrong(node, about, " or ".join(f"`{word}`" for word in self.words[:6]), hint, notes)
        return None

    def schema(self) -> Json:
        return {"type": "string"} if self.any_case else {"enum": list(self.words)}


@dataclass(frozen=True)
class ListOf:
    """A list; where `or_one`, a single value is a list of it."""

    item: Shape
    or_one: bool = False
    wanted: str = "a list"

    def read(self, node: Node, about: str, notes: Notes) -> tuple[Any, ...] | None:
        if isinstance(node, Items):
            values = [self.item.read(item, about, notes) for item in node.items]
            return None if any(value is None for value in values) else tuple(values)
        if self.or_one and not absent(node):
            value = self.item.read(node, about, notes)
            return None if value is None else (value,)
        hint = f"write `{about.rpartition('.')[2]}: [...]`, or one item a line after `- `"
        wrong(node, about, self.wanted, hint, notes)
        return None

    def schema(self) -> Json:
        item = self.item.schema()
        many: Json = {"type": "array", "items": item}
        return {"anyOf": [item, many]} if self.or_one else many


@dataclass(frozen=True)
class MapOf:
    """A map from text to values of one shape: pairs of key node and value."""

    value: Shape
    wanted: str = "a map"
    hint: str = "write one `key: value` a line"

    def read(self, node: Node, about: str, notes: Notes) -> tuple[tuple[Scalar, Any], ...] | None:
        if not isinstance(node, Map):
            wrong(node, about, self.wanted, self.hint, notes)
            return None
        read = [
            (key, self.value.read(value, f"{about}.{key.text[:60]}", notes))
            for key, value in node.pairs
        ]
        return None if any(value is None for _, value in read) else tuple(read)

    def schema(self) -> Json:
        return {"type": "object", "additionalProperties": self.value.schema()}


@dataclass(frozen=True)
class ByForm:
    """One shape for a scalar, one for a list, one for a map; None: not allowed."""

    scalar: Shape | None = None
    items: Shape | None = None
    map: Shape | None = None
    wanted: str = "another form"
    hint: str = ""

    def read(self, node: Node, about: str, notes: Notes) -> Any:
        match node:
            case Scalar():
                shape = self.scalar
            case Items():
                shape = self.items
            case Map():
                shape = self.map
        if shape is None:
            wrong(node, about, self.wanted, self.hint, notes)
            return None
        return shape.read(node, about, notes)

    def schema(self) -> Json:
        shapes = (self.scalar, self.items, self.map)
        return {"anyOf": [shape.schema() for shape in shapes if shape is not None]}


@dataclass(frozen=True)
class Anything:
    """Whatever it is: kept as plain values, carried out by nobody."""

    form: str = ""  # "object", "array" or "" for all

    def read(self, node: Node, about: str, notes: Notes) -> Any:
        if self.form == "object" and not isinstance(node, Map):
            wrong(node, about, "a map", "write one `key: value` a line", notes)
            return None
        return (native(node),)

    def schema(self) -> Json:
        return {"type": self.form} if self.form else {}


@dataclass(frozen=True)
class Read:
    """A shape of its own: a function that reads, and its schema."""

    function: Callable[[Node, str, Notes], Any]
    describes: Json

    def read(self, node: Node, about: str, notes: Notes) -> Any:
        return self.function(node, about, notes)

    def schema(self) -> Json:
        return self.describes


@dataclass(frozen=True)
class Key:
    """One key of a record: its name, its shape, a sentence for people."""

    name: str
    shape: Shape
    doc: str
    default: str = ""  # in words, for the reference
    ours: bool = False  # an addition to the compatible format
    ignored: bool = False  # accepted, and means nothing
    null: bool = False  # null is a value, not an absent key


@dataclass(frozen=True)
class Fields:
    """What a record held: values that could be read, and where everything was written."""

    node: Map
    values: dict[str, Any] = field(default_factory=dict)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def get(self, key: str, default: Any = None) -> Any:
        """The value; `default` when it is missing or was wrong."""
        return self.values.get(key, default)

    def mark(self, key: str) -> Mark:
        """Where the value of `key` was written; where the record begins when it is missing."""
        value = self.node.get(key)
        return value.mark if value is not None else self.node.mark


Unknown = Callable[[Scalar, Node, str, Notes], bool]


def _not_told(key: Scalar, value: Node, about: str, notes: Notes) -> bool:
    return False


@dataclass(frozen=True)
class Record:
    """A map with known keys. `unknown` may explain a key, and answers whether it did."""

    what: str
    keys: tuple[Key, ...]
    closed: bool = True  # an unknown key is an error; else a warning
    wanted: str = "a map"
    unknown: Unknown = _not_told
    hidden: bool = False  # keys that begin with `_` are those of dumped files: passed over

    def read(self, node: Node, about: str, notes: Notes) -> Fields | None:
        if not isinstance(node, Map):
            wrong(node, about, self.wanted, "write one `key: value` a line, indented", notes)
            return None
        known = {key.name: key for key in self.keys}
        fields = Fields(node)
        for name, value in node.pairs:
            key = known.get(name.text)
            if key is None:
                self._unknown(name, value, about, notes)
            elif not absent(value) or key.null:
                path = f"{about}.{key.name}" if about else key.name
                got = key.shape.read(value, path, notes)
                if got is not None:
                    fields.values[key.name] = got
        return fields

    def _unknown(self, name: Scalar, value: Node, about: str, notes: Notes) -> None:
        if (self.hidden and name.text.startswith("_")) or self.unknown(name, value, about, notes):
            return
        if broken.is_template(name.text):
            broken.strange_key(name.mark, True, notes)
            return
        every = [key.name for key in self.keys if not key.ignored]
        near = nearest_word(name.text, every)
        hint = f"did you mean `{near}`?" if near else f"known keys: {listed(every, 40)}"
        text = f"`{name.text[:60]}` is not a key of {self.what}"
        if self.closed:
            notes.error(name.mark, "unknown-key", text, hint)
        else:
            notes.warn(name.mark, "unknown-key", f"{text}; it is ignored", hint)

    def schema(self) -> Json:
        """Every key may also be null, which means that it is not given."""
        made: Json = {
            "type": "object",
            "properties": {key.name: _property(key) for key in self.keys},
            "additionalProperties": False,  # editors underline what the reader only warns of
        }
        if self.hidden:
            made["patternProperties"] = {"^_": {}}
        return made


def _property(key: Key) -> Json:
    shape = key.shape.schema()
    if shape and "not" not in shape:
        shape = {"anyOf": [shape, {"type": "null"}]}
    return {"description": key.doc, **shape}

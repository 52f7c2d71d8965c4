"""Bytes to documents: YAML as it is written, with the place of every word.

YAML 1.1 as PyYAML reads it, since that is what existing files were tried with: `yes`, `on` and
`0o` numbers mean there what they mean here. Every scalar also keeps its spelling, so a key named
`on` stays `on`, and text may be taken as written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import yaml

from argosy.spec.source import broken
from argosy.spec.source.notes import BREAK, Mark, Notes

MAX_FILE_BYTES: Final = 4 << 20
MAX_LINE_BYTES: Final = 128 << 10  # the kernel's limit for one argument or variable
MAX_DOCUMENTS: Final = 1001  # a header and MAX_TASKS
MAX_DEPTH: Final = 50
MAX_VALUES: Final = 200_000  # after aliases are written out
_START: Final = re.compile(r"---(\s|$)")
_END: Final = re.compile(r"\.\.\.(\s|$)")
_ASIDE: Final = re.compile(r"%|\s*(#|$)")  # before a document

Native = str | int | float | bool | None


@dataclass(eq=False, slots=True)
class Scalar:
    """One word or text. `native` is its value by the rules of YAML 1.1; `text` its spelling."""

    text: str
    native: Native
    mark: Mark
    plain: bool = True  # written without quotes and not as a block


@dataclass(eq=False, slots=True)
class Items:
    """A list."""

    mark: Mark
    items: list[Node] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Map:
    """Keys and values in the order of the file; keys are unique."""

    mark: Mark
    pairs: list[tuple[Scalar, Node]] = field(default_factory=list)
    flow: bool = False

    def get(self, key: str) -> Node | None:
        """The value of `key`; None when it is missing."""
        for name, value in self.pairs:
            if name.text == key:
                return value
        return None

    def keys(self) -> list[str]:
        """The keys as they are spelled."""
        return [key.text for key, _ in self.pairs]


Node = Scalar | Items | Map


def native(node: Node) -> Any:
    """The plain value: dict, list, str, int, float, bool or None."""
    match node:
        case Scalar():
            return node.native
        case Items():
            return [native(item) for item in node.items]
        case Map():
            return {key.text: native(value) for key, value in node.pairs}


def absent(node: Node | None) -> bool:
    """Nothing was written: the key is missing, or its value is null."""
    return node is None or (isinstance(node, Scalar) and node.native is None)


def open_notes(text: bytes | str, file: str) -> tuple[str, Notes]:
    """The text without its byte order mark, and empty notes on it.

    Raises InputErrors for what cannot be text: binary, UTF-16, too long.
    """
    notes = Notes(file, [])
    if len(text) > MAX_FILE_BYTES:
        notes.error(
            Mark(0, 0),
            "too-large",
            f"the file has {len(text):,} bytes; at most {MAX_FILE_BYTES:,} are read",
            "put data and long scripts into files of their own and name them in `file_mounts`",
        )
        notes.raise_errors()
    decoded = broken.decoded(text, notes) if isinstance(text, bytes) else text
    decoded = decoded.removeprefix("\ufeff")
    notes.lines = BREAK.split(decoded)
    broken.check_characters(decoded, notes)
    broken.check_lines(notes, MAX_LINE_BYTES)
    notes.raise_errors()
    return decoded, notes


def documents(text: str, notes: Notes) -> list[Node]:
    """The documents that are not empty. Raises InputErrors when the text is not YAML.

    Of a key that is given twice the first counts, and the error stays in the notes: the rest of the
    file can still be read.
    """
    try:
        found = _composed(text, notes)
    except yaml.YAMLError as error:
        _explain_each(notes)
        if not notes.errors:  # only the documents together are wrong
            broken.explain(error, notes)
        notes.raise_errors()
        raise
    except (RecursionError, ValueError, OverflowError) as error:
        notes.error(Mark(1, 1), "not-yaml", f"the file cannot be read: {error}", "simplify it")
        notes.raise_errors()
        raise
    if notes.left_out or any(one.code != broken.REPEATED for one in notes.errors):
        notes.raise_errors()
    return [node for node in found if not absent(node)]


def _composed(text: str, notes: Notes, lines_before: int = 0) -> list[Node]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return list(_Composer(yaml.parse(text, Loader=loader), notes, lines_before).documents())


def _explain_each(notes: Notes) -> None:
    """Note what is wrong with every document: a scanner gives up at its first error, and a line
    `---` always begins anew. A template is one error, whatever else it looks like."""
    for start, end in pairwise(sorted({*_cuts(notes.lines)[:MAX_DOCUMENTS], len(notes.lines)})):
        try:
            _composed("\n".join(notes.lines[start:end]), notes, start)
        except yaml.YAMLError as error:
            broken.explain(error, notes, start)
        except (RecursionError, ValueError, OverflowError):
            continue
        if any(one.code == "spec/template" for one in notes.errors):
            return


def _cuts(lines: list[str]) -> list[int]:
    """Where documents begin: at `---`, or at the directives and comments that stand before it."""
    cuts, begun = [0], False
    for number, line in enumerate(lines):
        if _START.match(line):
            if begun:
                cuts.append(number)
            begun = True
        elif _END.match(line):
            cuts.append(number + 1)
            begun = False
        elif not _ASIDE.match(line):
            begun = True
    return cuts


def value_of(text: str, flag: str) -> Node:
    """One YAML value from the command line, with the flag as its place.

    Raises InputErrors when it is not YAML; text that only looks like YAML is taken as text.
    """
    notes = Notes(flag, [text])
    found = documents(text, notes) if text.strip() else []
    notes.raise_errors()
    node = found[0] if found else Scalar(text, None, Mark(1, 1))
    _move(node, Mark(0, 0, flag))
    return node


def _move(node: Node, mark: Mark) -> None:
    node.mark = mark
    match node:
        case Items():
            for item in node.items:
                _move(item, mark)
        case Map():
            for key, value in node.pairs:
                key.mark = mark
                _move(value, mark)
        case Scalar():
            pass


class _Composer:
    """Makes trees of events. Not recursive below MAX_DEPTH, and counts what aliases write out."""

    def __init__(self, events: Iterator[Any], notes: Notes, lines_before: int = 0) -> None:
        self.events = events
        self.notes = notes
        self.lines_before = lines_before  # in the file, above what the events tell of
        self.anchors: dict[str, Node] = {}
        self.sizes: dict[int, int] = {}  # id of an anchored node: values in it
        self.values = 0
        self.resolver = yaml.SafeLoader("")

    def mark(self, event: Any) -> Mark:
        start = event.start_mark
        return Mark(self.lines_before + start.line + 1, start.column + 1)

    def documents(self) -> Iterator[Node]:
        count = 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                count += 1
                if count > MAX_DOCUMENTS:
                    broken.too_many(self.mark(event), MAX_DOCUMENTS - 1, self.notes)
                    return
                self.anchors = {}
                yield self.node(next(self.events), 0)

    def node(self, event: Any, depth: int) -> Node:
        self.values += 1
        if depth > MAX_DEPTH or self.values > MAX_VALUES:
            broken.too_complex(self.mark(event), MAX_DEPTH, MAX_VALUES, self.notes)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event)
        before = self.values
        node = self.fresh(event, depth)
        if event.anchor:
            self.anchors[event.anchor] = node
            self.sizes[id(node)] = self.values - before + 1
        return node

    def alias(self, event: Any) -> Node:
        node = self.anchors.get(event.anchor)
        if node is None:
            broken.unknown_alias(self.mark(event), event.anchor, list(self.anchors), self.notes)
            return Scalar("", None, self.mark(event))
        self.values += self.sizes[id(node)]
        if self.values > MAX_VALUES:
            broken.bomb(self.mark(event), MAX_VALUES, self.notes)
        return node

    def fresh(self, event: Any, depth: int) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            items = Items(self.mark(event))
            for inner in self.events:
                if isinstance(inner, yaml.SequenceEndEvent):
                    break
                items.items.append(self.node(inner, depth + 1))
            return items
        made = Map(self.mark(event), flow=bool(event.flow_style))
        self.fill(made, depth)
        return made

    def fill(self, made: Map, depth: int) -> None:
        seen: dict[str, Scalar] = {}
        merged: list[Node] = []
        for event in self.events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self.node(event, depth + 1)
            value = self.node(next(self.events), depth + 1)
            if not isinstance(key, Scalar):
                broken.strange_key(key.mark, isinstance(key, Map), self.notes)
            elif key.text == "<<" and key.plain:
                merged.append(value)
            elif key.text in seen:
                broken.repeated(key.mark, key.text, seen[key.text].mark, self.notes)
            else:
                seen[key.text] = key
                made.pairs.append((key, value))
        for value in merged:
            self.merge(made, value)

    def merge(self, made: Map, value: Node) -> None:
        """`<<: *defaults`: keys that are written win over those that are merged."""
        for source in value.items if isinstance(value, Items) else [value]:
            if not isinstance(source, Map):
                broken.bad_merge(source.mark, self.notes)
                continue
            mine = set(made.keys())
            made.pairs.extend(pair for pair in source.pairs if pair[0].text not in mine)

    def scalar(self, event: Any) -> Scalar:
        mark = self.mark(event)
        plain = event.style is None or event.style == ""
        tag = event.tag
        if tag is None or tag == "!":
            resolve: Any = self.resolver.resolve  # untyped
            tag = str(resolve(yaml.ScalarNode, event.value, event.implicit))
        return Scalar(event.value, self.constructed(tag, event.value, mark), mark, plain)

    def constructed(self, tag: str, text: str, mark: Mark) -> Native:
        kind = tag.rpartition(":")[2] if tag.startswith("tag:yaml.org,2002:") else ""
        make = _MAKERS.get(kind)
        if kind in ("str", "timestamp", "value", "merge"):
            return text
        if make is None:
            broken.strange_tag(mark, tag, self.notes)
            return text
        try:
            made: Native = make(self.resolver, yaml.ScalarNode(tag, text))
        except (ValueError, KeyError, IndexError, OverflowError):
            broken.strange_tag(mark, f"!!{kind}", self.notes)
            return text
        return made


_MAKERS: Final[dict[str, Any]] = {
    "null": lambda _loader, _node: None,
    "bool": yaml.SafeLoader.construct_yaml_bool,
    "int": yaml.SafeLoader.construct_yaml_int,
    "float": yaml.SafeLoader.construct_yaml_float,
}

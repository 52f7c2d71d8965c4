"""Reads `config.yaml` by its YAML nodes: all that is wrong is told at once, each with its place."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from argosy.errors import InputError, InputErrors, Place

NOWHERE: Final = Path("/nonexistent")
VALUES_MAX: Final = 100_000
TRUE: Final = ("true", "yes", "on")
FALSE: Final = ("false", "no", "off")
FLATTER: Final = "write it with fewer levels and aliases"


def user_home() -> Path:
    """The user's own folder; of a user without one, a folder that is not there."""
    try:
        return Path.home()
    except RuntimeError:
        return NOWHERE


def text_of(path: Path) -> str:
    """What the file says; "" when there is none. Raises InputError."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} cannot be read: {error}", code="config/unreadable", place=Place(str(path))
        ) from error


@dataclass(slots=True)
class Reading:
    """One file that is being read, and what is wrong with it so far."""

    file: str
    text: str
    errors: list[InputError] = field(default_factory=list)

    def root(self) -> yaml.Node | None:
        """The document; None when it is empty. Raises InputErrors for what is no YAML."""
        try:
            found: yaml.Node | None = yaml.compose(self.text, Loader=yaml.SafeLoader)
        except RecursionError as error:
            wrong = self._error(None, "its lists and maps are too deep", "too-complex", FLATTER)
            raise InputErrors((wrong,)) from error
        except yaml.YAMLError as error:
            problem = getattr(error, "problem", None) or str(error)
            mark = getattr(error, "problem_mark", None)
            hint = "look at the indentation, quotes and brackets in that line and before it"
            wrong = self._error(mark, f"this is not YAML: {problem}", "not-yaml", hint)
            raise InputErrors((wrong,)) from error
        if found is not None and _values(found, {}) > VALUES_MAX:
            text = f"it holds more than {VALUES_MAX:,} values, once its aliases are written out"
            raise InputErrors((self._error(found.start_mark, text, "too-complex", FLATTER),))
        return found

    def wrong(self, node: yaml.Node, text: str, code: str = "bad-value", hint: str = "") -> None:
        """Something is wrong at that place."""
        self.errors.append(self._error(node.start_mark, text, code, hint))

    def settle(self) -> None:
        """Raises InputErrors when something was wrong."""
        if self.errors:
            raise InputErrors(tuple(self.errors))

    def _error(self, mark: yaml.Mark | None, text: str, code: str, hint: str) -> InputError:
        lines = self.text.splitlines()
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        source = lines[line - 1] if 0 < line <= len(lines) else ""
        place = Place(self.file, line, column, source)
        return InputError(text, code=f"config/{code}", hint=hint, place=place)

    def entries(
        self, node: yaml.Node | None, what: str, known: Sequence[str] = ()
    ) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """key -> (its node, value) of a map; nothing for a missing one. `known`: no others."""
        if node is None or _is_null(node):
            return {}
        if not isinstance(node, yaml.MappingNode):
            hint = "write `{key: value}`, or `key: value` in lines of their own"
            self.wrong(node, f"{what} must be a map", "not-a-map", hint)
            return {}
        found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            name = str(key.value)
            if name in found:
                first = found[name][0].start_mark.line + 1
                text = f"`{name}` is given twice, first in line {first}"
                self.wrong(key, text, "duplicate-key", "leave one of them out")
            if known and name not in known:
                self.unknown(key, what, known)
            found.setdefault(name, (key, value))
        return found

    def unknown(self, key: yaml.Node, what: str, known: Sequence[str]) -> None:
        """That key is none of the known ones."""
        near = difflib.get_close_matches(str(key.value), known, 1)
        hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"
        self.wrong(key, f"`{key.value}` is unknown in {what}", "unknown-key", hint)

    def section(self, node: yaml.Node | None, what: str, key: str) -> yaml.Node | None:
        """The value of one key of a map; others are somebody else's."""
        found = self.entries(node, what).get(key)
        return found[1] if found else None

    def word(self, node: yaml.Node, name: str) -> str:
        """A text in one word; "" when it is wrong."""
        text = str(node.value).strip() if isinstance(node, yaml.ScalarNode) else ""
        if not text or text.startswith("-") or any(sign.isspace() for sign in text):
            text = f"`{name}` must be one word that does not begin with `-`"
            self.wrong(node, text, hint=f"write `{name}: WORD`, without spaces")
            return ""
        return text

    def path(self, node: yaml.Node, name: str) -> str:
        """A path, `~` not expanded; "" when it is wrong."""
        text = str(node.value).strip() if isinstance(node, yaml.ScalarNode) else ""
        if not text.startswith(("/", "~/")):
            self.wrong(node, f"`{name}` must be a path", hint="begin with `/` or `~/`")
            return ""
        return text

    def boolean(self, node: yaml.Node, name: str) -> bool:
        """true or false."""
        text = str(node.value).lower() if isinstance(node, yaml.ScalarNode) else ""
        if text not in TRUE + FALSE:
            self.wrong(node, f"`{name}` must be true or false", hint=f"write `{name}: true`")
        return text in TRUE


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """How many there are in it, aliases written out; too many where it holds itself."""
    if id(node) not in known:
        known[id(node)] = VALUES_MAX + 1
        inside: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            inside = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            inside = node.value
        known[id(node)] = 1 + sum(_values(part, known) for part in inside)
    return known[id(node)]


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")

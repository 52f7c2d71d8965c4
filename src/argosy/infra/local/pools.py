"""Reads the virtual pools of `$ARGOSY_HOME/config.yaml`, every error with its place.

    local:
      pools:
        rack: {hosts: 4, cpus: 8, memory: 32, accelerators: H100:8, price: 2.5}
        mixed:                                  # or a list of groups of equal hosts
          - {hosts: 2, cpus: 8, memory: 32, accelerators: H100:8}
          - {hosts: 4, cpus: 4, memory: 16}

Hosts are named after the pool and numbered through. `cpus` and `memory` (GiB) are what a host
pretends to have: they are counted, not enforced.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from argosy.errors import InputError, InputErrors, Place
from argosy.infra.local.hosts import Cards, LocalHost

HOSTS_MAX: Final = 1000  # of one pool
CARDS_MAX: Final = 64  # of one host
DEFAULT_CPUS: Final = 4.0
DEFAULT_MEMORY_GIB: Final = 16.0
KEYS: Final = ("hosts", "cpus", "memory", "accelerators", "accelerator_memory", "price")
NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")
MEMORY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
UNITS: Final = {"K": 2.0**-20, "M": 2.0**-10, "G": 1.0, "": 1.0, "T": 2.0**10}


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """One virtual pool."""

    name: str
    hosts: tuple[LocalHost, ...]


def read_pools(path: Path) -> tuple[PoolConfig, ...]:
    """The pools of the configuration file; () when there is no file. Raises InputErrors."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} cannot be read: {error}", code="config/unreadable", place=Place(str(path))
        ) from error
    return parse_pools(text, str(path))


def parse_pools(text: str, file: str) -> tuple[PoolConfig, ...]:
    """The same, of a text. Raises InputErrors with everything that is wrong."""
    reading = _Reading(file, tuple(text.splitlines()), [])
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        raise InputErrors(
            (reading.error(mark, f"this is not YAML: {problem}", "not-yaml"),)
        ) from error
    pools = reading.pools(root)
    if reading.errors:
        raise InputErrors(tuple(reading.errors))
    return pools


@dataclass(frozen=True, slots=True)
class _Reading:
    """One file that is being read, and what is wrong with it so far."""

    file: str
    lines: tuple[str, ...]
    errors: list[InputError]

    def error(self, mark: yaml.Mark | None, text: str, code: str, hint: str = "") -> InputError:
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        source = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        place = Place(self.file, line, column, source)
        return InputError(text, code=f"config/{code}", hint=hint, place=place)

    def wrong(self, node: yaml.Node, text: str, code: str = "bad-value", hint: str = "") -> None:
        self.errors.append(self.error(node.start_mark, text, code, hint))

    def entries(self, node: yaml.Node | None, what: str) -> list[tuple[yaml.Node, str, yaml.Node]]:
        """(key node, key, value) of a map; nothing for a missing or null one."""
        if node is None or (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")):
            return []
        if not isinstance(node, yaml.MappingNode):
            self.wrong(node, f"{what} must be a map", "not-a-map")
            return []
        found: dict[str, tuple[yaml.Node, str, yaml.Node]] = {}
        for key, value in node.value:
            name = str(key.value)
            if name in found:
                first = found[name][0].start_mark.line + 1
                self.wrong(key, f"`{name}` is given twice, first in line {first}", "duplicate-key")
            found.setdefault(name, (key, name, value))
        return list(found.values())

    def section(self, node: yaml.Node | None, what: str, key: str) -> yaml.Node | None:
        """The value of one key of a map; others are somebody else's."""
        return next((value for _, name, value in self.entries(node, what) if name == key), None)

    def pools(self, root: yaml.Node | None) -> tuple[PoolConfig, ...]:
        local = self.section(root, "the file", "local")
        found = []
        for key, name, value in self.entries(self.section(local, "`local`", "pools"), "`pools`"):
            if not NAME.fullmatch(name):
                text = f"`{name}` is no name for a pool: lower case letters, digits and `-`"
                self.wrong(key, text, hint="begin with a letter; 32 characters at most")
            groups = value.value if isinstance(value, yaml.SequenceNode) else [value]
            hosts: list[LocalHost] = []
            for group in groups:
                hosts += self.group(group, name, len(hosts))
            if len(hosts) > HOSTS_MAX:
                self.wrong(value, f"a pool has {HOSTS_MAX} hosts at most")
            found.append(PoolConfig(name, tuple(hosts[:HOSTS_MAX])))
        return tuple(found)

    def group(self, node: yaml.Node, pool: str, first: int) -> list[LocalHost]:
        """Some equal hosts, numbered from `first`."""
        given: dict[str, yaml.Node] = {}
        for key, name, value in self.entries(node, f"pool `{pool}`"):
            if name not in KEYS:
                near = difflib.get_close_matches(name, KEYS, 1)
                hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(KEYS)}"
                self.wrong(key, f"`{name}` is unknown in a pool", "unknown-key", hint)
            given[name] = value
        count = int(self.number(given.get("hosts"), "hosts", 1.0, whole=True))
        memory = self.memory(given.get("accelerator_memory"), 0.0)
        host = LocalHost(
            name="",
            cpus=self.number(given.get("cpus"), "cpus", DEFAULT_CPUS),
            memory_gib=self.memory(given.get("memory"), DEFAULT_MEMORY_GIB),
            cards=self.cards(given.get("accelerators"), memory),
            price_per_hour_usd=self.number(given.get("price"), "price", 0.0, zero=True),
        )
        numbers = range(first, first + min(count, HOSTS_MAX + 1))
        return [_named(host, f"{pool}-{number}") for number in numbers]

    def number(
        self,
        node: yaml.Node | None,
        name: str,
        default: float,
        *,
        whole: bool = False,
        zero: bool = False,
    ) -> float:
        """A number above 0 (`zero`: or 0)."""
        if node is None:
            return default
        try:
            found = float(str(node.value))
        except ValueError:
            found = -1.0
        below = found < 0 or (found == 0 and not zero)
        if below or found > 1e9 or (whole and found != int(found)) or found != found:
            kind = "whole number" if whole else "number"
            self.wrong(node, f"`{name}` must be a {kind} {'from 0 on' if zero else 'above 0'}")
            return default
        return found

    def memory(self, node: yaml.Node | None, default: float) -> float:
        """GiB: `32`, `32Gi`, `1500MB`."""
        if node is None:
            return default
        match = MEMORY.fullmatch(str(node.value).strip())
        if match is None or not float(match[1]):
            self.wrong(node, "memory must be an amount above 0", hint="`32`, `32GB` or `1500MB`")
            return default
        return float(match[1]) * UNITS[match[2].upper()]

    def cards(self, node: yaml.Node | None, memory: float) -> tuple[Cards, ...]:
        """`H100`, `H100:8`, or `{H100: 8, L4: 2}`; indices are counted through."""
        pairs: list[tuple[str, str]] = []
        if isinstance(node, yaml.MappingNode):
            pairs = [
                (name, str(value.value)) for _, name, value in self.entries(node, "accelerators")
            ]
        elif node is not None and isinstance(node, yaml.ScalarNode) and node.value:
            name, _, text = str(node.value).partition(":")
            pairs = [(name.strip(), text.strip())]
        elif node is not None:
            self.wrong(node, "accelerators must be a name or a map", hint="`H100:8`")
        found, first = [], 0
        for name, text in pairs:
            number = text or "1"
            count = int(number) if number.isdigit() else 0
            if not name or not 0 < count <= CARDS_MAX:
                assert node is not None
                words = f"`{name}:{text}` is no number of cards from 1 to {CARDS_MAX}"
                self.wrong(node, words, hint="`H100:8`")
                continue
            found.append(Cards(name, tuple(range(first, first + count)), memory))
            first += count
        return tuple(found)


def _named(host: LocalHost, name: str) -> LocalHost:
    return LocalHost(name, host.cpus, host.memory_gib, host.cards, host.price_per_hour_usd)

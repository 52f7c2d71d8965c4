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

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import yaml

from argosy.infra.config_file import Reading, text_of
from argosy.infra.local.hosts import Cards, LocalHost

HOSTS_MAX: Final = 1000  # of one pool
CARDS_MAX: Final = 64  # of one host
NUMBER_MAX: Final = 1e9
COUNT: Final = re.compile(r"[0-9]{1,4}")
DEFAULT_CPUS: Final = 4.0
DEFAULT_MEMORY_GIB: Final = 16.0
NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")
AMOUNT: Final[Mapping[str, Any]] = {
    "type": ["number", "string"], "description": "GiB, or with a unit: `32`, `32GB`, `1500MB`",
}  # fmt: skip
HOSTS: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "Equal hosts. They are counted, not enforced.",
    "additionalProperties": False,
    "properties": {
        "hosts": {"type": "integer", "minimum": 1, "maximum": HOSTS_MAX, "default": 1},
        "cpus": {"type": "number", "exclusiveMinimum": 0, "default": DEFAULT_CPUS},
        "memory": {**AMOUNT, "default": DEFAULT_MEMORY_GIB},
        "accelerators": {
            "description": "Pretended cards: `H100:8`, or `{H100: 8, L4: 2}`.",
            "type": ["string", "object"],
            "additionalProperties": {"type": "integer", "minimum": 1, "maximum": CARDS_MAX},
        },
        "accelerator_memory": AMOUNT,
        "price": {"type": "number", "minimum": 0, "description": "Dollars per hour and host."},
    },
}
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "This machine, and virtual hosts on it.",
    "additionalProperties": False,
    "properties": {
        "pools": {
            "type": "object",
            "description": "Pools of virtual hosts: `--infra local/NAME`.",
            "propertyNames": {"pattern": f"^{NAME.pattern}$"},
            "additionalProperties": {
                "anyOf": [HOSTS, {"type": "array", "items": HOSTS, "minItems": 1}]
            },
        }
    },
}
KEYS: Final = tuple(HOSTS["properties"])
MEMORY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
UNITS: Final = {"K": 2.0**-20, "M": 2.0**-10, "G": 1.0, "": 1.0, "T": 2.0**10}


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """One virtual pool."""

    name: str
    hosts: tuple[LocalHost, ...]


def read_pools(path: Path) -> tuple[PoolConfig, ...]:
    """The pools of the configuration file; () when there is no file. Raises InputErrors."""
    return parse_pools(text_of(path), str(path))


def parse_pools(text: str, file: str) -> tuple[PoolConfig, ...]:
    """The same, of a text. Raises InputErrors with everything that is wrong."""
    reading = _Pools(file, text)
    pools = reading.pools(reading.root())
    reading.settle()
    return pools


def shown(text: str, file: str) -> dict[str, Any]:
    """Every pool by name, as it was understood. Raises InputErrors."""
    return {pool.name: _shown(pool.hosts) for pool in parse_pools(text, file)}


def _shown(hosts: tuple[LocalHost, ...]) -> Any:
    """Groups of equal hosts; one of them is not in a list."""
    groups = [
        {
            "hosts": sum(1 for _ in equal),
            "cpus": like.cpus,
            "memory": like.memory_gib,
            "accelerators": {one.name: len(one.indices) for one in like.cards},
            "price": like.price_per_hour_usd,
        }
        for like, equal in groupby(hosts, lambda one: _named(one, ""))
    ]
    return groups[0] if len(groups) == 1 else groups


class _Pools(Reading):
    """The file, read for its virtual pools."""

    def pools(self, root: yaml.Node | None) -> tuple[PoolConfig, ...]:
        local = self.section(root, "the file", "local")
        inside = self.entries(local, "`local`", tuple(SCHEMA["properties"]))
        pools = inside["pools"][1] if "pools" in inside else None
        found = []
        for name, (key, value) in self.entries(pools, "`pools`").items():
            if not NAME.fullmatch(name):
                text = f"`{name}` is no name for a pool: lower case letters, digits and `-`"
                self.wrong(key, text, hint="begin with a letter; 32 characters at most")
            groups = value.value if isinstance(value, yaml.SequenceNode) else [value]
            hosts: list[LocalHost] = []
            for group in groups:
                hosts += self.group(group, name, len(hosts))
            if not groups:
                self.wrong(value, f"pool `{name}` has no hosts", hint="write `{hosts: 2}`")
            if len(hosts) > HOSTS_MAX:
                text = f"a pool has {HOSTS_MAX} hosts at most"
                self.wrong(value, text, hint="make another pool of the rest")
            found.append(PoolConfig(name, tuple(hosts[:HOSTS_MAX])))
        return tuple(found)

    def group(self, node: yaml.Node, pool: str, first: int) -> list[LocalHost]:
        """Some equal hosts, numbered from `first`."""
        entries = self.entries(node, f"pool `{pool}`")
        for name, (key, _) in entries.items():
            if name not in KEYS:
                self.unknown(key, "a pool", KEYS)
        given = {name: value for name, (_, value) in entries.items()}
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
        within = 0.0 <= found <= NUMBER_MAX and (found > 0.0 or zero)  # what is NaN is not
        if not within or (whole and found != int(found)):
            kind = "whole number" if whole else "number"
            text = f"`{name}` must be a {kind} {'from 0 on' if zero else 'above 0'}"
            self.wrong(node, text, hint=f"write it in digits: `{name}: 2`")
            return default
        return found

    def memory(self, node: yaml.Node | None, default: float) -> float:
        """GiB: `32`, `32Gi`, `1500MB`."""
        if node is None:
            return default
        match = MEMORY.fullmatch(str(node.value).strip())
        found = float(match[1]) * UNITS[match[2].upper()] if match else 0.0
        if not 0.0 < found <= NUMBER_MAX:
            self.wrong(node, "memory must be an amount above 0", hint="`32`, `32GB` or `1500MB`")
            return default
        return found

    def cards(self, node: yaml.Node | None, memory: float) -> tuple[Cards, ...]:
        """`H100`, `H100:8`, or `{H100: 8, L4: 2}`; indices are counted through."""
        pairs: list[tuple[str, str]] = []
        if isinstance(node, yaml.MappingNode):
            entries = self.entries(node, "accelerators")
            pairs = [(name, str(value.value)) for name, (_, value) in entries.items()]
        elif node is not None and isinstance(node, yaml.ScalarNode) and node.value:
            name, _, text = str(node.value).partition(":")
            pairs = [(name.strip(), text.strip())]
        elif node is not None:
            self.wrong(node, "accelerators must be a name or a map", hint="`H100:8`")
        found, first = [], 0
        for name, text in pairs:
            number = text or "1"
            count = int(number) if COUNT.fullmatch(number) else 0
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

"""Reads the pools of SSH hosts, every error with its place.

    ssh:
      pools:
        lab:
          user: ada                       # these hold for all hosts that do not say otherwise
          identity_file: ~/.ssh/lab
          accept_new: true                # take the key of a host that was never seen before
          fence_after: 10m                # see docs/ssh.md before you set it
          agent_home: ~/.argosy-agent     # on the hosts
          hosts:
            - gpu-1
            - {host: 10.0.0.2, user: root, port: 2222, identity_file: ~/.ssh/root, name: gpu-2}
            - {host: gpu-3, address: 10.1.0.3}    # where the other hosts reach it

SkyPilot's `~/.sky/ssh_node_pools.yaml` is read too; a pool of the same name here comes first.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from argosy.infra.config_file import Reading, text_of

HOSTS_MAX: Final = 1000  # of one pool
AGENT_HOME: Final = "~/.argosy-agent"
POOL_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
HOST_NAME: Final = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]{0,250}")
TEXT: Final[Mapping[str, Any]] = {"type": "string"}
HOST: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["host"],
    "properties": {
        "host": {"type": "string", "description": "As for `ssh`: a name, or USER@ADDRESS."},
        "user": TEXT,
        "port": {"type": "integer", "minimum": 1, "maximum": 65535},
        "identity_file": TEXT,
        "name": {"type": "string", "description": "What Argosy calls it; else its `host`."},
        "address": {"type": "string", "description": "IPv4, where the pool's others reach it."},
    },
}
POOL: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["hosts"],
    "properties": {
        "hosts": {
            "type": "array",
            "minItems": 1,
            "maxItems": HOSTS_MAX,
            "items": {"anyOf": [TEXT, HOST]},
        },
        "user": {"type": "string", "description": "For hosts that do not say otherwise."},
        "identity_file": TEXT,
        "accept_new": {
            "type": "boolean",
            "default": False,
            "description": "Take the key of a host that was never seen before.",
        },
        "fence_after": {
            "type": ["string", "number"],
            "description": "What runs on a host that was cut off for so long is ended: `10m`.",
        },
        "agent_home": {"type": "string", "default": AGENT_HOME, "description": "On the hosts."},
    },
}
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "Hosts that are reached by the system's `ssh`.",
    "additionalProperties": False,
    "properties": {
        "pools": {
            "type": "object",
            "description": "Pools of hosts: `--infra ssh/NAME`.",
            "propertyNames": {"pattern": f"^{POOL_NAME.pattern}$"},
            "additionalProperties": POOL,
        }
    },
}
POOL_KEYS: Final = tuple(POOL["properties"])
HOST_KEYS: Final = tuple(HOST["properties"])
SECONDS: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|h|)")
UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
FENCE_LEAST: Final = 5.0  # seconds: a busy host may miss a heartbeat or two
SKY_FILE: Final = Path(".sky/ssh_node_pools.yaml")  # in the user's home


@dataclass(frozen=True, slots=True)
class HostConfig:
    """How one host is reached. "" and 0: as the user's ssh configuration has it."""

    name: str  # in Argosy's words
    host: str  # in those of ssh
    user: str = ""
    port: int = 0
    identity_file: str = ""
    accept_new: bool = False
    address: str = ""  # IPv4, where the other hosts reach it; "": as it finds out itself

    @property
    def words(self) -> list[str]:
        """How a person would reach it, without `ssh`."""
        found = ["-p", str(self.port)] if self.port else []
        found += ["-i", self.identity_file] if self.identity_file else []
        return [*found, f"{self.user}@{self.host}" if self.user else self.host]


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """One pool."""

    name: str
    hosts: tuple[HostConfig, ...]
    agent_home: str = AGENT_HOME
    fence_after: float = 0.0  # seconds; 0: none was set


def read_pools(config: Path, user_home: Path) -> tuple[PoolConfig, ...]:
    """All pools; () when there is no file. Raises InputError, InputErrors."""
    sky_file = user_home / SKY_FILE
    ours = parse_pools(text_of(config), str(config))
    sky = parse_pools(text_of(sky_file), str(sky_file), section="", sky=True)
    names = {pool.name for pool in ours}
    return (*ours, *(pool for pool in sky if pool.name not in names))


def shown(text: str, file: str) -> dict[str, Any]:
    """Every pool by name, as it was understood. Raises InputErrors."""
    return _shown(parse_pools(text, file))


def sky_shown(user_home: Path) -> tuple[Path, str, dict[str, Any]]:
    """SkyPilot's file, what it says, and its pools by name. Raises InputError, InputErrors."""
    path = user_home / SKY_FILE
    text = text_of(path)
    return path, text, _shown(parse_pools(text, str(path), section="", sky=True))


def _shown(pools: tuple[PoolConfig, ...]) -> dict[str, Any]:
    """ "": nothing was said."""
    found: dict[str, Any] = {}
    for pool in pools:
        fields = asdict(pool)
        del fields["name"]
        hosts = [{**host, "port": host["port"] or ""} for host in fields["hosts"]]
        found[pool.name] = {**fields, "hosts": hosts, "fence_after": pool.fence_after or ""}
    return found


def parse_pools(
    text: str, file: str, *, section: str = "ssh", sky: bool = False
) -> tuple[PoolConfig, ...]:
    """The pools in a text. `sky`: as SkyPilot writes them. Raises InputErrors with all errors."""
    reading = Reading(file, text)
    root = reading.root()
    if section:
        found = reading.section(root, "the file", section)
        inside = reading.entries(found, f"`{section}`", ("pools",))
        root = inside["pools"][1] if "pools" in inside else None
    pools = []
    for name, (key, value) in reading.entries(root, "`pools`").items():
        if not POOL_NAME.fullmatch(name):
            hint = "letters, digits, `.`, `_` and `-`; 63 at most"
            reading.wrong(key, f"`{name}` is no name for a pool", hint=hint)
        pools.append(_pool(reading, name, value, sky=sky))
    reading.settle()
    return tuple(pools)


def _pool(reading: Reading, name: str, node: yaml.Node, *, sky: bool) -> PoolConfig:
    if isinstance(node, yaml.SequenceNode):
        hint = f"write `{name}: {{hosts: [gpu-1, gpu-2]}}`"
        reading.wrong(node, f"pool `{name}` must be a map", "not-a-map", hint)
        return PoolConfig(name, ())
    # What else SkyPilot's file may hold is for SkyPilot to check.
    given = reading.entries(node, f"pool `{name}`", () if sky else POOL_KEYS)
    values = {key: value for key, (_, value) in given.items()}
    all_hosts = HostConfig(
        name="",
        host="",
        user=reading.word(values["user"], "user") if "user" in values else "",
        identity_file=_identity(reading, values.get("identity_file")),
        accept_new="accept_new" in values and reading.boolean(values["accept_new"], "accept_new"),
    )
    hosts = _hosts(reading, node, values.get("hosts"), all_hosts, "ip" if sky else "host")
    home = values.get("agent_home")
    return PoolConfig(
        name,
        hosts,
        (reading.path(home, "agent_home") if home else "") or AGENT_HOME,
        _seconds(reading, values.get("fence_after")),
    )


def _hosts(
    reading: Reading, pool: yaml.Node, node: yaml.Node | None, like: HostConfig, key: str
) -> tuple[HostConfig, ...]:
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        hint = "`hosts: [gpu-1, gpu-2]`"
        reading.wrong(node or pool, "a pool needs `hosts`, a list", "no-hosts", hint)
        return ()
    if len(node.value) > HOSTS_MAX:
        hint = "make another pool of the rest"
        reading.wrong(node, f"a pool has {HOSTS_MAX} hosts at most", hint=hint)
    found: dict[str, HostConfig] = {}
    for one in node.value[:HOSTS_MAX]:
        host = _host(reading, one, like, key)
        if host is not None and host.name in found:
            hint = "give one of them another `name`"
            reading.wrong(one, f"the host `{host.name}` is given twice", "duplicate-host", hint)
        elif host is not None:
            found[host.name] = host
    return tuple(found.values())


def _host(reading: Reading, node: yaml.Node, like: HostConfig, key: str) -> HostConfig | None:
    """One host; None when it is wrong."""
    keys = HOST_KEYS if key == "host" else ()
    values = {}
    if isinstance(node, yaml.MappingNode):
        values = {name: value for name, (_, value) in reading.entries(node, "a host", keys).items()}
        if key not in values:
            hint = f"write `{{{key}: gpu-1}}`: a name or an address, as `ssh` takes it"
            reading.wrong(node, f"a host needs `{key}`", "no-host", hint)
            return None
    user, _, host = reading.word(values.get(key, node), key).rpartition("@")
    name = reading.word(values["name"], "name") if "name" in values else host
    for text in (host, name):
        if text and not HOST_NAME.fullmatch(text):
            hint = "a name or an address, as `ssh` takes it"
            reading.wrong(node, f"`{text}` is no name of a host", hint=hint)
            return None
    if not host or not name:
        return None
    return HostConfig(
        name=name,
        host=host,
        user=reading.word(values["user"], "user") if "user" in values else user or like.user,
        port=_port(reading, values.get("port")),
        identity_file=_identity(reading, values.get("identity_file")) or like.identity_file,
        accept_new=like.accept_new,
        address=_address(reading, values.get("address")),
    )


def _address(reading: Reading, node: yaml.Node | None) -> str:
    text = str(node.value).strip() if node is not None else ""
    try:
        loopback = bool(text) and ipaddress.IPv4Address(text).is_loopback
    except ValueError:
        loopback = True
    if node is not None and (loopback or not text):
        hint = "the one at which the pool's other hosts reach it, such as `10.0.0.2`"
        reading.wrong(node, "`address` must be an IPv4 address of the host", hint=hint)
        return ""
    return text


def _port(reading: Reading, node: yaml.Node | None) -> int:
    text = str(node.value) if node is not None else "0"
    number = int(text) if text.isdecimal() and len(text) < 6 else -1
    if node is not None and not 0 < number < 65536:
        reading.wrong(node, "`port` must be a number from 1 to 65535", hint="write `port: 2222`")
        return 0
    return number


def _identity(reading: Reading, node: yaml.Node | None) -> str:
    text = reading.path(node, "identity_file") if node is not None else ""
    return os.path.expanduser(text) if text else ""


def _seconds(reading: Reading, node: yaml.Node | None) -> float:
    if node is None:
        return 0.0
    match = SECONDS.fullmatch(str(node.value).strip())
    seconds = float(match[1]) * UNITS[match[2]] if match else 0.0
    if seconds < FENCE_LEAST:
        least = f"a time of {FENCE_LEAST:g} s or more"
        reading.wrong(node, f"`fence_after` must be {least}", hint="`90s`, `10m` or `1h`")
        return 0.0
    return seconds

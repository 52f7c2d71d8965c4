"""What the agent tells the proxy, and what the proxy tells back: two small JSON files."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Sequence, Tuple

from .. import records
from .network import Network, write_whole

CONTROL = "balance.json"
STATS = "balance-stats.json"


@records.dataclass(frozen=True)
class Backend:
    """A node behind a balanced address."""

    address: str
    healthy: bool = True  # False: gets no new connection, keeps those it has
    draining: bool = False  # likewise, while it is on its way out


@records.dataclass(frozen=True)
class Service:
    """A balanced task: the network has an address for it (`balanced`)."""

    task: str
    ports: Sequence[int]
    backends: Sequence[Backend]


def write(network: Network, services: Sequence[Service]) -> None:
    """Tell the proxy all services of the group; it follows at once. Safe when nothing changed."""
    listen = [
        {
            "name": "%s:%d" % (service.task, port),
            "address": network.balanced[service.task],
            "port": port,
            "backends": [{**records.asdict(b), "port": port} for b in service.backends],
        }
        for service in services
        for port in service.ports
    ]
    path = os.path.join(network.directory, CONTROL)
    text = json.dumps({"listen": listen})
    if _read(path) != text:
        write_whole(path, text)


def stats(network: Network) -> Dict[str, Any]:
    """What the proxy last wrote ({} before the first time): at most a second old, and at once
    after a change of the services. Bytes count when a connection ends.

    {"name:port": {"connections", "held", "refused", "error", "backends": {"address:port":
    {"usable", "open", "connections", "failures", "bytes_in", "bytes_out"}}}}
    """
    text = _read(os.path.join(network.directory, STATS))
    value: Dict[str, Any] = json.loads(text) if text else {}
    return value


@records.dataclass(frozen=True)
class Listen:
    """What the proxy shall listen to, and its backends with whether they may be used."""

    name: str
    address: Tuple[str, int]
    backends: Dict[Tuple[str, int], bool]


def read_control(directory: str) -> List[Listen]:
    """The proxy's side of `write` ([] when nothing was written); ValueError for anything else."""
    text = _read(os.path.join(directory, CONTROL))
    try:
        return [_listen(entry) for entry in json.loads(text)["listen"]] if text else []
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError("not a control file: %r" % error) from error


def _listen(entry: Dict[str, Any]) -> Listen:
    backends = {
        (str(one["address"]), int(one["port"])): bool(one["healthy"]) and not one["draining"]
        for one in entry["backends"]
    }
    return Listen(str(entry["name"]), (str(entry["address"]), int(entry["port"])), backends)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""

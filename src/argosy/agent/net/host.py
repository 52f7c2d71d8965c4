"""Mode host: the machine's own network, one 127.x address for each node.

Right for programs that bind $ARGOSY_HOSTNAME; two that bind 0.0.0.0 with one port get in each
other's way. Of a group that lies on several hosts every node here has the machine's own address
instead: two of them cannot have one port at all. The functions are those of `isolated`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import zlib
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

from .. import records
from . import machine, supervisor
from . import names as hosts_file
from .linux import interfaces
from .network import Network, from_record, load, locked, save, with_names

# 127.64.0.0/10, away from 127.0.0.1, 127.0.0.53 and Debian's 127.0.1.1: 16,384 ranges of a /24
FIRST, RANGES = 64 << 8, 1 << 14


def build(
    directory: str,
    mark: str,
    nodes: Sequence[str],
    subnet: Optional[str] = None,
    balanced: Sequence[str] = (),
    names: str = "mount",
    address: str = "",
) -> Network:
    """Ensure an address for each node; `names` is what `trial` found: mount, nss_wrapper, none; or
    `container`, `dns` where the agent is alone in one.

    `address`: the machine's own, which other hosts reach, for all nodes; "": each one of its own.
    Raises NetworkError when names cannot be shown in that way.
    """
    directory = os.path.abspath(directory)
    with locked(directory):
        network = load(directory)
        if network is None or network.mode != "host":
            network = Network(
                mode="host",
                directory=directory,
                mark=mark,
                subnet=subnet or _free_subnet(directory, mark, len(nodes) + len(balanced)),
                router="127.0.0.1",
                nodes={},
                balanced={},
                names=names,
                address=address,
                bound=_bound(address),
            )
            hosts_file.keep_before(network)
            hosts_file.rewrite(network.hosts, hosts_file.compose("local", network))
            if names == "mount":
                user = hosts_file.try_mount(network.hosts)
                network = records.replace(network, user=user)
        return save(with_names(network, tuple(nodes), tuple(balanced)))


def _bound(address: str) -> str:
    """Where programs listen that are to be reached at the address."""
    if not address or interfaces.bindable(address):
        return address
    return machine.found_address() or address


def _free_subnet(directory: str, mark: str, count: int) -> str:
    """A range that no other group beside this one has; chance keeps users apart."""
    own, last = os.path.split(directory)  # groups/GROUP, net
    groups = os.path.dirname(own)
    taken = set()
    for name in os.listdir(groups):
        with contextlib.suppress(OSError, ValueError):  # no group of ours
            other = load(os.path.join(groups, name, last))
            if other is not None and other.mode == "host":
                taken.add(other.subnet)
    if count > 200:
        return "127.%d.0.0/16" % (128 + zlib.crc32(mark.encode()) % 120)
    start = zlib.crc32(mark.encode())
    for step in range(RANGES):
        number = FIRST + (start + step) % RANGES
        subnet = "127.%d.%d.0/24" % (number >> 8, number & 255)
        if subnet not in taken:
            return subnet
    return "127.63.0.0/24"


def adopt(record: Mapping[str, Any]) -> Optional[Network]:
    """The network of a record; nothing has to live for it."""
    network = from_record(record)
    return load(network.directory) or network


def enter_attempt(
    network: Network, node: str, hostname: str, pid_namespace: bool = True
) -> Dict[str, Any]:
    """What the launcher needs for an attempt: JSON. Nothing but names is its own."""
    wrapper = network.names == "nss_wrapper"
    return {
        "mode": "host",
        "names": network.names,
        "join": None,
        "binds": [list(pair) for pair in hosts_file.binds(network.directory, network.hosts)],
        "hostname": hostname,
        "user": network.user,
        "uid": os.geteuid(),
        "gid": os.getegid(),
        "env": hosts_file.wrapper_environment(network.hosts) if wrapper else {},
    }


def destroy(record: Mapping[str, Any], unused: Callable[[], bool] = lambda: True) -> None:
    """End the proxy and remove the directory; fine if all is gone. Attempts are not known here.

    Nothing is done unless it is `unused`, which is asked while nobody else can change the network.
    """
    network = from_record(record)
    if os.path.isdir(network.directory):
        with locked(network.directory):
            if unused():
                supervisor.stop(network)
                shutil.rmtree(network.directory, ignore_errors=True)

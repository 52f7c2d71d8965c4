"""What a group's network on one machine is, as a value and as the record beside it on disk."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import json
import os
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from .. import records

RECORD = "network.json"
HOSTS = "hosts"
NOT_ADDRESSES = 2  # the network's own and the last one


class NetworkError(Exception):
    """A step of the set-up failed; says which, why, and what the owner of the machine can do."""

    def __init__(self, step: str, reason: str, hint: str = "") -> None:
        super().__init__("%s: %s" % (step, reason))
        self.step = step
        self.reason = reason
        self.hint = hint


@records.dataclass(frozen=True)
class Holder:
    """The process that owns an isolated network; all three together are its identity."""

    boot: str
    pid: int
    start: int  # clock ticks since boot


@records.dataclass(frozen=True)
class Network:
    """The network of one group on one machine."""

    mode: str  # "isolated" or "host"
    directory: str
    mark: str
    subnet: str
    router: str  # address of the group's router; in mode host 127.0.0.1
    nodes: Mapping[str, str]  # name -> address
    balanced: Mapping[str, str]  # task -> address of the proxy for it
    names: str = (
        "mount"  # how programs see the hosts file: mount, nss_wrapper, container, dns, none
    )
    holder: Optional[Holder] = None  # None: mode host
    namespaces: str = ""  # folder, in the holder's mounts, with one file per network namespace
    user: bool = False  # a user namespace is needed: the owner cannot mount
    way_out: bool = False
    pid_namespaces: bool = False
    address: str = ""  # mode host, of a group on several hosts: at which they reach this one
    bound: str = ""  # the same, where programs here listen; the address of every node here

    @property
    def hosts(self) -> str:
        """Path of the hosts file; in a container that is the agent's own, the container's."""
        return "/etc/hosts" if self.names == "container" else os.path.join(self.directory, HOSTS)

    @property
    def hosts_before(self) -> str:
        """Path of what the machine's hosts file said before the group's names were put into it."""
        path = os.path.join(self.directory, HOSTS + ".before")
        return path if self.names == "container" else "/etc/hosts"

    def record(self) -> Dict[str, Any]:
        """The same as plain JSON values, for a journal."""
        return records.asdict(self)

    def number(self, node: str) -> int:
        """The n-th address of the subnet is the node's; also names its interface."""
        first = ipaddress.ip_network(self.subnet).network_address
        return int(ipaddress.ip_address(self.nodes[node])) - int(first)


def from_record(record: Mapping[str, Any]) -> Network:
    """The value whose `record()` this is."""
    fields = dict(record)
    holder = fields.pop("holder")
    return Network(holder=Holder(**holder) if holder else None, **fields)


def load(directory: str) -> Optional[Network]:
    """What the directory's record says; None if nothing was built there."""
    try:
        with open(os.path.join(directory, RECORD), encoding="utf-8") as file:
            return from_record(json.load(file))
    except (FileNotFoundError, NotADirectoryError):
        return None


def save(network: Network) -> Network:
    """Write the record, by rename, and give the network back."""
    write_whole(os.path.join(network.directory, RECORD), json.dumps(network.record()))
    return network


def write_whole(path: str, text: str) -> None:
    """Replace a file at once: readers see the old text or the new."""
    part = "%s.%d" % (path, os.getpid())
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(part, path)


@contextlib.contextmanager
def locked(directory: str) -> Iterator[None]:
    """Be the only one who changes this group's network; agents of one machine share it."""
    path = os.path.join(directory, "lock")
    fd = -1
    while fd < 0:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # it was removed just now
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if not _is_at(fd, path):  # who had it removed the directory: a new one has another lock
                os.close(fd)
                fd = -1
    try:
        yield
    finally:
        os.close(fd)


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def with_names(network: Network, nodes: Tuple[str, ...], balanced: Tuple[str, ...]) -> Network:
    """Add what is missing: nodes get addresses from below, balanced tasks from above.

    An address, once given, stays. Where the network has a `bound` address, all nodes have that.
    Raises NetworkError when the subnet is full.
    """
    if network.bound:
        network = records.replace(
            network, nodes={**network.nodes, **dict.fromkeys(nodes, network.bound)}
        )
    subnet = ipaddress.ip_network(network.subnet)
    first = int(subnet.network_address)
    last = first + subnet.num_addresses - NOT_ADDRESSES
    taken = {int(ipaddress.ip_address(a)) for a in network.nodes.values()}
    taken |= {int(ipaddress.ip_address(a)) for a in network.balanced.values()}
    free = [n for n in range(first + 2, last + 1) if n not in taken]
    new_nodes = [n for n in dict.fromkeys(nodes) if n not in network.nodes]
    new_tasks = [t for t in dict.fromkeys(balanced) if t not in network.balanced]
    if len(new_nodes) + len(new_tasks) > len(free):
        raise NetworkError(
            "addresses",
            "%s has room for %d nodes" % (network.subnet, subnet.num_addresses - 3),
            "give the network a larger subnet, such as 10.77.0.0/20",
        )
    return records.replace(
        network,
        nodes={**network.nodes, **{n: _text(free[at]) for at, n in enumerate(new_nodes)}},
        balanced={
            **network.balanced,
            **{t: _text(free[-1 - at]) for at, t in enumerate(new_tasks)},
        },
    )


def _text(number: int) -> str:
    return str(ipaddress.ip_address(number))


def boot_id() -> str:
    """What changes when the machine starts anew."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()

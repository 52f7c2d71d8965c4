"""The hosts file of a group: composed from its network, rewritten in place, shown to programs.

A program sees it as its own /etc/hosts: in a private mount namespace, or else by nss_wrapper; in a
container that is the agent's own it is that file itself.
What the file lacks is asked of the outside resolver, which is slow and wrong: so it lists every
node, those that are down too, and the router.
"""

from __future__ import annotations

import fcntl
import os
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from .linux import inside, kernel
from .network import Network, NetworkError, write_whole

NSSWITCH = "nsswitch.conf"
WRAPPER_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
)
NSCD = "/run/nscd/socket"


def compose(
    group: str,
    network: Network,
    machine: Optional[Sequence[str]] = None,
    balanced: Optional[Mapping[str, str]] = None,
    others: Optional[Mapping[str, str]] = None,
) -> str:
    """The text: localhost, the router, `address node.group node`, `address task.group` (balanced).

    A balanced task's name means the proxy for all; its nodes keep their own names and addresses.
    `balanced`: task -> that name, where it is not simply `task.group`. `others`: node -> address at
    which hosts reach it, of a group on several: a node that was here may be elsewhere now.
    Then what the machine itself knows (`machine`; None: its /etc/hosts), in mode isolated without
    its loopback addresses, which are not a node's.
    """
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    if network.mode == "isolated":
        lines.append("%s router.%s router" % (network.router, group))
    nodes = dict(network.nodes)
    for node, address in (others or {}).items():
        if address != network.address or node not in nodes:
            nodes[node] = address
    for node, address in nodes.items():
        lines.append("%s %s.%s %s" % (address, node, group, node))
    for task, address in network.balanced.items():
        lines.append("%s %s" % (address, (balanced or {}).get(task) or "%s.%s" % (task, group)))
    for line in host_lines(network.hosts_before) if machine is None else machine:
        if network.mode == "host" or not line.startswith(("127.", "::1")):
            lines.append(line)
    return "\n".join(lines) + "\n"


def host_lines(path: str = "/etc/hosts") -> List[str]:
    """What the machine's own file says, without comments and localhost."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.split("#")[0].rstrip() for line in file]
    except OSError:
        return []
    return [line for line in lines if line and "localhost" not in line]


def keep_before(network: Network) -> None:
    """Keep what a hosts file says that is not the group's own, once."""
    if network.names == "container" and not os.path.exists(network.hosts_before):
        with open(network.hosts, encoding="utf-8", errors="replace") as file:
            write_whole(network.hosts_before, file.read())


def rewrite(path: str, text: str) -> None:
    """Replace the text in place by one write: a bind mount would not see a rename.

    Never shorter first: an empty moment sends a lookup to the outside resolver for 5 s.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        raw = text.encode()
        if os.pread(fd, len(raw) + 1, 0) != raw:
            os.pwrite(fd, raw, 0)
            os.ftruncate(fd, len(raw))
    finally:
        os.close(fd)


def binds(directory: str, hosts: str) -> List[Tuple[str, str]]:
    """What to bind over what, so that `hosts` is asked first and nobody else in its place."""
    found = [(hosts, os.path.realpath("/etc/hosts"))]
    own = _own_nsswitch(directory)
    if own is not None:
        found.append((own, os.path.realpath("/etc/nsswitch.conf")))
    if os.path.exists(NSCD):
        found.append(("/dev/null", os.path.realpath(NSCD)))
    return found


def files_first(text: str) -> Optional[str]:
    """nsswitch.conf with `files` as the first source of host names; None if it is so already."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        key, colon, rest = line.partition(":")
        words = rest.split("#")[0].split()
        if colon and key.strip() == "hosts":
            if words[:1] == ["files"]:
                return None
            lines[at] = "hosts: files " + " ".join(word for word in words if word != "files")
            return "\n".join(lines) + "\n"
    return None


def _own_nsswitch(directory: str) -> Optional[str]:
    try:
        with open("/etc/nsswitch.conf", encoding="utf-8", errors="replace") as file:
            text = files_first(file.read())
    except OSError:
        return None
    if text is None:
        return None
    path = os.path.join(directory, NSSWITCH)
    rewrite(path, text)
    return path


def nss_wrapper() -> Optional[str]:
    """Path of libnss_wrapper.so, if it is installed."""
    for folder in WRAPPER_FOLDERS:
        path = os.path.join(folder, "libnss_wrapper.so")
        if os.path.exists(path):
            return path
    return None


def wrapper_environment(hosts: str) -> Dict[str, str]:
    """What makes a program of mode host see the names by nss_wrapper ({} when there is none)."""
    library = nss_wrapper()
    return {"LD_PRELOAD": library, "NSS_WRAPPER_HOSTS": hosts} if library else {}


def try_mount(hosts: str) -> bool:
    """Whether a user namespace is needed to show `hosts` to a program; NetworkError: it cannot be.

    A root that may not mount (in a container) goes an ordinary user's way.
    """
    if os.geteuid() == 0:
        try:
            inside.call(lambda: _mount(hosts, user=False))
            return False
        except NetworkError:
            pass
    inside.call(lambda: _mount(hosts, user=True))
    return True


def _mount(hosts: str, user: bool) -> bool:
    if user:
        uid, gid = os.geteuid(), os.getegid()
        with inside.step("user-namespace"):
            kernel.unshare(kernel.CLONE_NEWUSER)
        with inside.step("id-maps"):
            kernel.map_ids("%d %d 1" % (uid, uid), "%d %d 1" % (gid, gid))
    with inside.step("mounts"):
        kernel.private_mounts(kernel.CLONE_NEWUTS)
        kernel.bind(hosts, os.path.realpath("/etc/hosts"), read_only=True)
    return True

"""What the group's router is told: packet rules, kernel settings, and the command of its way out.

Nodes reach one another through the router (routed /32s: a bridge would fill the machine's one ARP
table). The way out is `pasta`, from the package passt: it lends the router one interface, wan0, and
turns its connections into plain sockets of the host, so no rule or link is made on the host.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
from typing import List, Optional, Tuple

from ..network import Holder, Network, NetworkError
from . import inside
from .hints import hint, tun_problem

WAN_ADDRESS, WAN_GATEWAY, WAN_NET = "169.254.77.2", "169.254.77.1", "169.254.77.0/30"
MTU = 65520  # pasta's own; with 1500 a node would get a tenth of the speed
RESOLV = "resolv.conf"
SBIN = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_IPV4 = "/proc/sys/net/ipv4/"
_IPV6 = "/proc/sys/net/ipv6/"
# The third value of tcp_wmem keeps senders from overrunning pasta's buffer, which stalls uploads.
# Every connection of the proxy to a node comes from one address: without more ports and the early
# reuse of closed ones (which the kernel does for loopback by itself) 470 a second would be all.
ROUTER_SETTINGS: Tuple[Tuple[str, str], ...] = (
    (_IPV4 + "ip_forward", "1"),
    (_IPV4 + "conf/all/send_redirects", "0"),
    (_IPV4 + "conf/default/send_redirects", "0"),
    (_IPV6 + "conf/default/addr_gen_mode", "1"),
    (_IPV4 + "tcp_wmem", "4096 65536 262144"),
    (_IPV4 + "tcp_tw_reuse", "1"),
    (_IPV4 + "ip_local_port_range", "10000 65535"),
)
NODE_SETTINGS: Tuple[Tuple[str, str], ...] = (
    (_IPV6 + "conf/default/addr_gen_mode", "1"),
    (_IPV4 + "tcp_wmem", "4096 65536 262144"),
    (_IPV4 + "tcp_tw_reuse", "1"),
    (_IPV4 + "ping_group_range", "0 0"),
    (_IPV4 + "ip_unprivileged_port_start", "0"),
)


def apply_settings(settings: Tuple[Tuple[str, str], ...]) -> None:
    """Write them in the current network namespace; what this kernel does not have is left out.

    Raises OSError where nothing would be passed on from node to node: in some containers /proc/sys
    is read-only.
    """
    for path, value in settings:
        try:
            fd = os.open(path, os.O_WRONLY)
            try:
                os.write(fd, value.encode())
            finally:
                os.close(fd)
        except OSError:
            if path.endswith("ip_forward") and _read(path) != value:
                raise


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def rules(subnet: str) -> str:
    """The nft rules. Between nodes nothing is tracked; inwards through wan0 comes only an answer.

    `input` drops what conntrack calls invalid: pasta's window updates, which the router would
    answer with a reset.
    """
    return """
table ip argosy
delete table ip argosy
table ip argosy {
 chain prerouting { type filter hook prerouting priority raw; policy accept;
  iifname "v*" ip daddr %(subnet)s notrack; }
 chain postrouting { type nat hook postrouting priority srcnat; policy accept;
  oifname "wan0" masquerade; }
 chain input { type filter hook input priority filter; policy accept;
  iifname "wan0" ct state != { established, related } drop; }
 chain forward { type filter hook forward priority filter; policy drop;
  iifname "v*" oifname "v*" accept
  ct state established,related accept
  oifname "wan0" ip daddr %(gateway)s udp dport 53 accept
  oifname "wan0" ip daddr { %(subnet)s, %(wan)s } reject
  iifname "v*" oifname "wan0" accept; }
}
""" % {"subnet": subnet, "gateway": WAN_GATEWAY, "wan": WAN_NET}


def load_rules(network: Network) -> None:
    """Give the router its rules; for a child, which does not return from it."""
    program = find_program("nft")
    if program is None:
        raise NetworkError("nft", "nft was not found", hint("nft", 2))
    with inside.step("nft"):
        assert network.holder is not None
        inside.join(network.holder, "net")
        reader, writer = os.pipe()
        os.write(writer, rules(network.subnet).encode())
        os.close(writer)
        out_reader, out_writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                inside.execute([program, "-f", "-"], {0: reader, 1: out_writer, 2: out_writer})
            finally:
                os._exit(127)
        os.close(out_writer)
        with open(out_reader, "rb") as file:
            said = file.read().decode(errors="replace").strip()
        if os.waitpid(pid, 0)[1]:
            raise NetworkError("nft", said[:500] or "nft failed", hint("nft", 0))


def pasta_command(namespaces: str) -> List[str]:
    """The way out's command line. A path of the namespace's file is what works as root too."""
    program = find_program("pasta")
    if program is None:
        raise NetworkError("pasta", "pasta was not found", hint("pasta", 2))
    dns = ["--dns-forward", WAN_GATEWAY] if loopback_resolver() else []
    return [
        *(program, "-f", "-4", "--config-net", "--runas", "0", "--no-map-gw"),
        *("-t", "none", "-u", "none", "-T", "none", "-U", "none"),
        *("-I", "wan0", "-a", WAN_ADDRESS, "-n", "30", "-g", WAN_GATEWAY),
        *(*dns, "--netns", namespaces + "/router"),
    ]


def has_way_out(holder: Holder) -> bool:
    """Does the router have its default route?"""
    try:
        with open("/proc/%d/net/route" % holder.pid, encoding="ascii") as file:
            return any(line.split()[:2] == ["wan0", "00000000"] for line in file)
    except OSError:
        return False


def host_has_default_route() -> bool:
    """Without one pasta has nothing to lend."""
    try:
        with open("/proc/net/route", encoding="ascii") as file:
            return any(line.split()[1:2] == ["00000000"] for line in file)
    except OSError:
        return False


def way_out_problem() -> str:
    """What keeps pasta from working here ("" if nothing that can be seen)."""
    if find_program("pasta") is None:
        return "pasta was not found"
    return tun_problem()


def loopback_resolver(text: Optional[str] = None) -> bool:
    """Is the host's resolver one that a node could not reach (127.x)?"""
    return any(server.startswith("127.") for server in _nameservers(text))


def _nameservers(text: Optional[str]) -> List[str]:
    if text is None:
        try:
            with open("/etc/resolv.conf", encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            return []
    words = [line.split() for line in text.splitlines()]
    return [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]


def resolver_file(directory: str) -> Optional[str]:
    """Path of a resolv.conf for the nodes, made where the host's own would not work in them."""
    if not loopback_resolver():
        return None
    with open("/etc/resolv.conf", encoding="utf-8", errors="replace") as file:
        kept = [line for line in file if not line.startswith("nameserver")]
    path = os.path.join(directory, RESOLV)
    with open(path, "w", encoding="utf-8") as out:
        out.write("nameserver %s\n" % WAN_GATEWAY + "".join(kept))
    return path


def find_program(name: str) -> Optional[str]:
    """Path of a program, also where an ordinary user's PATH lacks the sbin folders."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":" + SBIN)


def touched_networks() -> List[ipaddress.IPv4Network]:
    """What the host's routes and resolvers use, so that a group's subnet can keep away from it."""
    taken = []
    try:
        with open("/proc/net/route", encoding="ascii") as file:
            rows = [line.split() for line in file][1:]
    except OSError:
        rows = []
    for row in rows:
        target, mask = (int(row[n], 16).to_bytes(4, "little") for n in (1, 7))
        if any(mask):
            taken.append(ipaddress.IPv4Network((target, str(ipaddress.IPv4Address(mask)))))
    for server in _nameservers(None):
        try:
            taken.append(ipaddress.IPv4Network(server + "/32"))
        except ValueError:
            continue  # IPv6
    return taken


def free_subnet(nodes: int) -> str:
    """The first range for so many nodes that no route of the host touches.

    Groups cannot reach each other, so all groups of a machine may use the same one.
    """
    prefix = 24
    while (1 << (32 - prefix)) < nodes + 64 and prefix > 10:
        prefix -= 1
    taken = touched_networks()
    for pool in ("10.77.0.0/16", "10.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "10.0.0.0/8"):
        whole = ipaddress.IPv4Network(pool)
        if whole.prefixlen > prefix:
            continue
        for subnet in whole.subnets(new_prefix=prefix):
            if not any(subnet.overlaps(other) for other in taken):
                return str(subnet)
    raise NetworkError("addresses", "no free private range", "name a subnet that is free here")

"""Links, addresses and routes by raw AF_NETLINK messages, many in one go.

A socket stays in the network namespace in which it was made. Formats: rtnetlink(7), veth(4).
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import List, Sequence, Union

from ...records import dataclass

BATCH_MAX = 20  # messages a send; the acknowledgements of so many fit any receive buffer

_REQUEST_ACK = 1 | 4
_CREATE_EXCL = 0x400 | 0x200
_NEWLINK, _DELLINK, _NEWADDR, _NEWROUTE = 16, 17, 20, 24
_IFF_UP = 1
_IFLA_IFNAME, _IFLA_MTU, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 3, 4, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_INFO_PEER = 1, 2, 1
_RTA_DST, _RTA_OIF, _RTA_GATEWAY = 1, 4, 5
_RTNH_F_ONLINK = 4
_SCOPE_UNIVERSE, _SCOPE_LINK = 0, 253
_TABLE_MAIN, _PROTOCOL_STATIC, _TYPE_UNICAST = 254, 4, 1


@dataclass(frozen=True)
class Message:
    """One request: its type and flags, its body, and what to call it in an error."""

    kind: int
    flags: int
    body: bytes
    about: str
    fine: int = 0  # an errno that means "is so already"


def _attribute(kind: int, value: Union[bytes, str, int]) -> bytes:
    if isinstance(value, int):
        value = struct.pack("=I", value)
    elif isinstance(value, str):
        value = value.encode() + b"\0"
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + bytes(-length % 4)


def _link(index: int = 0, flags: int = 0, change: int = 0) -> bytes:
    return struct.pack("=BBHiII", socket.AF_UNSPEC, 0, 0, index, flags, change)


def veth(
    name: str, index: int, peer: str, peer_index: int, peer_namespace: int, mtu: int
) -> Message:
    """A pair: `name`, number `index`, here and up; `peer` in the namespace of that descriptor.

    The peer may not be made up (ENOTCONN), nor with IFLA_AF_SPEC (EAFNOSUPPORT).
    """
    other = (
        _link(peer_index)
        + _attribute(_IFLA_IFNAME, peer)
        + _attribute(_IFLA_MTU, mtu)
        + _attribute(_IFLA_NET_NS_FD, peer_namespace)
    )
    detail = _attribute(_INFO_DATA, _attribute(_VETH_INFO_PEER, other))
    body = (
        _link(index, _IFF_UP, _IFF_UP)
        + _attribute(_IFLA_IFNAME, name)
        + _attribute(_IFLA_MTU, mtu)
        + _attribute(_IFLA_LINKINFO, _attribute(_INFO_KIND, "veth") + detail)
    )
    return Message(_NEWLINK, _CREATE_EXCL, body, "link add %s type veth" % name)


def link_up(index: int) -> Message:
    """Set an interface up."""
    return Message(_NEWLINK, 0, _link(index, _IFF_UP, _IFF_UP), "link set %d up" % index)


def link_delete(name: str) -> Message:
    """Remove an interface by name; none of that name is fine."""
    body = _link() + _attribute(_IFLA_IFNAME, name)
    return Message(_DELLINK, 0, body, "link del %s" % name, errno.ENODEV)


def address(index: int, ip: str) -> Message:
    """Give an interface the address `ip`/32; it may have it already."""
    raw = socket.inet_aton(ip)
    body = struct.pack("=BBBBI", socket.AF_INET, 32, 0, _SCOPE_UNIVERSE, index)
    body += _attribute(2, raw) + _attribute(1, raw)  # IFA_LOCAL, IFA_ADDRESS
    return Message(_NEWADDR, _CREATE_EXCL, body, "addr add %s" % ip, errno.EEXIST)


def route(index: int, ip: str) -> Message:
    """A route to the one address `ip` on an interface."""
    body = _route(32, _SCOPE_LINK, 0) + _attribute(_RTA_DST, socket.inet_aton(ip))
    body += _attribute(_RTA_OIF, index)
    return Message(_NEWROUTE, _CREATE_EXCL, body, "route add %s" % ip, errno.EEXIST)


def default_route(index: int, gateway: str) -> Message:
    """The default route, by a gateway that no other route covers (onlink)."""
    body = _route(0, _SCOPE_UNIVERSE, _RTNH_F_ONLINK)
    body += _attribute(_RTA_GATEWAY, socket.inet_aton(gateway)) + _attribute(_RTA_OIF, index)
    return Message(_NEWROUTE, _CREATE_EXCL, body, "route add default", errno.EEXIST)


def _route(prefix: int, scope: int, flags: int) -> bytes:
    fields = (socket.AF_INET, prefix, 0, 0, _TABLE_MAIN, _PROTOCOL_STATIC, scope, _TYPE_UNICAST)
    return struct.pack("=BBBBBBBBI", *fields, flags)


def open_socket() -> socket.socket:
    """A route socket in the caller's current network namespace."""
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    sock.bind((0, 0))
    sock.settimeout(10)
    return sock


def send(sock: socket.socket, messages: Sequence[Message]) -> None:
    """Send all in batches and wait for each answer; OSError names the first that was refused."""
    for at in range(0, len(messages), BATCH_MAX):
        _send_batch(sock, list(messages[at : at + BATCH_MAX]))


def _send_batch(sock: socket.socket, batch: List[Message]) -> None:
    raw = b""
    for number, message in enumerate(batch):
        length = 16 + len(message.body)
        flags = _REQUEST_ACK | message.flags
        raw += struct.pack("=IHHII", length, message.kind, flags, number, 0) + message.body
        raw += bytes(-length % 4)
    sock.send(raw)
    missing = set(range(len(batch)))
    while missing:
        answer = sock.recv(65536)
        while len(answer) >= 16:
            length, kind, _flags, number, _pid = struct.unpack_from("=IHHII", answer)
            if kind == 2 and number in missing:  # NLMSG_ERROR; code 0 is the acknowledgement
                missing.discard(number)
                code = -struct.unpack_from("=i", answer, 16)[0]
                if code and code != batch[number].fine:
                    raise OSError(code, os.strerror(code), batch[number].about)
            answer = answer[(length + 3) & ~3 :]

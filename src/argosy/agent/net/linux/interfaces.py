"""The IPv4 addresses of this machine, as its sockets tell them."""

from __future__ import annotations

import fcntl
import socket
import struct
from typing import Iterator, Optional

SIOCGIFADDR = 0x8915
NOWHERE = ("192.0.2.1", 9)  # RFC 5737: nobody has it; a datagram socket sends nothing by connecting


def bindable(address: str) -> bool:
    """Whether a program here can listen at it: not where somebody else passes it on to here."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((address, 0))
            return True
    except OSError:
        return False


def way_out() -> str:
    """The address that what leaves by the default route has."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(NOWHERE)
            return str(sock.getsockname()[0])
    except OSError:
        return ""


def every() -> Iterator[str]:
    """The addresses of all interfaces that have one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            address = _of(sock, name)
            if address is not None:
                yield address


def _of(sock: socket.socket, interface: str) -> Optional[str]:
    request = struct.pack("256s", interface.encode()[:15])
    try:
        answer = fcntl.ioctl(sock.fileno(), SIOCGIFADDR, request)
    except OSError:
        return None
    return socket.inet_ntoa(answer[20:24])

"""What is known of this machine's network without a trial: its own address, what trials have found.

The own IPv4 address, at which other hosts reach this one, is said to the agent, or found. What was
said stands in the file `address` of the agent's home, so that an agent that is started later, or
runs already, knows it too.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
from typing import Optional

FILE, TRIALS = "address", "trial.json"
SIOCGIFADDR = 0x8915
OF_ONE_HOST = ("127.", "0.", "169.254.")
NOWHERE = ("192.0.2.1", 9)  # RFC 5737: nobody has it; a datagram socket sends nothing by connecting


def say_address(home: str, address: str) -> None:
    """Write it down for the agent of that home. Raises OSError."""
    if address and said_address(home) != address:
        part = os.path.join(home, "%s.%d" % (FILE, os.getpid()))
        with open(part, "w", encoding="ascii") as file:
            file.write(address + "\n")
        os.rename(part, os.path.join(home, FILE))


def said_address(home: str) -> str:
    """What was written down last; "" when nothing was."""
    try:
        with open(os.path.join(home, FILE), encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def found_address() -> str:
    """Where this ssh session came in, else the way out, else any interface's; "" without all."""
    session = os.environ.get("SSH_CONNECTION", "").split()
    for address in (session[2] if len(session) == 4 else "", _way_out(), _any()):
        if _reachable(address):
            return address
    return ""


def bindable(address: str) -> bool:
    """Whether a program here can listen at it: not where somebody else passes it on to here."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((address, 0))
            return True
    except OSError:
        return False


def found_mode(directory: str, boot: str) -> str:
    """Of the newest trial of that boot where no mode was asked for; "" before there was one."""
    try:
        with open(os.path.join(directory, TRIALS), encoding="utf-8") as file:
            trials = json.load(file)
        found = [
            str(one["answer"]["mode"])
            for name, one in trials.items()
            if name.startswith("auto-") and one["key"][0] == boot
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""
    return found[-1] if found else ""


def _reachable(text: str) -> bool:
    """Whether another host may reach it: IPv4, neither loopback nor of one link only."""
    return bool(text) and ":" not in text and not text.startswith(OF_ONE_HOST)


def _way_out() -> str:
    """The address that what leaves by the default route has."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(NOWHERE)
            return str(sock.getsockname()[0])
    except OSError:
        return ""


def _any() -> str:
    """That of the first interface which has one for others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            address = _of(sock, name)
            if address is not None and _reachable(address):
                return address
    return ""


def _of(sock: socket.socket, interface: str) -> Optional[str]:
    request = struct.pack("256s", interface.encode()[:15])
    try:
        answer = fcntl.ioctl(sock.fileno(), SIOCGIFADDR, request)
    except OSError:
        return None
    return socket.inet_ntoa(answer[20:24])

"""What is known of this machine's network without a trial: its own address, what trials have found.

The own IPv4 address, at which other hosts reach this one, is said to the agent, or found. What was
said stands in the file `address` of the agent's home, so that an agent that is started later, or
runs already, knows it too.
"""

from __future__ import annotations

import json
import os

FILE, TRIALS = "address", "trial.json"
OF_ONE_HOST = ("127.", "0.", "169.254.")


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
    if len(session) == 4 and _reachable(session[2]):
        return session[2]
    from .linux import interfaces  # sockets: whom a session tells its address does not load them

    found = (interfaces.way_out(), *interfaces.every())
    return next(filter(_reachable, found), "")


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

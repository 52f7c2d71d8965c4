"""Numbers as people read them: ages, sizes, prices, the ways a program ends."""

from __future__ import annotations

import signal

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def duration(seconds: float) -> str:
    """`0.4 s`, `42 s`, `3 m 20 s`, `5 h 2 m`, `3 d 4 h`."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = int(seconds)
    for place, (size, unit) in enumerate(_UNITS[:-1]):
        if whole >= size:
            smaller, smaller_unit = _UNITS[place + 1]
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {smaller_unit}" if rest else "")
    return f"{whole} s"


def size(count: float) -> str:
    """Bytes as `512 B`, `1.5 MiB`, `12 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def price(usd: float) -> str:
    """`$0.03`; `free` for nothing."""
    return f"${usd:.2f}" if usd >= 0.005 else ("free" if usd == 0 else "<$0.01")


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; `signal 77` where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ending(outcome: str, exit_code: int | None, signal_number: int | None) -> str:
    """How an attempt ended, after its name: `exited with 1`, `was killed by SIGKILL`."""
    if outcome == "lost":
        return "was lost"
    if outcome == "stopped":
        return "was stopped"
    if signal_number is not None:
        return f"was killed by {signal_name(signal_number)}"
    if exit_code is not None:
        return f"exited with {exit_code}"
    return outcome or "lives"


def plural(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

"""Where the executions of an attempt lie in its folder, and the sizes that their files agree on."""

from __future__ import annotations

STATUS_BYTES = 32
"""Of an exit status, at the start of a claim."""
FIELD_BYTES = 32
JOIN_BYTES = 3 * FIELD_BYTES
"""What `join` reads at the start of a request; blank where there is nothing to join."""

PARTS = ("setup", "run")
"""The executions of an attempt."""


def folder_of(attempt: str, part: str) -> str:
    """The folder of a part: `setup` has its own, `run` is in the attempt's."""
    return attempt + "/setup" if part == "setup" else attempt


def join_record(pid: int, own: bool) -> bytes:
    """What `join` (net/enter.py) reads of the holder `pid`: two paths, and own or not, each of
    FIELD_BYTES. All is as the system calls take it: nothing is left to be computed.
    """
    paths = [b"/proc/%d/ns/%s" % (pid, name) for name in (b"pid", b"user")]
    filled = b"".join([path.rjust(FIELD_BYTES, b"/") for path in paths])
    return filled + (b"1" if own else b"0").ljust(FIELD_BYTES)

"""Where the executions of an attempt lie in its folder, and the sizes that their files agree on."""

from __future__ import annotations

STATUS_BYTES = 32
"""Of an exit status, at the start of a claim."""
JOIN_BYTES = 96
"""What `join` reads at the start of a request; blank where there is nothing to join."""

PARTS = ("setup", "run")
"""The executions of an attempt."""


def folder_of(attempt: str, part: str) -> str:
    """The folder of a part: `setup` has its own, `run` is in the attempt's."""
    return attempt + "/setup" if part == "setup" else attempt

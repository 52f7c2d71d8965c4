"""Where the state of a user's server is, and the files in it that a client knows."""

from __future__ import annotations

import os
from pathlib import Path

from argosy.errors import AccessError


def home_folder() -> Path:
    """`$ARGOSY_HOME`, else `~/.argosy`; absolute, perhaps not there yet. Raises AccessError for a
    user without a home.
    """
    try:
        return Path(os.environ.get("ARGOSY_HOME") or "~/.argosy").expanduser().absolute()
    except RuntimeError as error:
        raise AccessError(
            "this user has no home folder for Argosy's state",
            code="home/none",
            hint="set `ARGOSY_HOME` to a folder that you may write",
        ) from error


def socket_file(home: Path) -> Path:
    """The server's unix socket."""
    return home / "server.sock"


def log_file(home: Path) -> Path:
    """What the server says of itself."""
    return home / "server.log"

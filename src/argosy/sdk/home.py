"""Where the state of a user's server is, and the files in it that a client knows."""

from __future__ import annotations

import os
from pathlib import Path


def home_folder() -> Path:
    """`$ARGOSY_HOME`, else `~/.argosy`; absolute, perhaps not there yet."""
    return Path(os.environ.get("ARGOSY_HOME") or "~/.argosy").expanduser().absolute()


def socket_file(home: Path) -> Path:
    """The server's unix socket."""
    return home / "server.sock"


def log_file(home: Path) -> Path:
    """What the server says of itself."""
    return home / "server.log"

"""Commands that run where a folder is a small, full or read-only file system."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def on_a_tmpfs(folder: Path, options: str, *command: str) -> subprocess.CompletedProcess[str]:
    """`command`, run in a mount namespace of its own where `folder` is a tmpfs of these options.

    Works as root and, with user namespaces, as an ordinary user. Nothing is left of the mount.
    """
    folder.mkdir()
    unshare = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "-U", "-r", "--mount"]
    script = f'mount -t tmpfs -o {options} tmpfs "$1" && shift && exec "$@"'
    return subprocess.run(
        [*unshare, "sh", "-c", script, "sh", str(folder), *command],
        capture_output=True,
        text=True,
    )


def fill(path: Path) -> None:
    """Take all that is free on the disk."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            return

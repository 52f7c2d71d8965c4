"""The interpreters of this machine: the agent and the runtime are tested on the oldest of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

OLDEST_MINOR = 8


@cache
def pythons() -> tuple[str, ...]:
    """One interpreter of each version from 3.8 on, oldest first."""
    found: dict[int, str] = {sys.version_info.minor: sys.executable}
    for minor in range(OLDEST_MINOR, 20):
        on_path = shutil.which(f"python3.{minor}")
        if on_path and _runs(on_path):
            found[minor] = on_path
    for path in sorted((Path.home() / ".pyenv" / "versions").glob("3.*/bin/python")):
        match = re.match(r"3\.(\d+)\.", path.parts[-3])
        if match and int(match[1]) >= OLDEST_MINOR:  # before its shims, which need not work
            found[int(match[1])] = str(path)
    return tuple(found[minor] for minor in sorted(found))


def oldest_python() -> str:
    """The oldest interpreter here; `ARGOSY_OLD_PYTHON` names another."""
    return os.environ.get("ARGOSY_OLD_PYTHON") or pythons()[0]


def _runs(path: str) -> bool:
    return subprocess.run([path, "-V"], capture_output=True, check=False).returncode == 0

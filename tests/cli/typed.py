"""Command lines as a user types them: each a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

TIMEOUT = 60.0
ARGOSY = (sys.executable, "-m", "argosy")


def argosy(
    *words: str, input: str | None = None, **around: str
) -> subprocess.CompletedProcess[str]:
    """One command line as a process; never a traceback."""
    done = subprocess.run(
        [*ARGOSY, *words], capture_output=True, text=True, timeout=TIMEOUT, input=input,
        env={**os.environ, **around}, stdin=subprocess.DEVNULL if input is None else None,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done

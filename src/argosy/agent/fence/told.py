"""Whether an attempt is to end, or has ended, because of the fence."""

from __future__ import annotations

import os
from typing import Any

from ..processes.execution import Phase
from .sweep import MARKER


def fence(attempt: Any) -> None:
    """End an attempt because of the fence, unless it has ended by itself."""
    if not attempt.record.get("fenced"):
        attempt.record["fenced"] = True
        attempt.save()
    attempt.place.loop.soon(attempt.advance)


def fenced(attempt: Any) -> bool:
    """Whether the agent or the watchdog (which marks its folder first) ended it so."""
    if attempt.record.get("fenced"):
        return True
    parts = (attempt.setup, attempt.run)
    if not any(one and (one.exit is not None or one.phase is Phase.OVER) for one in parts):
        return False
    return os.path.exists(os.path.join(attempt.folder, MARKER))

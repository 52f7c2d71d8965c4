"""Which network the hosts of a pool have: what the agents' own trial found and wrote down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

FILE: Final = "trial.json"  # of the agents; a trial with a way out and one without stand in it
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def network_found(shared: Path) -> str:
    """ "isolated" or "host" where nobody asks for one of them; "" when it was not tried yet."""
    try:
        trials: dict[str, Any] = json.loads((shared / FILE).read_text(encoding="utf-8"))
        boot = BOOT_ID.read_text(encoding="ascii").strip()
        modes = [
            str(one["answer"]["mode"])
            for name, one in trials.items()
            if name.startswith("auto-") and one["key"][0] == boot
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""
    newest = modes[-1] if modes else ""  # the agents put it last
    return newest if newest in ("isolated", "host") else ""

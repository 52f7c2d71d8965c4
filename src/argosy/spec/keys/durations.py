"""`30`, `30s`, `5m`, `1h`, `1d`, `1w`: a length of time, in seconds."""

from __future__ import annotations

import re
from typing import Final

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
PATTERN: Final = r"^[0-9]+[sSmMhHdDwW]?$"
MAX_SECONDS: Final = 10 * 366 * 86400  # ten years: beyond it is a typing error
_FORM = re.compile(r"([0-9]+)([smhdw]?)", re.IGNORECASE | re.ASCII)


def seconds(text: str) -> int | None:
    """The seconds that `text` means; None for fractions, signs, other units, over ten years."""
    found = _FORM.fullmatch(text.strip())
    if found is None or len(found.group(1)) > 12:
        return None
    value = int(found.group(1)) * UNITS[found.group(2).lower() or "s"]
    return value if value <= MAX_SECONDS else None


def spelled(value: float) -> str:
    """Seconds in the largest unit that divides them: 90 is `90s`, 120 is `2m`."""
    whole = int(value)
    for unit, size in sorted(UNITS.items(), key=lambda item: -item[1]):
        if whole and whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole}s"

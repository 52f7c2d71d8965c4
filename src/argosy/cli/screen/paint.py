"""Colours, and whether there are any: NO_COLOR, FORCE_COLOR, `TERM=dumb`, a pipe."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Final, TextIO

_CODES: Final = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34",
    "magenta": "35", "cyan": "36",
}  # fmt: skip

# Colours of task names, in an order that keeps neighbours apart; readable on dark and on light.
TASK_COLOURS: Final = ("36", "33", "35", "32", "34", "96", "93", "95", "92", "94")

PHASE_STYLES: Final = {
    "PENDING": "yellow", "STARTING": "cyan", "RUNNING": "green", "RECOVERING": "magenta",
    "ENDING": "blue", "SUCCEEDED": "green", "FAILED": "red", "CANCELLED": "yellow",
    "STOPPED": "dim",
}  # fmt: skip

TONE_STYLES: Final = {"good": "green", "bad": "red", "warn": "yellow", "plain": ""}


class Paint:
    """Styles text when `on`; else leaves it as it is."""

    def __init__(self, on: bool) -> None:
        self.on = on

    def __call__(self, text: str, style: str) -> str:
        """`text` in a style: `red`, `bold`, ...; "" is none."""
        return self.code(text, _CODES[style]) if style else text

    def code(self, text: str, code: str) -> str:
        """`text` under an SGR code."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.on and text else text

    def phase(self, phase: str) -> str:
        """A phase in its colour."""
        return self(phase, PHASE_STYLES.get(phase, ""))


def paint_for(stream: TextIO) -> Paint:
    """The paint of a stream, by its kind and the environment."""
    if os.environ.get("NO_COLOR"):
        return Paint(False)
    if os.environ.get("FORCE_COLOR"):
        return Paint(True)
    return Paint(terminal(stream) and os.environ.get("TERM") != "dumb")


def terminal(stream: TextIO) -> bool:
    """Whether somebody looks at it."""
    try:
        return stream.isatty()
    except (ValueError, AttributeError):
        return False


def window(default_width: int = 100) -> tuple[int, int]:
    """Columns and lines of the terminal."""
    size = shutil.get_terminal_size((default_width, 24))
    return size.columns, size.lines


def say(text: str) -> None:
    """A line of progress, to standard error."""
    print(text, file=sys.stderr, flush=True)

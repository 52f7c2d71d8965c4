"""A block of lines at the bottom of a terminal that is drawn anew; elsewhere it is nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from argosy.cli.screen.paint import terminal, window
from argosy.cli.screen.table import cut


class Live:
    """Draws on standard error. `clear` before anything else is written to the terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self.on = terminal(self._stream)
        self._drawn: list[str] = []

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines instead of the ones before; what does not fit is left out."""
        if not self.on:
            return
        columns, height = window()
        shown = [cut(line, columns - 1) for line in lines[: max(1, height - 1)]]
        if shown == self._drawn:
            return
        # One write: the terminal never shows a half-drawn block.
        text = self._up() + "".join(f"\r\x1b[K{line}\n" for line in shown)
        self._write(text + "\x1b[J")
        self._drawn = shown

    def clear(self) -> None:
        """Take the block away; the cursor stands where it began."""
        if self._drawn:
            self._write(self._up() + "\r\x1b[J")
            self._drawn = []

    def leave(self) -> None:
        """Keep what is drawn on the screen, and go on below it."""
        self._drawn = []

    def _up(self) -> str:
        return f"\x1b[{len(self._drawn)}A" if self._drawn else ""

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

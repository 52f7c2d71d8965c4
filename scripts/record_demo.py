"""Record `make demo` as an animated SVG: a real run, its lines at the times they came.

    python scripts/record_demo.py docs/demo.svg

Only the standard library. The picture shows all lines where it is not animated.
"""

from __future__ import annotations

import html
import os
import pty
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMAND = ["make", "-s", "demo"]
SPEED = 2.0  # times as fast as it was
PAUSE_MOST = 2.0  # seconds, of the recording, in which nothing comes
HOLD = 8.0  # seconds that the whole picture stays
FONT, LINE, CHARACTER, MARGIN = 13, 17, 7.83, 16
BYTES_MOST = 300_000
STYLE = f"""
  text {{ font: {FONT}px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
         fill: #d6deeb; white-space: pre; }}
  .command {{ fill: #82aaff; font-weight: bold; }}
  .bar {{ fill: #22da6e; }}
  .news {{ fill: #ffcb6b; }}
"""


@dataclass(frozen=True)
class Line:
    """A line, and when it was complete, in seconds of the recording."""

    at: float
    text: str


def record(command: list[str]) -> tuple[list[Line], int]:
    """Run it in a terminal of its own; its lines, and its exit code."""
    arrived: list[tuple[float, bytes]] = []

    def keep(descriptor: int) -> bytes:
        data = os.read(descriptor, 65536)
        arrived.append((time.monotonic(), data))
        return data

    status = pty.spawn(command, keep)
    lines, rest, at, before = [], b"", 0.0, arrived[0][0]
    for when, data in arrived:
        at += min((when - before) / SPEED, PAUSE_MOST)
        before = when
        *whole, rest = (rest + data).split(b"\n")
        lines += [Line(at, text.decode(errors="replace").rstrip()) for text in whole]
    return lines, os.waitstatus_to_exitcode(status)


def picture(lines: list[Line]) -> str:
    """The recording as an SVG that begins anew after a while."""
    first = Line(0.0, "$ " + " ".join(word for word in COMMAND if word != "-s"))
    lines = [first, *(Line(line.at + 0.6, line.text) for line in lines)]
    width = round(max(len(line.text) for line in lines) * CHARACTER + 2 * MARGIN)
    height = len(lines) * LINE + 2 * MARGIN
    rows = "\n".join(_row(number, line) for number, line in enumerate(lines))
    seconds = lines[-1].at + HOLD
    size = f'viewBox="0 0 {width} {height}" width="{width}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size}>
<title>make demo, recorded at {SPEED:g} times its speed</title>
<style>{STYLE}</style>
<rect width="100%" height="100%" rx="8" fill="#011627">
<animate id="loop" attributeName="opacity" from="1" to="1" dur="{seconds:.1f}s"
 begin="0s;loop.end"/></rect>
{rows}
</svg>
"""


def _row(number: int, line: Line) -> str:
    y = MARGIN + (number + 0.8) * LINE
    hidden = (
        f'<set attributeName="visibility" to="hidden" begin="loop.begin" dur="{line.at:.2f}s"/>'
    )
    kind = ""
    if line.text.startswith("$ "):
        kind = ' class="command"'
    elif re.match(r"\s+(trainer|restarted|untouched)|The |Killed ", line.text):
        kind = ' class="news"'
    body = re.sub(r"([█▏▎▍▌▋▊▉]+)", r'<tspan class="bar">\1</tspan>', html.escape(line.text))
    place = f'xml:space="preserve" x="{MARGIN}" y="{y:.1f}"'
    return f"<text {place}{kind}>{body}{hidden if line.at else ''}</text>"


def main() -> int:
    """The command line."""
    os.chdir(ROOT)
    lines, code = record(COMMAND)
    if code != 0:
        print(f"error: `{' '.join(COMMAND)}` exited {code}: nothing is recorded", file=sys.stderr)
        return 1
    text = picture(lines)
    assert len(text.encode()) <= BYTES_MOST, "the picture is too large for a page"
    Path(sys.argv[1]).write_text(text, encoding="utf-8")
    print(f"{sys.argv[1]}: {len(lines)} lines, {len(text.encode()) // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())

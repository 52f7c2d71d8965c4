"""What happened to a group, in order: events as lines for people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from argosy.model.action import Event
from argosy.views.shapes import Line

# A code has the tone of the first of these words that is in it.
_TONES = (
    ("bad", ("fail", "lost", "vanish", "broken", "unkillable", "deadline", "clash")),
    (
        "warn",
        (
            "suspect",
            "unhealthy",
            "restart",
            "refus",
            "retry",
            "cancel",
            "warn",
            "cap",
            "trunc",
            "given-up",
            "chaos",
        ),
    ),
    ("good", ("succeed", "healthy", "running", "started")),
)


def timeline(events: Iterable[Event]) -> tuple[Line, ...]:
    """One line for each event; equal neighbours become one line with a count."""
    lines: list[Line] = []
    first: float | None = None
    for event in events:
        first = event.at if first is None else first
        line = line_of(event, first)
        if lines and _same(lines[-1], line):
            lines[-1] = replace(lines[-1], count=lines[-1].count + 1)
        else:
            lines.append(line)
    return tuple(lines)


def line_of(event: Event, first: float) -> Line:
    """One event as a line; `first` is the time that offsets count from."""
    about = f"{event.about}@{event.attempt}" if event.attempt > 1 else event.about
    return Line(
        at=event.at,
        offset=max(0.0, event.at - first),
        about=about,
        code=event.code,
        text=event.text,
        tone=tone_of(event.code),
    )


def tone_of(code: str) -> str:
    """`good`, `bad`, `warn` or `plain`: how a line of that code is coloured."""
    return next((tone for tone, words in _TONES if any(word in code for word in words)), "plain")


def _same(one: Line, other: Line) -> bool:
    return (one.about, one.code, one.text) == (other.about, other.code, other.text)

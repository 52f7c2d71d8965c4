"""Why a group waits, or what was decided last and why, and what would mend it."""

from __future__ import annotations

from collections.abc import Iterable

from argosy.model.action import Event, Reason
from argosy.model.group import Group
from argosy.views.closing import next_steps, summary
from argosy.views.overview import overview, reason_view
from argosy.views.shapes import Explanation
from argosy.views.timeline import timeline

LAST_MOST = 10  # events shown


def explain(
    group: Group, reasons: Iterable[Reason], events: Iterable[Event], now: float
) -> Explanation:
    """The reasons as they stand at `now`, the newest events, and instructions that would help."""
    told = tuple(reason_view(reason, now) for reason in reasons)
    view = overview(group, (), {}, now)
    hints = [reason.hint for reason in told if reason.hint]
    return Explanation(
        phase=group.phase.value,
        summary=summary(view, waiting=len(told)),
        reasons=told,
        last=timeline(events)[-LAST_MOST:],
        hints=tuple(dict.fromkeys([*hints, *next_steps(view)])),
    )

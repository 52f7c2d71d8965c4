"""Why a group waits, or what was decided last and why, and what would mend it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from argosy.model.action import Event, Reason
from argosy.model.group import Group
from argosy.views.closing import next_steps, summary
from argosy.views.overview import overview, reason_view
from argosy.views.shapes import Explanation, Overview, ReasonView
from argosy.views.standing import standing
from argosy.views.timeline import timeline

LAST_MOST = 10  # events shown

# What would mend a reason that brings no hint of its own; {at} is its group, task or node.
MENDS = {
    "planning": "the planner answers within seconds",
    "no-capacity": "`argosy infra check` shows what is free; a smaller need may fit",
    "queue": "`argosy status` shows the groups ahead; a higher `priority` passes them",
    "capacity": "after `start_timeout` all is given back and tried anew",
    "tried-before": "`argosy events {group}` shows every try",
    "refused": "`argosy infra check` says what the infra lacks",
    "not-ready": "`argosy logs {at}` shows its preparation and `setup`",
    "depends-on": "`argosy logs` of the task it waits for shows why that is not so yet",
    "agent-suspect": "see whether its host is up; nothing is ended or replaced on a doubt: "
    "`argosy infra lost {host}` says that it is gone, and its nodes are replaced elsewhere",
    "peer-suspect": "see whether that peer's host is up; the verdict waits for its agent",
    "older-attempt": "the old one has its `grace`; the new one starts when it has ended",
    "back-off": "`argosy logs {at} --tail 20` shows why the last attempt ended",
    "termination-delay": "`argosy cancel {group}` does not wait for it",
}


def explain(
    group: Group, reasons: Iterable[Reason], events: Iterable[Event], now: float
) -> Explanation:
    """The reasons as they stand at `now`, the newest events, and instructions that would help."""
    view, past = overview(group, (), {}, now), tuple(events)
    told = tuple(mended(reason_view(reason, now), view) for reason in reasons)
    hints = [reason.hint for reason in told if reason.hint]
    notes, help_ = standing(group, view, past, now)
    return Explanation(
        phase=group.phase.value,
        summary=summary(view, waiting=len(told), noted=bool(notes)),
        notes=notes,
        reasons=told,
        last=timeline(past)[-LAST_MOST:],
        hints=tuple(dict.fromkeys([*hints, *help_, *next_steps(view)])),
    )


def mended(reason: ReasonView, view: Overview) -> ReasonView:
    """The reason with an instruction: its own, else that of its code."""
    if reason.hint:
        return reason
    text = MENDS.get(reason.code, "")
    at, host = _address(reason.about, view), _host(reason.about, view)
    return replace(reason, hint=text.format(at=at, group=view.name, host=host))


def _host(about: str, view: Overview) -> str:
    """Where the node is that a reason is about."""
    hosts = (node.host for task in view.tasks for node in task.nodes if node.node == about)
    return next(filter(None, hosts), "HOST")


def _address(about: str, view: Overview) -> str:
    """What a reason is about, as the command line takes it."""
    for task in view.tasks:
        if about == task.name:
            return f"{view.name}/{task.name}"
        for node in task.nodes:
            if about == node.node:
                return f"{view.name}/{task.name}/{node.index}"
    return view.name

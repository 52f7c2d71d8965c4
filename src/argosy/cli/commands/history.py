"""`events` and `explain`: what happened, and why something waits."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from argosy.cli.address import AddressType, parse
from argosy.cli.options import emit, emit_json, emit_json_line, emit_lines, output_option
from argosy.cli.screen.group import clock, reason_lines
from argosy.cli.screen.paint import TONE_STYLES, Paint, paint_for, say
from argosy.sdk import follow
from argosy.sdk.client import Client, PastEvent
from argosy.views.shapes import Explanation, Line
from argosy.views.text import duration


@click.command()
@click.argument("group", type=AddressType(deep=False))
@click.option("-f", "--follow", "following", is_flag=True, help="Go on until the group has ended.")
@click.option("--since", type=click.IntRange(0), default=0, help="Only after this event number.")
@output_option("table", "json", "jsonl")
def events(group: str, following: bool, since: int, output: str) -> int:
    """The timeline of GROUP: what happened, when, why."""
    client = Client()
    ref = parse(group).group
    source = (
        follow.events(client, client.group(ref).id, since, lambda text: say(f"argosy: {text}"))
        if following
        else client.events(ref, since=since)
    )
    if output == "json" and not following:
        emit_json([asdict(event) for event in source])
        return 0
    paint = paint_for(sys.stdout)
    first: float | None = None
    for event in source:
        first = event.at if first is None else first
        if output == "table":
            emit(event_line(event, first, paint))
        else:
            emit_json_line(event)
    return 0


@click.command()
@click.argument("group", type=AddressType(deep=False))
@output_option("table", "json")
def explain(group: str, output: str) -> int:
    """Why GROUP waits, or what was decided last and why, and what would mend it."""
    found = Client().explain(parse(group).group)
    if output == "json":
        emit_json(found)
    else:
        emit_lines(explain_lines(found, paint_for(sys.stdout)))
    return 0


def event_line(event: PastEvent, first: float, paint: Paint) -> str:
    """`2026-01-31 12:00:01  +3.2 s  trainer-0@2  attempt-running  text`."""
    from argosy.views.timeline import tone_of

    about = f"{event.about}@{event.attempt}" if event.attempt > 1 else event.about
    code = paint(f"{event.code:<18}", TONE_STYLES[tone_of(event.code)])
    offset = f"+{duration(max(0.0, event.at - first))}"
    return f"{clock(event.at)}  {offset:>10}  {about or '-':<14}  {code}  {event.text}".rstrip()


def explain_lines(found: Explanation, paint: Paint) -> list[str]:
    """The sentences of an explanation."""
    lines = [found.summary or paint.phase(found.phase)]
    lines += [paint(note, "yellow") for note in found.notes]
    lines += reason_lines(found.reasons, paint)
    if found.last:
        lines += ["", paint("what happened last:", "dim")]
        lines += [_last_line(line, paint) for line in found.last]
    shown = {reason.hint for reason in found.reasons}
    lines += [f"{paint('hint:', 'cyan')} {hint}" for hint in found.hints if hint not in shown]
    return lines


def _last_line(line: Line, paint: Paint) -> str:
    code = paint(line.code, TONE_STYLES.get(line.tone, ""))
    about = f"{line.about} " if line.about else ""
    count = f" ({line.count} times)" if line.count > 1 else ""
    told = f": {line.text}" if line.text else ""
    return f"  {clock(line.at)}  {about}{code}{told}{count}"

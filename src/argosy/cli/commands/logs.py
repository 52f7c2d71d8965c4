"""`logs`: what the tasks wrote, merged by time, filtered by the server, followed to the end."""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import click

from argosy.cli.address import AddressType, parse, resolved
from argosy.cli.following import Feed, Follower, detached, remark
from argosy.cli.options import Duration, emit_json_line, output_option
from argosy.cli.screen.lines import LogLines, as_written
from argosy.cli.screen.paint import paint_for, say, terminal
from argosy.errors import InputError, Unreachable
from argosy.sdk import follow
from argosy.sdk.client import Client, LogQuery
from argosy.views.shapes import Overview


@click.command()
@click.argument("address", metavar="GROUP[/TASK[/I]]", type=AddressType())
@click.option(
    "-f",
    "--follow",
    "following",
    is_flag=True,
    help="Go on until the group has ended; exit with its code.",
)
@click.option("--tail", type=click.IntRange(0), help="Only the last lines of each node.")
@click.option("--since", type=Duration(), help="Only what is not older: 30s, 5m, 2h.")
@click.option("--grep", default="", metavar="RE", help="Only lines that match; the server filters.")
@click.option("--attempt", type=click.IntRange(1), help="This attempt instead of all.")
@click.option("--previous", is_flag=True, help="The attempt before the newest.")
@click.option("--timestamps", is_flag=True, help="Put the time before each line.")
@click.option("--prefix/--no-prefix", default=None, help="[node] before each line.")
@output_option("table", "jsonl")
def logs(
    address: str, following: bool, timestamps: bool, prefix: bool | None, output: str,
    tail: int | None, since: float | None, grep: str, attempt: int | None, previous: bool,
) -> int:  # fmt: skip
    """Print what the tasks of GROUP wrote; a part of it with GROUP/TASK or GROUP/TASK/I[@ATTEMPT].

    The first Ctrl-C while following detaches: the group goes on. Exits 8 when hosts do not answer
    and nothing could be read.
    """
    wanted = parse(address)
    if attempt is not None:
        wanted = replace(wanted, attempt=attempt)
    if wanted.attempt is not None and previous:
        raise InputError("--attempt and --previous exclude each other", code="flag/exclusive")
    client = Client()
    view = client.group(wanted.group)
    wanted = resolved(view, wanted)
    query = LogQuery(
        wanted.task, wanted.index, wanted.attempt, previous, tail, since, grep, following
    )
    if output == "jsonl":
        return _as_json(client, view, query)
    shown = [n for t in view.tasks for n in t.nodes if wanted.task in ("", t.name)]
    lines = LogLines(
        order=tuple(task.name for task in view.tasks),
        paint=paint_for(sys.stdout),
        prefix=prefix if prefix is not None else wanted.index is None,
        timestamps=timestamps,
        width=max((len(node.node) for node in shown), default=0),
        tamed=terminal(sys.stdout),
        raw=as_written(sys.stdout),
    )
    if following:
        return _follow(client, view, query, lines)
    read, missing = False, False
    for chunk in client.logs(view.id, query):
        if told := remark(chunk):
            say(told)
        read, missing = read or bool(chunk.data), missing or bool(chunk.note)
        sys.stdout.write(lines.feed(chunk.task, chunk.index, chunk.attempt, chunk.data, chunk.at))
    sys.stdout.write(lines.end(time.time()))
    return Unreachable.exit_code if missing and not read else 0


def _follow(client: Client, view: Overview, query: LogQuery, lines: LogLines) -> int:
    """Until the streams have ended; the code of the group when it has ended too."""
    feed = Feed()
    feed.add("logs", lambda: follow.logs(client, view.id, query, feed.tell))
    try:
        Follower(feed, lines, news=False).run(("logs",))
        end = client.wait(view.id, timeout=1.0) if not query.task else client.group(view.id)
    except KeyboardInterrupt:
        return detached(view.name)
    if end is None or end.exit_code is None:
        return 0
    if end.exit_code:
        from argosy.cli.following import finish

        return finish(end)
    return end.exit_code


def _as_json(client: Client, view: Overview, query: LogQuery) -> int:
    source = (
        follow.logs(client, view.id, query, lambda text: say(f"argosy: {text}"))
        if query.follow
        else client.logs(view.id, query)
    )
    read, missing = False, False
    for chunk in source:
        read, missing = read or bool(chunk.data), missing or bool(chunk.note)
        emit_json_line(
            {
                "task": chunk.task,
                "index": chunk.index,
                "attempt": chunk.attempt,
                "at": chunk.at,
                "offset": chunk.offset,
                "gap": chunk.gap,
                "note": chunk.note,
                "text": chunk.data.decode("utf-8", "replace"),
            }
        )
    return Unreachable.exit_code if missing and not read else 0

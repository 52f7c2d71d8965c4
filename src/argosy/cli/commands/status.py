"""`status`: the groups in a table, or one group on a screen; `-w` keeps it current."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import replace

import click

from argosy.cli.address import AddressType, parse
from argosy.cli.options import emit, emit_json, emit_json_line, emit_lines, output_option
from argosy.cli.screen.group import group_lines, list_lines
from argosy.cli.screen.live import Live
from argosy.cli.screen.paint import paint_for, say, terminal, window
from argosy.sdk import follow
from argosy.sdk.client import Client
from argosy.views.shapes import GroupRow, Overview

REFRESH = 1.0  # seconds between two looks at the list of groups


@click.command()
@click.argument("group", required=False, type=AddressType(deep=False))
@click.option("-a", "--all", "everything", is_flag=True, help="Ended groups too.")
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), help="At most so many groups.")
@click.option("-w", "--watch", "watching", is_flag=True, help="Keep it current; Ctrl-C ends it.")
@output_option("table", "json", "jsonl", "name")
def status(
    group: str | None, everything: bool, limit: int | None, watching: bool, output: str
) -> int:
    """List the groups; with GROUP show its tasks, nodes, stages, restarts, age and reasons."""
    client = Client()
    if group is not None:
        ref = parse(group).group
        if watching:
            return _watch_group(client, ref, output)
        _print_group(client.group(ref), output)
        return 0
    if watching:
        return _watch_list(client, everything, limit, output)
    _print_list(client.groups(ended=everything, limit=limit), output)
    if output == "table" and not everything:
        _hint_if_empty(client)
    return 0


def _print_group(view: Overview, output: str) -> None:
    match output:
        case "json":
            emit_json(view)
        case "jsonl":
            emit_json_line(view)
        case "name":
            emit_lines([f"{view.name}/{t.name}/{n.index}" for t in view.tasks for n in t.nodes])
        case _:
            emit_lines(group_lines(view, paint_for(sys.stdout), _columns()))


def _print_list(rows: list[GroupRow], output: str) -> None:
    match output:
        case "json":
            emit_json([_plain(row) for row in rows])
        case "jsonl":
            for row in rows:
                emit_json_line(row)
        case "name":
            for row in rows:
                emit(row.name)
        case _:
            if rows:
                emit_lines(list_lines(rows, paint_for(sys.stdout), _columns()))


def _hint_if_empty(client: Client) -> None:
    if not client.groups(limit=1):
        ended = bool(client.groups(ended=True, limit=1))
        told = "`argosy status -a` lists the ended ones" if ended else "`argosy init` begins one"
        say(f"argosy: no group lives; {told}")


def _watch_group(client: Client, ref: str, output: str) -> int:
    """Every state as it comes; on a terminal in place. Exits with the group's code."""
    views = follow.watch(client, ref, lambda text: say(f"argosy: {text}"))
    if output != "table" or not terminal(sys.stdout):
        return _watch_lines(views, output)
    live, last = Live(sys.stdout), Overview()
    try:
        for last in views:
            live.draw(group_lines(last, paint_for(sys.stdout)))
    finally:
        live.leave()
    return last.exit_code or 0


def _watch_lines(views: Iterable[Overview], output: str) -> int:
    last, before = Overview(), None
    for last in views:
        if (now := _standing(last)) != before:
            _print_group(last, "jsonl" if output == "json" else output)
        before = now
    return last.exit_code or 0


def _standing(view: Overview) -> Overview:
    """The view without what moves by itself: lines are for changes only."""
    tasks = tuple(
        replace(
            task,
            nodes=tuple(replace(one, cpu_percent=None, rss_bytes=None) for one in task.nodes),
        )
        for task in view.tasks
    )
    reasons = tuple(replace(one, age=None) for one in view.reasons)
    return replace(view, now=0.0, age=0.0, price_usd=0.0, tasks=tasks, reasons=reasons)


def _watch_list(client: Client, everything: bool, limit: int | None, output: str) -> int:
    live = Live(sys.stdout)
    paint = paint_for(sys.stdout)
    while True:
        rows = client.groups(ended=everything, limit=limit)
        if output != "table" or not live.on:
            _print_list(rows, "jsonl" if output == "json" else output)
        else:
            live.draw(list_lines(rows, paint) if rows else ["no group lives"])
        time.sleep(REFRESH)


def _plain(row: GroupRow) -> dict[str, object]:
    from argosy.cli.options import plain

    found: dict[str, object] = plain(row)
    return found


def _columns() -> int:
    return window()[0] if terminal(sys.stdout) else 0

"""`plan`, `launch`, `export`: read the file, show where it would run, start it, follow it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from argosy.cli.following import DETACHED, Feed, Follower, detached, finish
from argosy.cli.options import emit, emit_json, emit_lines, output_option
from argosy.cli.overrides import env_pairs, file_options, secret_pairs
from argosy.cli.screen.lines import LogLines, as_written
from argosy.cli.screen.paint import paint_for, say, terminal, window
from argosy.cli.screen.plan import brief_lines, plan_lines
from argosy.errors import CapacityError
from argosy.sdk import follow
from argosy.sdk.client import Accepted, Client, LogQuery
from argosy.sdk.launch import launch_body
from argosy.views.shapes import PlanView


@click.command()
@file_options
@output_option("table", "json")
def plan(file: str, output: str, **given: Any) -> int:
    """Show where each node of FILE would run, in what order it starts, how it is kept alive.

    Nothing is written or started. Exits 4 when it does not fit.
    """
    view = Client().plan(_body(file, os.environ, secrets_later=True, **given))
    if output == "json":
        emit_json(view)
    else:
        columns = window()[0] if terminal(sys.stdout) else 0
        emit_lines(plan_lines(view, paint_for(sys.stdout), columns))
    return 0 if view.fits else CapacityError.exit_code


@click.command()
@file_options
@click.option("-d", "--detach", is_flag=True, help="Return once it is accepted.")
@click.option("--replace", is_flag=True, help="End a running group of that name first.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--timestamps", is_flag=True, help="Put the time before each log line.")
@output_option("table", "json", "name")
def launch(file: str, detach: bool, yes: bool, timestamps: bool, output: str, **given: Any) -> int:
    """Start the group of FILE: all of its tasks, or none.

    Shows the plan, then what each task waits for, then the merged logs until the end, and exits
    with the group's code: 0 success, 100 failed, 103 cancelled. The first Ctrl-C detaches.
    With -o json or name the logs go to standard error; json prints the group once it has ended.
    With a price, or with --replace, it asks first where there is a terminal.
    """
    client = Client()
    body = _body(file, os.environ, **given)
    view = client.plan(body)
    paint = paint_for(sys.stderr)
    columns = window()[0] if terminal(sys.stderr) else 0
    for line in brief_lines(view, paint, columns):
        say(line)
    if not yes:
        _ask(client, view, replace=bool(body.get("replace")))
    try:
        accepted = client.launch(body)
    except KeyboardInterrupt:  # the server has the request
        say(f"\nargosy: interrupted; {view.name} may start all the same")
        say(f"  see:     argosy status {view.name}")
        say(f"  stop it: argosy cancel {view.name}")
        return DETACHED
    _told(accepted, view, output, detach=detach)
    if detach:
        return 0
    return _follow(client, accepted, view, output, timestamps=timestamps)


@click.command()
@file_options
@click.option(
    "--to",
    type=click.Choice(["kubernetes"]),
    default="kubernetes",
    show_default=True,
    help="The kind of infra.",
)
@click.option("--context", default="", metavar="NAME", help="Which of them: kubernetes/NAME.")
@click.option("--no-agent", is_flag=True, help="Leave the agent's bytes out, to read the rest.")
@click.option(
    "--output", "target", type=click.Path(dir_okay=False), metavar="FILE", help="Write to FILE."
)
def export(file: str, target: str | None, no_agent: bool, **given: Any) -> int:
    """Print what a launch of FILE would make on a cluster, as `kubectl apply` takes it.

    Nothing is made or written. What does not fit now is printed with no node chosen, and why.
    """
    body = _body(file, os.environ, secrets_later=True, whole=not no_agent, **given)
    found = Client().export(body)
    for note in found.notes:
        say(f"{paint_for(sys.stderr)('no node chosen:', 'yellow')} {note}")
    if target is None:
        emit(found.text.rstrip("\n"))
    else:
        Path(target).write_text(found.text, encoding="utf-8")
        say(f"written to {target}")
    return 0


def _body(
    file: str,
    environment: Mapping[str, str],
    *,
    envs: tuple[str, ...],
    env_files: tuple[str, ...],
    secrets: tuple[str, ...],
    sets: tuple[str, ...],
    network: str | None,
    **options: Any,
) -> dict[str, Any]:
    """The launch body; `--env` wins over `--env-file`, the last of each wins."""
    return launch_body(
        file,
        envs=env_pairs(envs, env_files, environment),
        secrets=secret_pairs(secrets, environment),
        environment=environment,
        set=list(sets),
        network=network or "",
        **options,
    )


def _replaced(client: Client, name: str) -> str:
    """The id of the running group that a launch with --replace ends; "" when there is none."""
    return next((row.id for row in client.groups() if row.name == name), "")


def _ask(client: Client, view: PlanView, *, replace: bool) -> None:
    """Asks where there is a reason and somebody to answer; raises click.Abort for no."""
    if not (terminal(sys.stdin) and terminal(sys.stderr)):
        return
    replaced = _replaced(client, view.name) if replace else ""
    if view.price_per_hour_usd or replaced:
        click.confirm(question(view.name, replaced), default=not replaced, abort=True, err=True)


def question(name: str, replaced: str) -> str:
    """What is asked before a launch; `replaced` is the id of the group that it ends, or ""."""
    if not replaced:
        return "Launch it?"
    return f"The running group {name} ({replaced}) is ended first, then this is launched. Go on?"


def _told(accepted: Accepted, view: PlanView, output: str, *, detach: bool) -> None:
    for warning in accepted.warnings:
        if warning not in view.warnings:
            say(f"{paint_for(sys.stderr)('warning:', 'yellow')} {warning}")
    if output == "json" and detach:
        emit_json(accepted)
    elif output == "name" or detach:
        emit(accepted.name)
    if detach:
        say(f"argosy: {accepted.name} is accepted; `argosy logs -f {accepted.name}` follows it")


def _follow(
    client: Client, accepted: Accepted, view: PlanView, output: str, *, timestamps: bool
) -> int:
    """Until its end. Standard output is for the logs, or for what a program asked for."""
    feed, out = Feed(), sys.stdout if output == "table" else sys.stderr
    lines = LogLines(
        order=tuple(task.name for task in view.tasks),
        paint=paint_for(out),
        timestamps=timestamps,
        width=max((len(node.node) for task in view.tasks for node in task.nodes), default=0),
        tamed=terminal(out),
        raw=as_written(out),
    )
    feed.add("watch", lambda: follow.watch(client, accepted.id, feed.tell))
    feed.add("logs", lambda: follow.logs(client, accepted.id, LogQuery(follow=True), feed.tell))
    try:
        end = Follower(feed, lines, out=out).run(("watch", "logs"))
    except KeyboardInterrupt:
        return detached(accepted.name)
    if output == "json" and end is not None:
        emit_json(end)
    return finish(end)

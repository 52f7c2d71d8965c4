"""`server`: the one process of a home, and what it says of itself."""

from __future__ import annotations

import os
import signal
import sys
import time

import click

from argosy.cli.options import emit, emit_json, output_option
from argosy.cli.screen.group import clock
from argosy.cli.screen.paint import say
from argosy.errors import NotFound, Unreachable
from argosy.sdk.client import Client, ServerView
from argosy.sdk.home import home_folder, log_file
from argosy.sdk.lost import MENDING, lost_server, lost_text
from argosy.sdk.wire import NoServer
from argosy.views.text import duration, plural, size

STOP_TIMEOUT = 20.0  # seconds until a server that was asked has ended
STEP = 0.02
LOG_STEP = 0.2
TAIL_BYTES = 1 << 20


@click.group()
def server() -> None:
    """The server of $ARGOSY_HOME: one process that starts by itself when it is needed."""


@server.command("status")
@output_option("table", "json")
def status(output: str) -> int:
    """Whether it runs, since when, how large it is. Exits 8 when it does not run."""
    client = Client(start=False)
    try:
        view = client.server()
    except NoServer:
        if (pid := lost_server(client.home)) is not None:
            if output == "json":
                emit_json({"running": True, "home": str(client.home), "pid": pid, "socket": False})
            else:
                emit(f"{lost_text(pid)}: {MENDING}")
        elif output == "json":
            emit_json({"running": False, "home": str(client.home)})
        else:
            emit(f"no server runs for {client.home}; any command that needs one starts it")
        return Unreachable.exit_code
    if output == "json":
        from argosy.cli.options import plain

        emit_json({"running": True, **plain(view)})
    else:
        emit(_server_line(view))
    return 0


@server.command("start")
def start() -> int:
    """Start it when it does not run."""
    from argosy.sdk.start import ensure_server

    started = ensure_server(home_folder())
    view = Client(start=False).server()
    say(f"argosy: {'started' if started else 'runs already'}: pid {view.pid}")
    return 0


@server.command("stop")
def stop() -> int:
    """End it. Running groups go on, and the next server finds them again."""
    client = Client(start=False)
    try:
        view = client.server()
    except NoServer:
        if (pid := lost_server(client.home)) is None:
            say("argosy: no server runs")
            return 0
        os.kill(pid, signal.SIGTERM)
        _await_end(pid, f"`kill -9 {pid}` ends it too; running groups go on")
        say("argosy: the server, whose socket was gone, has ended; programs go on")
        return 0
    client.stop_server()
    _await_end(view.pid, f"`kill {view.pid}` ends it too; running groups go on")
    going_on = f"; programs of {plural(view.groups, 'group')} go on" if view.groups else ""
    say(f"argosy: the server has ended{going_on}")
    return 0


@server.command("logs")
@click.option("-f", "--follow", "following", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--tail", type=click.IntRange(0), default=100, show_default=True)
def logs(following: bool, tail: int) -> int:
    """What the server says of itself."""
    path = log_file(home_folder())
    try:
        opened = path.open("rb")
    except FileNotFoundError as error:
        raise NotFound(
            f"there is no log {path}: no server has run here",
            code="server/no-log",
            hint="any command that needs a server starts one",
        ) from error
    with opened:
        opened.seek(0, os.SEEK_END)
        opened.seek(max(0, opened.tell() - TAIL_BYTES))
        last = opened.read().splitlines(keepends=True)[-tail:] if tail else []
        sys.stdout.write(b"".join(last).decode("utf-8", "replace"))
        while following:
            sys.stdout.flush()
            time.sleep(LOG_STEP)
            sys.stdout.write(opened.read().decode("utf-8", "replace"))
    return 0


def _server_line(view: ServerView) -> str:
    age = duration(max(0.0, time.time() - view.started_at))
    return (
        f"pid {view.pid}, version {view.version}, up {age} (since {clock(view.started_at)}), "
        f"{plural(view.groups, 'group')} alive, {size(view.rss_bytes)}, home {view.home}"
    )


def _await_end(pid: int, hint: str) -> None:
    """Returns once that process has ended. Raises Unreachable when it takes too long."""
    deadline = time.monotonic() + STOP_TIMEOUT
    while os.path.exists(f"/proc/{pid}") and not _ended(pid):
        if time.monotonic() > deadline:
            raise Unreachable(
                f"the server (pid {pid}) was asked to end and still runs",
                code="server/does-not-end",
                hint=hint,
            )
        time.sleep(STEP)


def _ended(pid: int) -> bool:
    """Whether the process is only waiting to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True

"""`infra check` and `server`: what this machine can do, and the server that does it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from argosy.cli.options import emit, emit_json, emit_lines, output_option
from argosy.cli.screen.group import clock
from argosy.cli.screen.paint import Paint, paint_for, say
from argosy.cli.screen.table import table
from argosy.errors import NotFound, Unreachable
from argosy.sdk.client import Client, ServerView
from argosy.sdk.home import home_folder, log_file
from argosy.sdk.lost import MENDING, lost_server, lost_text
from argosy.sdk.wire import NoServer
from argosy.views.near import unknown_infra
from argosy.views.text import duration, size

STOP_TIMEOUT = 20.0  # seconds until a server that was asked has ended
STEP = 0.02
LOG_STEP = 0.2
TAIL_BYTES = 1 << 20
HOST_HEADERS = ("HOST", "STATE", "CPUS", "MEMORY", "ACCELERATORS", "HELD BY")


@click.group()
def infra() -> None:
    """What each infra can do here."""


@infra.command("check")
@click.argument("name", required=False)
@output_option("table", "json")
def check(name: str | None, output: str) -> int:
    """Try every infra (or NAME): what works here, and what to install to get more."""
    known = Client().infras()
    infras = [one for one in known if name in (None, one["name"])]
    if name is not None and not infras:
        text, hints = unknown_infra(name, [one["name"] for one in known])
        raise NotFound(text, code="infra/unknown", hint=hints)
    if output == "json":
        emit_json(infras)
    else:
        paint = paint_for(sys.stdout)
        emit_lines([line for one in infras for line in infra_lines(one, paint)])
    return 0 if all(one["works"] for one in infras) else 6


def infra_lines(infra: dict[str, Any], paint: Paint) -> list[str]:
    """One infra: whether it works, its facts, problems and hints, its hosts."""
    state = paint("works", "green") if infra["works"] else paint("does not work", "red")
    lines = [f"{paint(infra['name'], 'bold')}: {state}"]
    lines += [f"  {key}: {value}" for key, value in infra.get("facts", ())]
    lines += [f"  {paint('problem:', 'red')} {text}" for text in infra.get("problems", ())]
    lines += [f"  {paint('hint:', 'cyan')} {text}" for text in infra.get("hints", ())]
    rows = [_host_row(host) for host in infra.get("hosts", ())]
    if rows:
        lines += [f"  {line}" for line in table(HOST_HEADERS, rows, paint)]
    return lines


def _host_row(host: dict[str, Any]) -> tuple[str, ...]:
    total, free = host.get("total", {}), host.get("free", {})
    cards = [
        f"{one['name']}:{_free(free, one['name'])}/{one['count']}"
        for one in total.get("accelerators", ())
    ]
    return (
        host["host"],
        host.get("state", ""),
        f"{free.get('cpus', 0):g}/{total.get('cpus', 0):g}",
        f"{free.get('memory_gib', 0):.0f}/{total.get('memory_gib', 0):.0f} GiB",
        " ".join(cards),
        _holders(host.get("holders", ())),
    )


def _holders(leases: Sequence[str]) -> str:
    """`2 of g1, 1 of g2`: a lease is named after its group."""
    counts = Counter(lease.partition(".")[0] for lease in leases)
    return ", ".join(f"{count} of {group}" for group, count in counts.items())


def _free(free: dict[str, Any], name: str) -> int:
    return sum(one["count"] for one in free.get("accelerators", ()) if one["name"] == name)


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
    say(f"argosy: the server has ended; {view.groups} groups go on" if view.groups else
        "argosy: the server has ended")  # fmt: skip
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
        f"{view.groups} groups live, {size(view.rss_bytes)}, home {view.home}"
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

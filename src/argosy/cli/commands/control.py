"""`wait`, `cancel`, `restart`, `rm`, `chaos`: what changes a group that is there."""

from __future__ import annotations

import click

from argosy.cli.address import AddressType, one_node, parse, resolved
from argosy.cli.following import detached, finish
from argosy.cli.options import Duration, emit_json, output_option
from argosy.cli.screen.paint import say
from argosy.sdk.client import Client
from argosy.views.shapes import Overview
from argosy.views.text import plural

TIMED_OUT = 124
LISTED_MOST = 1000  # groups that are looked through for older ones of a name
BREAKAGES = (
    "kill", "freeze", "thaw", "lose-host", "restore-host", "freeze-host", "thaw-host", "kill-agent",
)  # fmt: skip


@click.command()
@click.argument("group", type=AddressType(deep=False))
@click.option("--timeout", type=Duration(), help="Give up after this; exit 124.")
@output_option("table", "json")
def wait(group: str, timeout: float | None, output: str) -> int:
    """Wait until GROUP has ended; exit with its code: 0, 100 failed, 103 cancelled."""
    client = Client()
    name = parse(group).group
    ref = client.group(name).id
    try:
        view = client.wait(ref, timeout)
    except KeyboardInterrupt:
        return detached(name)
    if view is None:
        say(f"argosy: {name} still lives; `argosy explain {name}` says what it waits for")
        return TIMED_OUT
    if output == "json":
        emit_json(view)
        return view.exit_code or 0
    return finish(view)


@click.command()
@click.argument("group", type=AddressType(deep=False))
@click.option("--now", is_flag=True, help="Without grace: SIGKILL at once.")
@click.option("--wait/--no-wait", "waiting", default=True, help="Return when all has ended.")
def cancel(group: str, now: bool, waiting: bool) -> int:
    """End GROUP: SIGTERM to every program, SIGKILL after its grace."""
    client = Client()
    view = client.group(parse(group).group)
    if view.final:
        say(f"argosy: {view.name} has ended already: {view.phase}")
        return 0
    client.cancel(view.id, now=now)
    if not waiting:
        say(f"argosy: {view.name} is being ended")
        return 0
    try:
        end = client.wait(view.id)
    except KeyboardInterrupt:
        say(f"\nargosy: {view.name} is still ending; `argosy cancel --now {view.name}` hurries it")
        return 130
    say(f"argosy: {view.name} {end.phase if end else 'lives'}")
    return 0


@click.command()
@click.argument("address", metavar="GROUP[/TASK[/I]]", type=AddressType())
def restart(address: str) -> int:
    """Replace the attempts of GROUP, of a task, or of one node. Spends no restart budget."""
    client = Client()
    wanted = parse(address)
    view = client.group(wanted.group)
    wanted = resolved(view, wanted)
    client.restart(view.id, wanted.task, wanted.index)
    say(f"argosy: {wanted} is restarted; `argosy status {view.name} -w` shows how it goes")
    return 0


@click.command()
@click.argument("groups", nargs=-1, required=True, type=AddressType(deep=False))
@click.option(
    "--force",
    is_flag=True,
    help="Also one of which something may be left that uses a volume: it is freed.",
)
def rm(groups: tuple[str, ...], force: bool) -> int:
    """Forget ended groups: their records, events and logs. A name means the newest of it."""
    client = Client()
    for one in groups:
        ref = parse(one).group
        view = client.group(ref)
        client.remove(view.id, force=force)
        say(f"argosy: {view.name} ({view.id}) is forgotten{_older(client, view, ref)}")
    return 0


def _older(client: Client, view: Overview, ref: str) -> str:
    """How many ended groups have the name of one that was forgotten by it; "" for none."""
    if ref == view.id:
        return ""
    rows = client.groups(ended=True, limit=LISTED_MOST)
    count = sum(row.name == view.name and row.id != view.id for row in rows)
    return f"; {plural(count, 'older group')} of that name remain" if count else ""


@click.command()
@click.argument("what", type=click.Choice(BREAKAGES))
@click.argument("address", metavar="GROUP/TASK/I", type=AddressType())
def chaos(what: str, address: str) -> int:
    """Break something on purpose, as an accident would, and see what becomes of the group.

    kill the program, freeze or thaw it; lose, restore, freeze or thaw its host; kill the agent
    beside it.
    """
    client = Client()
    ref, task, index = one_node(client, address)
    client.chaos(ref, what, task, index)
    name = parse(address).group
    say(f"argosy: {what} {task}/{index}; `argosy events {name} -f` shows what follows")
    return 0

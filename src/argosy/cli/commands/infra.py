"""`infra`: what the infras have, what is free, what is wrong, and hosts that are gone."""

from __future__ import annotations

import sys
from typing import Any

import click

from argosy.cli.address import InfraType
from argosy.cli.options import emit, emit_json, emit_lines, output_option
from argosy.cli.screen.infra import check_lines, list_lines, offer_lines, stranger_lines
from argosy.cli.screen.paint import paint_for, say, terminal
from argosy.errors import CapacityError, InfraError
from argosy.sdk.client import Client
from argosy.sdk.launch import user_name
from argosy.views.text import plural

_OF_INFRA = click.option(
    "--infra", "where", type=InfraType(), default="", metavar="NAME",
    help="The infra that the host is of.",
)  # fmt: skip


@click.group()
def infra() -> None:
    """What each infra has, what is free there and who holds the rest; hosts that are gone."""


@infra.command("list")
@output_option("table", "json")
def list_(output: str) -> int:
    """Every infra: its hosts, what is free of what it has, and who holds the rest."""
    found = Client().hosts()
    if output == "json":
        emit_json(found)
    else:
        emit_lines(list_lines(found, paint_for(sys.stdout)))
    return 0


@infra.command("check")
@click.argument("name", type=InfraType(), metavar="[NAME]", required=False)
@output_option("table", "json")
def check(name: str | None, output: str) -> int:
    """Try every infra (or NAME): what works here, and what to install to get more.

    A context of the kubeconfig that nobody has used yet is asked only when NAME means it.
    """
    infras = Client().infras(name or "")
    if output == "json":
        emit_json(infras)
    else:
        paint = paint_for(sys.stdout)
        emit_lines([line for one in infras for line in check_lines(one, paint)])
    return 0 if all(one["works"] for one in infras) else InfraError.exit_code


@infra.command("offers")
@click.option(
    "--need", multiple=True, metavar="CARDS",
    help="Accelerators of one node, as `resources.accelerators` has them: H100:8, 80GB+:2. "
    "Repeated, or a comma between them: any one of these.",
)  # fmt: skip
@click.option("--cpus", default="", metavar="N", help="At least so many cores: 8 or 8+.")
@click.option("--memory", default="", metavar="SIZE", help="At least so much memory: 64 or 64GB.")
@click.option("--infra", "where", type=InfraType(), default="", metavar="NAME",
              help="Only there; ssh, local/*, ...")  # fmt: skip
@output_option("table", "json")
def offers(need: tuple[str, ...], cpus: str, memory: str, where: str, output: str) -> int:
    """What could be had now for one node, on each infra: now, not now because, or never.

    Exits 4 when it is to be had nowhere now.
    """
    cards = [part.strip() for text in need for part in text.split(",") if part.strip()]
    found = Client().offers(cards, cpus=cpus, memory=memory, infra=where)
    if output == "json":
        emit_json(found)
    else:
        emit_lines(offer_lines(found, paint_for(sys.stdout)))
    now = any(one["verdict"] == "now" for one in found["infras"])
    return 0 if now else CapacityError.exit_code


@infra.command("clean")
@click.argument("name", type=InfraType(), metavar="NAME")
@click.option("-y", "--yes", is_flag=True, help="End it without asking.")
@output_option("table", "json")
def clean(name: str, yes: bool, output: str) -> int:
    """Show what bears our mark on infra NAME and belongs to no group; end it with -y.

    Such a thing is left where the store is older than it (a restored backup). Things of other
    servers are never shown and never touched.
    """
    client = Client()
    found = client.strangers(name)
    leases = [one["lease"] for one in found["leases"]]
    if output == "json" and not yes:
        emit_json(found)
        return 0
    if output != "json":
        _show(found)
    if not (yes and output == "json") and not (leases and (yes or _agreed(len(leases)))):
        return 0
    ended = client.clean(name, leases) if leases else {"released": [], "left": {}}
    if output == "json":
        emit_json({**found, **ended})
    else:
        say(f"argosy: ended {plural(len(ended['released']), 'lease')} on {name}")
        for lease, why in ended["left"].items():
            say(f"argosy: {lease} is still there: {why}")
    return InfraError.exit_code if ended["left"] else 0


def _show(found: dict[str, Any]) -> None:
    if found["leases"]:
        emit_lines(stranger_lines(found, paint_for(sys.stdout)))
    else:
        emit(f"nothing on {found['infra']} belongs to no group")
    if found["blind"]:
        say("argosy: some hosts did not answer: what is there was not seen")


def _agreed(count: int) -> bool:
    """Whether to go on; without a terminal it is shown only."""
    if not terminal(sys.stdin):
        say("argosy: shown only; `-y` ends it")
        return False
    return click.confirm(f"End {plural(count, 'lease')} and what runs there?", err=True)


@infra.command("lost")
@click.argument("host")
@_OF_INFRA
@click.option("--force", is_flag=True, help="Though it answers: what runs there is ended.")
@output_option("table", "json")
def lost(host: str, where: str, force: bool, output: str) -> int:
    """Say that HOST is gone: its nodes are lost, and are replaced elsewhere at once.

    Argosy takes a host as lost on evidence only; this is yours. It holds over a restart of the
    server, until `argosy infra forget HOST`, or until the host is seen again: then what is found
    there is ended. A host that is only cut off may still run what it had until then.
    """
    answer = Client().host_lost(host, where, force=force, by=user_name())
    if output == "json":
        emit_json(answer)
        return 0
    groups = ", ".join(answer["groups"])
    told = f"nodes of {groups} are replaced" if groups else "no group has nodes there"
    say(f"argosy: {host} of {answer['infra']} counts as gone; {told}")
    return 0


@infra.command("forget")
@click.argument("host")
@_OF_INFRA
@output_option("table", "json")
def forget(host: str, where: str, output: str) -> int:
    """Give up what is on HOST, which will never come back: nobody waits for it any more.

    Should it come back, what is found there is ended, as what belongs to no group.
    """
    answer = Client().host_forget(host, where)
    if output == "json":
        emit_json(answer)
        return 0
    count = plural(len(answer["leases"]), "lease")
    say(f"argosy: {host} of {answer['infra']} is forgotten, with {count}")
    return 0

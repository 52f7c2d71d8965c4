"""`volumes`: folders and claims that outlive groups, under a name."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

import click

from argosy.cli.address import InfraType
from argosy.cli.options import emit_json, emit_lines, output_option, plain
from argosy.cli.screen.paint import paint_for, say, terminal
from argosy.cli.screen.table import table
from argosy.errors import InputError, NotFound
from argosy.sdk.client import Client
from argosy.sdk.launch import read_text
from argosy.sdk.requests import VolumeChange
from argosy.views.text import duration
from argosy.views.volumes import VolumeRow, fate, size_text

UNCHANGED = "unchanged"  # of VolumeChange.change
HEADERS = ("NAME", "TYPE", "INFRA", "SIZE", "WHERE", "AGE", "USED BY")


@click.group()
def volumes() -> None:
    """Volumes: what is in them outlives groups; a group mounts one by its name."""


@volumes.command("apply")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@output_option("table", "json")
def apply(file: str, output: str) -> int:
    """Make the volumes that FILE describes, one a document; say everything that is wrong."""
    shown, _, text = read_text(file)
    _told(Client().apply_volumes(text, shown), output)
    return 0


@volumes.command("create")
@click.argument("name")
@click.option("--size", help="Its size, such as 100Gi; on hosts it is a note, no limit.")
@click.option("--type", "kind", help="local, nfs, k8s-pvc or k8s-hostpath.")
@click.option(
    "--infra", type=InfraType(), help="Where it is: local, ssh/POOL, kubernetes[/CONTEXT]."
)
@click.option("--host", help="The host of the pool where a local one is.")
@click.option("--host-path", help="The folder of the hosts.")
@click.option("--use-existing", is_flag=True, help="It is there, and stays when it is deleted.")
@click.option("--storage-class", help="Kubernetes: the storage class.")
@click.option("--access-mode", help="Kubernetes: ReadWriteOnce, ReadWriteMany, ...")
@click.option("--namespace", help="Kubernetes: the namespace.")
@output_option("table", "json")
def create(output: str, use_existing: bool, **given: str | None) -> int:
    """Make the volume NAME: a folder on this machine, where nothing else is said."""
    places = {
        "kind": "type", "host": "config.host", "host_path": "config.host_path",
        "storage_class": "config.storage_class_name", "access_mode": "config.access_mode",
        "namespace": "config.namespace",
    }  # fmt: skip
    flags = {places.get(key, key): value for key, value in given.items() if value is not None}
    if use_existing:
        flags["use_existing"] = "true"
    _told(Client().create_volume(flags), output, "there already")
    return 0


@volumes.command("list")
@output_option("table", "json")
def list_(output: str) -> int:
    """Show the volumes, where they are, and which groups use them."""
    rows = Client().volumes()
    if output == "json":
        emit_json([plain(row) for row in rows])
    elif rows:
        emit_lines(table(HEADERS, [_row(row) for row in rows], paint_for(sys.stdout)))
    else:
        say("argosy: there are no volumes; `argosy volumes create NAME` makes one")
    return 0


@volumes.command("delete")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--forget", is_flag=True, help="Though who has the bytes does not answer: they stay.")
def delete(names: tuple[str, ...], yes: bool, forget: bool) -> int:
    """Delete volumes that no group uses, with what is in them where Argosy made the place."""
    client = Client()
    known = {row.name: row for row in client.volumes()}
    for name in names:
        if name not in known:
            raise NotFound(
                f"there is no volume {name!r}",
                code="volumes/unknown",
                hint=_meant(name, known),
            )
    for name in dict.fromkeys(names):
        row = known[name]
        if not yes:
            _ask(row)
        end = client.delete_volume(name, forget=forget)
        if end.stays:
            say(f"argosy: {name} is forgotten; what is in it stays: {end.stays}")
        else:
            say(f"argosy: {name} is deleted; {fate(end.row)}")
    return 0


def _meant(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]}?" if near else "`argosy volumes list` shows those that are"


def _ask(row: VolumeRow) -> None:
    if not terminal(sys.stdin):
        raise InputError(
            f"delete the volume {row.name}? {fate(row)}",
            code="volumes/unanswered",
            hint="`-y` deletes it without a question",
        )
    click.confirm(f"Delete the volume {row.name}? {fate(row)}.", abort=True, err=True)


def _told(made: list[VolumeChange], output: str, already: str = "") -> None:
    """What was done; `already`: the word for what was there just so."""
    if output == "json":
        emit_json([{**plain(one.row), "change": one.change} for one in made])
        return
    for one in made:
        what = already if one.change == UNCHANGED and already else one.change
        say(f"argosy: {one.row.name} is {what}: {one.row.type}, {one.row.where}")


def _row(row: VolumeRow) -> tuple[str, ...]:
    age = duration(max(0.0, time.time() - row.created_at)) if row.created_at else ""
    used = row.state if row.state in ("deleting", "unfinished") else ", ".join(row.used_by)
    return row.name, row.type, row.infra, size_text(row), row.where, age, used

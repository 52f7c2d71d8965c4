"""`init`: a small commented group file to begin with, or one made of a task file that is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from argosy.cli.screen.paint import say
from argosy.errors import Conflict, InputError
from argosy.sdk.launch import read_text

TEMPLATE = """\
# A job group: these tasks start together, find each other by name, and end together.
#   argosy validate {file}    says what is wrong with it
#   argosy plan {file}        shows where it would run
#   argosy launch {file}      starts it and follows it
---
name: {name}
execution: parallel
primary_tasks: [client]   # the group ends when these have ended; `server` is ended with them
termination_delay: 1s     # ... so long after their success
---
name: server
run: |
  # Every node has a host name of its own: server-0.{name}
  exec python3 -m http.server 8000 --bind $ARGOSY_HOSTNAME
ready: {{http: /, port: 8000}}   # healthy when this answers
grace: 2s                      # from SIGTERM to SIGKILL
---
name: client
depends_on: {{server: healthy}}  # instead of a loop that waits
restart: {{on: [failure], max: 3}}
run: |
  python3 - <<'EOF'
  from urllib.request import urlopen
  page = urlopen("http://server-0.{name}:8000/").read()
  print("the server answered with", len(page), "bytes")
  EOF
"""

_HEADER_KEYS = ("execution", "primary_tasks", "termination_delay")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False), default="group.yaml")
@click.option("--from", "source", metavar="FILE", help="Make it of this SkyPilot task file.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def init(file: str, source: str | None, force: bool) -> int:
    """Write a small commented group to FILE (group.yaml), or turn a SkyPilot task file into one."""
    target = Path(file)
    if target.exists() and not force:
        raise Conflict(
            f"{file} is there already",
            code="file/exists",
            hint=f"`argosy init OTHER.yaml`, or `argosy init {file} --force` to write over it",
        )
    told: list[str] = []
    if source is None:
        text = TEMPLATE.format(file=file, name=group_name(target.stem))
    else:
        text, told = converted(source, file)
    target.write_text(text, encoding="utf-8")
    say(f"argosy: wrote {file}")
    for line in told:
        say(f"  {line}")
    say(f"next: argosy validate {file}; argosy plan {file}; argosy launch {file}")
    return 0


def converted(source: str, target: str) -> tuple[str, list[str]]:
    """The group file made of a task file, and what was done. Raises InputErrors when it is wrong.

    The text of the task is kept as it is, comments too: a header is put before it.
    """
    from argosy.spec import parse

    shown, base, text = read_text(source)
    body = _without_markers(text)
    document = _only_document(shown, body)
    own = document.get("name")
    task = str(own) if own is not None else "main"
    name = group_name(task if own is not None else Path(shown).stem)
    told = [f"put a header before it: group {name}, execution: parallel"]
    if own is None:
        body = f"name: {task}\n{body}"
        told.append(f"named the task {task!r}: a task of a group needs a name")
    made = (
        f"# Made of {shown}. Add tasks below, each after a line with three dashes.\n"
        f"---\nname: {name}\nexecution: parallel\n---\n{body.rstrip()}\n"
    )
    parsed = parse(
        made, file=target, base=str(base), overrides=_everything_given(document), user=""
    )
    told += [f"warning: {one.text}" for one in parsed.warnings]
    told += [one for made_task in parsed.spec.tasks for one in made_task.not_carried_out]
    if base != Path(target).absolute().parent:
        told.append(f"paths in it count from {base} no more, but from the folder of {target}")
    return made, told


def group_name(text: str) -> str:
    """A name that a group may have."""
    from argosy.model.ids import dns_label

    return dns_label(text)[:53].strip("-") or "group"


def _without_markers(text: str) -> str:
    """The text without document markers at its beginning and end."""
    text = re.sub(r"\A(?:\s*(?:#[^\n]*)?\n)*---[^\n]*\n", lambda m: _comments(m[0]), text)
    return re.sub(r"\n(?:---|\.\.\.)\s*\Z", "\n", text)


def _comments(text: str) -> str:
    lines = [line for line in text.splitlines() if line.lstrip().startswith("#")]
    return "".join(f"{line}\n" for line in lines)


def _only_document(shown: str, text: str) -> dict[str, Any]:
    import yaml

    class AsWritten(yaml.SafeLoader):
        """Dates stay the text that they were written as: a group's file knows none, either."""

    AsWritten.add_constructor("tag:yaml.org,2002:timestamp", AsWritten.construct_yaml_str)  # type: ignore[type-var]
    try:
        documents = [one for one in yaml.load_all(text, AsWritten) if one is not None]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InputError(
            f"{shown} is no YAML: {str(error).splitlines()[0]}",
            code="init/not-yaml",
            hint=f"`argosy validate {shown}` shows where",
        ) from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InputError(
            f"{shown} has {len(documents)} documents, and --from takes one task",
            code="init/not-one-task",
            hint=f"a file of several documents is a group already: `argosy validate {shown}`",
        )
    if any(key in documents[0] for key in _HEADER_KEYS):
        raise InputError(
            f"{shown} is the header of a group and no task",
            code="init/header",
            hint="give the file of a task",
        )
    return documents[0]


def _everything_given(document: dict[str, Any]) -> Any:
    """Overrides that fill variables which only `--env` and the environment would give later."""
    from argosy.spec import Overrides

    def missing(key: str) -> tuple[tuple[str, str], ...]:
        values = document.get(key)
        if isinstance(values, list):
            return tuple((str(name), "given-later") for name in values)
        pairs = values.items() if isinstance(values, dict) else ()
        return tuple((str(name), "given-later") for name, value in pairs if value is None)

    return Overrides(envs=missing("envs"), environ=missing("secrets"))

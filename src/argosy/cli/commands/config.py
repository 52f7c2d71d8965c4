"""`config`: the file with the pools and contexts of a home; offline."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import click

from argosy.cli.errors import error_lines
from argosy.cli.options import emit, emit_json, emit_lines, output_option
from argosy.cli.screen.paint import paint_for, say, terminal
from argosy.errors import ArgosyError, Conflict, InputError, NotFound, Unreachable
from argosy.infra import configuration
from argosy.infra.config_file import text_of, user_home
from argosy.sdk.client import Client
from argosy.sdk.home import home_folder

COPY: Final = ".config.new.yaml"  # beside the file, so that it can be renamed onto it
EDITORS: Final = ("VISUAL", "EDITOR")
EDITOR: Final = "vi"
WIDTH: Final = 94  # of what is shown, without what it is moved in
FIRST: Final = """\
# Pools and contexts for `argosy launch --infra NAME`. `argosy config schema` has every key.
#
# local:
#   pools:
#     rack: {hosts: 4, cpus: 8, memory: 32, accelerators: H100:8}     # virtual hosts: local/rack
# ssh:
#   pools:
#     lab: {user: ada, hosts: [gpu-1, gpu-2]}                         # ssh/lab
# kubernetes:
#   contexts:
#     prod: {namespace: research}                                     # kubernetes/prod
"""


@click.group()
def config() -> None:
    """The file $ARGOSY_HOME/config.yaml: pools of hosts, contexts, the server's address."""


@config.command("path")
def path() -> int:
    """Print where the file is, or would be."""
    emit(str(_file()))
    return 0


@config.command("schema")
def schema() -> int:
    """Print the JSON Schema of the file, for editors."""
    emit(json.dumps(configuration.schema(), indent=2, ensure_ascii=False))
    return 0


@config.command("show")
@output_option("yaml", "json")
def show(output: str) -> int:
    """Print the file as it is understood: defaults filled in, and where each pool comes from.

    Says everything that is wrong with it at once: file:line:col. Exits 2 then.
    """
    file = _file()
    text = text_of(file)
    found = configuration.parse(text, str(file))
    places = configuration.places(text, str(file))
    for name, (place, pool) in configuration.sky_pools(user_home()).items():
        pools = found.setdefault("ssh", {}).setdefault("pools", {})
        if name not in pools:  # of two of one name ours counts
            pools[name] = pool
            places["ssh", name] = place
    if output == "json":
        named = [{"section": one, "name": name, "place": at} for (one, name), at in places.items()]
        emit_json({"file": str(file), "there": file.exists(), **found, "places": named})
        return 0
    emit_lines(_yaml_lines(file, found, places))
    if (note := _not_in_force(file)) is not None:
        say(f"argosy: {note}")
    return 0


@config.command("edit")
def edit() -> int:
    """Edit a copy in $VISUAL or $EDITOR; it takes the place of the file when it is right."""
    file = _file()
    before = text_of(file)
    if not _chosen_editor() and not terminal(sys.stdin):
        raise NotFound(
            "no editor is set, and there is no terminal for one",
            code="config/no-editor",
            hint=("set EDITOR to a program that changes a file", f"or edit {file} by hand"),
        )
    copy = _copy_of(file, before)
    try:
        right = _until_right(copy)
    except NotFound:
        if copy.read_text(encoding="utf-8") == (before or FIRST):
            copy.unlink()
        raise
    if not right:
        say(f"argosy: {file} is as it was; your text is kept in {copy}")
        say("argosy: `argosy config edit` goes on with it, or remove it")
        return InputError.exit_code
    if copy.read_text(encoding="utf-8") == (before or FIRST):
        copy.unlink()
        say(f"argosy: {file} is unchanged")
        return 0
    if text_of(file) != before:
        raise Conflict(
            f"{file} was changed by somebody else meanwhile; yours is kept in {copy}",
            code="config/changed",
            hint=f"`diff {file} {copy}`, then `argosy config edit` again",
        )
    _take_over(copy, file)
    say(f"argosy: {file} is written")
    if (note := _not_in_force(file)) is not None:
        say(f"argosy: {note}")
    return 0


def _file() -> Path:
    return (home_folder() / configuration.FILE).resolve()  # a link is edited where it points to


def _copy_of(file: Path, text: str) -> Path:
    """The copy to edit, made unless one was kept."""
    copy = file.with_name(COPY)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        say(f"argosy: goes on with {copy}, which was kept the last time")
        if file.exists() and file.stat().st_mtime > copy.stat().st_mtime:
            say(f"argosy: {file} was changed since: `diff {file} {copy}` shows how they differ")
        return copy
    with open(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text or FIRST)
    return copy


def _until_right(copy: Path) -> bool:
    """Edit until it is right; False: it is not, and nobody wants to go on."""
    while not _edited(copy):
        if not (terminal(sys.stdin) and click.confirm("Edit again?", default=True, err=True)):
            return False
    return True


def _edited(copy: Path) -> bool:
    """Run the editor once; whether what it leaves is right. Says what is wrong."""
    chosen = _chosen_editor() or EDITOR
    try:
        code = subprocess.run([*shlex.split(chosen), str(copy)], check=False).returncode
    except (OSError, ValueError) as error:
        raise NotFound(
            f"the editor `{chosen}` cannot be run: {error}",
            code="config/no-editor",
            hint=("set EDITOR to one that is there", f"or edit {_file()} by hand"),
        ) from error
    if code:
        say(f"argosy: the editor `{chosen}` ended with {code}")
        return False
    try:
        configuration.read(copy)
    except ArgosyError as error:
        say("\n".join(error_lines(error, paint_for(sys.stderr))))
        return False
    return True


def _chosen_editor() -> str:
    return next((os.environ[name] for name in EDITORS if os.environ.get(name)), "")


def _take_over(copy: Path, file: Path) -> None:
    """The copy becomes the file, whole or not at all, with the rights that the file had."""
    with contextlib.suppress(FileNotFoundError):
        os.chmod(copy, file.stat().st_mode & 0o777)
    descriptor = os.open(copy, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(copy, file)


def _not_in_force(file: Path) -> str | None:
    """What to do so that a running server reads the file; None: it has, or none runs."""
    try:
        view = Client(start=False).server()
        changed_at = file.stat().st_mtime
    except (Unreachable, FileNotFoundError):  # none runs, or it does not say
        return None
    if changed_at < view.started_at:
        return None
    return (
        "the server that runs has not read it: `argosy server stop`, then any command starts one "
        "that has; running groups go on"
    )


def _yaml_lines(
    file: Path, found: dict[str, dict[str, Any]], places: dict[tuple[str, str], str]
) -> list[str]:
    """The sections as YAML, each pool and context with where it stands."""
    import yaml

    lines = [f"# {file}" + ("" if file.exists() else " (not there: nothing is configured)")]
    for section, values in found.items():
        lines.append(f"{section}:")
        for key, value in values.items():
            if not isinstance(value, dict):
                lines.append(f"  {key}: {json.dumps(value)}")
                continue
            lines.append(f"  {key}:")
            for name, fields in value.items():
                lines.append(f"    {name}:  # {places.get((section, name), '')}")
                text = yaml.safe_dump(
                    _said(fields), sort_keys=False, default_flow_style=None, width=WIDTH
                )
                lines += [f"      {line}" for line in text.rstrip("\n").split("\n")]
    return lines


def _said(value: Any) -> Any:
    """Plain data without what is empty, which means: as ssh, the kubeconfig or the host has it."""
    if isinstance(value, dict):
        kept = {key: _said(one) for key, one in value.items()}
        return {key: one for key, one in kept.items() if one not in ("", None, [], {})}
    if isinstance(value, list | tuple):
        return [_said(one) for one in value]
    return value

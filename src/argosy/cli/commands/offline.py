"""`validate` and `schema`: they need no server and no network."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from argosy.cli.options import emit, emit_json, output_option
from argosy.cli.overrides import env_pairs, file_options, secret_pairs
from argosy.cli.screen.paint import paint_for
from argosy.errors import ArgosyError, InputError, InputErrors
from argosy.sdk.launch import missing_paths, read_bytes
from argosy.views.text import plural


@click.command()
@file_options
@output_option("table", "json")
def validate(file: str, output: str, **given: Any) -> int:
    """Say everything that is wrong with FILE at once: file:line:col, a caret, a hint. Exits 2.

    Needs no server. Warnings go to standard error and change nothing: files and secrets that are
    not there are warnings here, and refused by a launch.
    """
    from argosy.spec import parse, render

    try:
        shown, base, data = read_bytes(file)
        parsed = parse(
            data,
            file=shown,
            base=str(base),
            home=os.path.expanduser("~").removeprefix("~"),
            overrides=_overrides(**given),
            secrets_later=True,
        )
    except InputError as error:
        if output == "json":
            emit_json({"valid": False, "errors": _fields(error), "warnings": []})
            return error.exit_code
        raise
    spec = parsed.spec
    warnings = parsed.warnings + missing_paths(parsed)
    if output == "json":
        emit_json({"valid": True, "name": spec.name, "errors": [], "warnings": [
            {"text": one.text, "where": str(one.place or ""), "hint": one.hint, "code": one.code}
            for one in warnings
        ]})  # fmt: skip
        return 0
    if warnings:
        sys.stderr.write(render((), warnings, paint_for(sys.stderr).on))
    nodes = sum(task.num_nodes for task in spec.tasks)
    tasks = plural(len(spec.tasks), "task")
    good = paint_for(sys.stdout)("valid", "green")
    emit(f"{shown}: {good}: group {spec.name}, {tasks}, {plural(nodes, 'node')}")
    return 0


@click.command()
def schema() -> int:
    """Print the JSON Schema of one document of the file: the header, or a task."""
    from argosy.spec import schema as made

    emit(json.dumps(made(), indent=2, ensure_ascii=False))
    return 0


def _fields(error: ArgosyError) -> list[dict[str, Any]]:
    each = error.errors if isinstance(error, InputErrors) else (error,)
    return [one.fields() for one in each]


def _overrides(
    *,
    envs: tuple[str, ...],
    env_files: tuple[str, ...],
    secrets: tuple[str, ...],
    sets: tuple[str, ...],
    name: str,
    infra: str,
    no_accelerators: bool,
    network: str | None,
) -> Any:
    from argosy.spec import Overrides

    return Overrides(
        name=name,
        infra=infra,
        envs=tuple(env_pairs(envs, env_files, os.environ).items()),
        secrets=tuple(secret_pairs(secrets, os.environ).items()),
        sets=sets,
        no_accelerators=no_accelerators,
        network=network or "",
        environ=tuple(os.environ.items()),
    )

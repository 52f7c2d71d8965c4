"""What the command line changes about a file: the options that validate, plan and launch share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

from argosy.cli.address import InfraType
from argosy.sdk.launch import read_text

F = TypeVar("F", bound=Callable[..., Any])


def file_options(command: F) -> F:
    """The options that say how a file is read: the same for `validate`, `plan` and `launch`."""
    options = (
        click.argument("file", type=click.Path(allow_dash=True)),
        click.option("--infra", type=InfraType(), default="",
                     help="Run all on this infra, whatever the file says."),
        click.option("--env", "envs", multiple=True, metavar="K[=V]",
                     help="Set a variable; without =V from this environment."),
        click.option("--env-file", "env_files", multiple=True, metavar="FILE",
                     help="Set variables from KEY=VALUE lines."),
        click.option("--secret", "secrets", multiple=True, metavar="K[=V]",
                     help="Like --env, shown nowhere."),
        click.option("--name", default="", help="Name the group so."),
        click.option("--set", "sets", multiple=True, metavar="PATH=VALUE",
                     help="Change a field: trainer.resources.cpus=1."),
        click.option("--no-accelerators", is_flag=True, help="Leave all accelerators out."),
        click.option("--network", type=click.Choice(["isolated", "host"]), default=None,
                     help="How local nodes are connected; default: what works here."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def env_pairs(
    given: Iterable[str], files: Iterable[str], environment: Mapping[str, str]
) -> dict[str, str]:
    """`--env` and `--env-file` together: `--env` wins, and the last of each. Raises InputErrors."""
    if not given and not files:
        return {}
    from argosy.spec.overrides import interpret_env_file, interpret_pairs

    found: dict[str, str] = {}
    for file in files:
        shown, _, text = read_text(file)
        found |= dict(interpret_env_file(text, file=shown))
    return found | dict(interpret_pairs(given, environment, flag="--env"))


def secret_pairs(given: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """`--secret`, by name. Raises InputErrors."""
    if not given:
        return {}
    from argosy.spec.overrides import interpret_pairs

    return dict(interpret_pairs(given, environment, flag="--secret"))

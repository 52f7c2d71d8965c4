"""`completion`: the script that teaches a shell the commands, groups, tasks and nodes."""

from __future__ import annotations

import os

import click

from argosy.cli.options import emit
from argosy.cli.screen.paint import say
from argosy.errors import InputError

SHELLS = ("bash", "zsh", "fish")
_INSTALL = {
    "bash": 'add to ~/.bashrc: eval "$(argosy completion bash)"',
    "zsh": 'add to ~/.zshrc: eval "$(argosy completion zsh)"',
    "fish": "argosy completion fish > ~/.config/fish/completions/argosy.fish",
}


@click.command()
@click.argument("shell", required=False, type=click.Choice(SHELLS))
def completion(shell: str | None) -> int:
    """Print the completion script of a shell; without SHELL that of $SHELL."""
    from click.shell_completion import get_completion_class

    from argosy.cli.main import cli

    name = shell or os.path.basename(os.environ.get("SHELL", ""))
    found = get_completion_class(name) if name in SHELLS else None
    if found is None:
        raise InputError(
            f"there is no completion for the shell {name!r}" if name else "which shell?",
            code="flag/shell",
            hint="`argosy completion bash`, `zsh` or `fish`",
        )
    emit(found(cli, {}, "argosy", "_ARGOSY_COMPLETE").source())
    say(f"argosy: {_INSTALL[name]}")
    return 0

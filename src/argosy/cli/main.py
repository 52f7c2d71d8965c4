"""The command `argosy`: finds the command asked for, imports it alone, renders what goes wrong."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

import argosy
from argosy.errors import ArgosyError

INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
UNWRITTEN: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# name: (module, attribute, help). A command is imported when it is called, not to list it.
SECTIONS: Final[dict[str, dict[str, tuple[str, str, str]]]] = {
    "The file": {
        "init": ("init", "init", "Write a group file to begin with, or convert one."),
        "validate": ("offline", "validate", "Say everything that is wrong with a file; offline."),
        "schema": ("offline", "schema", "Print the JSON Schema of the file, for editors."),
        "plan": ("launch", "plan", "Show where each node would run; start nothing."),
        "export": ("launch", "export", "Print what a cluster would be sent; make nothing."),
    },
    "Groups": {
        "launch": ("launch", "launch", "Start a group and follow it to its end."),
        "status": ("status", "status", "List the groups, or show one on a screen."),
        "logs": ("logs", "logs", "Print what the tasks wrote, merged; follow it."),
        "events": ("history", "events", "Show what happened, when and why."),
        "explain": ("history", "explain", "Say why a group waits and what would mend it."),
        "wait": ("control", "wait", "Wait for the end; exit with the group's code."),
        "cancel": ("control", "cancel", "End a group: SIGTERM, grace, SIGKILL."),
        "restart": ("control", "restart", "Replace the attempts of a group, task or node."),
        "rm": ("control", "rm", "Forget an ended group and its logs."),
    },
    "Inside a node": {
        "exec": ("execute", "exec_", "Run a command where a node runs."),
        "cp": ("copy", "cp", "Copy files to or from a node."),
        "forward": ("forward", "forward", "Reach a port of a node from here."),
        "chaos": ("control", "chaos", "Break something on purpose."),
    },
    "This machine": {
        "infra": ("infra", "infra", "Infras: hosts, what is free, check, clean, lost hosts."),
        "config": ("config", "config", "Show, edit or explain config.yaml."),
        "volumes": ("volumes", "volumes", "Make, list and delete volumes."),
        "server": ("server", "server", "Status, stop, start and log of the server."),
        "doctor": ("doctor", "doctor", "Look for what is wrong or missing here."),
        "completion": ("completion", "completion", "Print the shell completion script."),
    },
}


class Commands(click.Group):
    """A group of commands that are imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name, section by section."""
        return [name for section in SECTIONS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        for section in SECTIONS.values():
            if cmd_name in section:
                module, attribute, _ = section[cmd_name]
                found = importlib.import_module(f"argosy.cli.commands.{module}")
                command: click.Command = getattr(found, attribute)
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; an unknown name is answered with the nearest one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.list_commands(ctx), 1)
            if not near:
                raise
            told = f"No such command {args[0]!r}. Did you mean {near[0]!r}?"
            raise click.UsageError(told, ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The sections with one line a command."""
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, help_) for name, (_, _, help_) in section.items()])


@click.group(
    cls=Commands,
    no_args_is_help=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="State is in $ARGOSY_HOME (~/.argosy). Exit codes: 0 success, 100 failed, 103 "
    "cancelled; 2 input, 3 not found, 4 capacity, 5 access, 6 infra, 7 conflict, 8 unreachable, "
    "70 our fault; 124 time-out, 130 detached or interrupted.",
)
@click.version_option(argosy.__version__, message="argosy %(version)s")
@click.option("--no-color", is_flag=True, help="No colours (so does NO_COLOR=1).")
@click.pass_context
def cli(ctx: click.Context, no_color: bool) -> None:
    """Start, name, keep alive and end job groups: several programs from one YAML file."""
    if no_color:
        os.environ["NO_COLOR"] = "1"
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point: runs a command line and exits with its code."""
    _open_streams()
    code = run(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _quiet_stdout()
        code = code or PIPE_CLOSED
    except OSError as error:
        _quiet_stdout()
        code = code or _report(_unexpected(error), as_json=False)
    sys.exit(code)


def _open_streams() -> None:
    """Descriptors 0 to 2 are there, whoever closed them: they never become a file or socket."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code, raises only with ARGOSY_DEBUG=1."""
    words = list(arguments) if arguments is not None else sys.argv[1:]
    chosen: set[str] = set()  # "json": what goes wrong is JSON too
    try:
        refuse_platform(sys.platform)
        result: Any = cli.main(args=words, prog_name="argosy", standalone_mode=False, obj=chosen)
        return result if isinstance(result, int) else 0
    except ArgosyError as error:
        return _report(error, "json" in chosen)
    except click.ClickException as error:
        return _report_usage(error, words)
    except (click.Abort, KeyboardInterrupt):
        print("\nargosy: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _quiet_stdout()
        return PIPE_CLOSED
    except SystemExit:  # click ends so when a pipe is closed, and only then
        return PIPE_CLOSED
    except Exception as error:
        return _report(_unexpected(error), "json" in chosen)


def refuse_platform(platform: str) -> None:
    """Raises InputError where Argosy can't run."""
    if platform == "linux":
        return
    name = {"darwin": "macOS", "win32": "Windows", "cygwin": "Windows"}.get(platform, platform)
    from argosy.errors import InputError

    raise InputError(
        f"Argosy runs on Linux, and this is {name}",
        code="platform/not-linux",
        hint=(
            "on Windows use WSL2 (`wsl --install`), there it works as on Linux",
            "or run it in a container: `docker run -it python:3.12` and install it there",
        ),
    )


def _report(error: ArgosyError, as_json: bool) -> int:
    if os.environ.get("ARGOSY_DEBUG") == "1":
        raise error
    from argosy.cli.errors import error_json, error_lines
    from argosy.cli.screen.paint import paint_for

    lines = [error_json(error)] if as_json else error_lines(error, paint_for(sys.stderr))
    print("\n".join(lines), file=sys.stderr)
    return error.exit_code


def _report_usage(error: click.ClickException, words: list[str]) -> int:
    from argosy.cli.errors import usage_json, usage_lines
    from argosy.cli.options import asks_for_json
    from argosy.cli.screen.paint import paint_for

    as_json = asks_for_json(error, words)
    lines = [usage_json(error)] if as_json else usage_lines(error, paint_for(sys.stderr))
    print("\n".join(lines), file=sys.stderr)
    return error.exit_code


def _unexpected(error: Exception) -> ArgosyError:
    """An error that nobody translated: ours, unless the machine is to blame."""
    from argosy.errors import AccessError, Broken, InfraError

    if os.environ.get("ARGOSY_DEBUG") == "1":
        raise error
    if isinstance(error, OSError) and error.errno in UNWRITTEN and not error.filename:
        return InfraError(
            f"not everything could be written: {error.strerror}",
            code="file/unwritten",
            hint="free some space where it goes, or write it to another disk",
        )
    if isinstance(error, OSError) and error.filename:
        return AccessError(f"{error.strerror}: {error.filename}", code="file/refused", hint=(
            "see whether it is there, whether you may use it, and whether the disk has room",
        ))  # fmt: skip
    return Broken(
        f"{type(error).__name__}: {error}",
        code="cli/unexpected",
        hint="`ARGOSY_DEBUG=1` before the command shows where; `argosy doctor` looks around",
    )


def _quiet_stdout() -> None:
    """Nobody reads any more: what is left in buffers must not complain at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

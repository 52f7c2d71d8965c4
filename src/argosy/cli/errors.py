"""The one renderer of errors: what, where (with a caret), and the next command."""

from __future__ import annotations

from copy import copy

import click

from argosy.cli.screen.paint import Paint
from argosy.errors import ArgosyError, InputErrors


def error_lines(error: ArgosyError, paint: Paint) -> list[str]:
    """`error:`, `where:` and `hint:` lines; one block for each of several errors.

    A text of several lines (the end of a log) keeps its further lines, indented, after the first.
    """
    from argosy.spec.report import render

    first, *more = error.text.split("\n")
    shown = error
    if more and not isinstance(error, InputErrors):
        shown = copy(error)
        shown.text = first
    lines = render(shown, (), paint.on).rstrip("\n").split("\n")
    return [*lines[:1], *(f"  {line}" for line in more), *lines[1:]]


def usage_lines(error: click.ClickException, paint: Paint) -> list[str]:
    """A wrong command line, in the same shape."""
    lines = [f"{paint('error:', 'red')} {error.format_message()}"]
    if isinstance(error, click.UsageError) and error.ctx is not None:
        lines.append(f"{paint('hint:', 'cyan')} `{error.ctx.command_path} --help` shows its usage")
    return lines

"""The one renderer of errors: what, where (with a caret), and the next command."""

from __future__ import annotations

import json
from copy import copy

import click

from argosy.cli.screen.paint import Paint
from argosy.errors import ArgosyError, InputError, InputErrors


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
    hint = _usage_hint(error)
    return [*lines, f"{paint('hint:', 'cyan')} {hint}"] if hint else lines


def error_json(error: ArgosyError) -> str:
    """One line for programs: what the API answers for such an error."""
    return json.dumps(error.fields(), ensure_ascii=False)


def usage_json(error: click.ClickException) -> str:
    """A wrong command line, in the same shape."""
    return error_json(InputError(error.format_message(), code="cli/usage", hint=_usage_hint(error)))


def _usage_hint(error: click.ClickException) -> str:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"`{error.ctx.command_path} --help` shows its usage"
    return ""

"""The docs say what is so: commands and their options exist, links resolve, files validate."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from argosy.cli.main import cli
from argosy.spec import parse

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
)
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SPAN: Final = re.compile(r"`([^`]+)`")
LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FILES: Final = sorted([*ROOT.glob("examples/*.yaml"), *ROOT.glob("examples/*/group.yaml")])
TARGETS: Final = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every command line on the page: in blocks, indented lines and spans."""
    text = page.read_text(encoding="utf-8")
    lines = [line for _, body in FENCE.findall(text) for line in body.splitlines()]
    lines += [line for line in text.splitlines() if line.startswith("    ")]
    lines += [" ".join(span.split()) for span in SPAN.findall(FENCE.sub("", text))]
    for line in lines:
        if re.match(r"\s*(argosy|make) [a-z-]", line):
            yield shlex.split(line, comments=True)


def problem(words: list[str]) -> str:
    """What is wrong with a command line; "" when nothing is."""
    program, *rest = words
    if program == "make":
        wrong = [word for word in rest if "=" not in word and word not in TARGETS]
        return f"the Makefile has no {', '.join(wrong)}" if wrong else ""
    command: click.Command = cli
    context = click.Context(cli)
    while rest and isinstance(command, click.Group):
        found = command.get_command(context, rest.pop(0))
        if found is None:
            return "no such command"
        command, context = found, click.Context(found, parent=context)
    known = {option for param in command.params for option in param.opts + param.secondary_opts}
    own = rest[: rest.index("--")] if "--" in rest else rest
    options = [word.partition("=")[0] for word in own if re.match(r"--?[a-z]", word)]
    wrong = [option for option in options if option not in known | {"-h", "--help"}]
    return f"{command.name} has no {', '.join(wrong)}" if wrong else ""


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_their_options_exist(page: Path) -> None:
    found = [(shlex.join(words), problem(words)) for words in commands(page)]
    assert [one for one in found if one[1]] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page: Path) -> None:
    links = [link.partition("#")[0] for link in LINK.findall(page.read_text(encoding="utf-8"))]
    local = [link for link in links if link and "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_in_the_docs_validate(page: Path) -> None:
    for language, body in FENCE.findall(page.read_text(encoding="utf-8")):
        # A part of a file has no task that runs something.
        if language == "yaml" and re.search(r"^run:", body, re.MULTILINE):
            parse(body, file=name(page), base=str(page.parent))


@pytest.mark.parametrize("file", FILES, ids=name)
def test_examples_validate(file: Path) -> None:
    parse(file.read_bytes(), file=name(file), base=str(file.parent))


def test_the_check_finds_what_is_wrong() -> None:
    assert problem(["argosy", "launch", "x.yaml", "--infra", "local", "-d"]) == ""
    assert problem(["argosy", "exec", "g/t/0", "--", "ls", "--all"]) == ""
    assert problem(["argosy", "server", "fly"]) == "no such command"
    assert problem(["argosy", "launch", "x.yaml", "--sideways"]) == "launch has no --sideways"
    assert problem(["make", "demo"]) == ""
    assert problem(["make", "tea"]) == "the Makefile has no tea"


def test_every_command_is_in_the_docs_or_explains_itself() -> None:
    context = click.Context(cli)
    for title in cli.list_commands(context):
        command = cli.get_command(context, title)
        assert command is not None
        assert command.help, title

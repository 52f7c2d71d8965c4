"""Which files of a folder stay behind: `.skyignore` if there is one, else `.gitignore`.

A `.skyignore` at the top replaces all other rules, as users of SkyPilot expect. Without it each
folder's `.gitignore` counts for what is below it, deeper files win, `.git/info/exclude` counts for
all (as git has it), and the `.git` folder itself stays behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from argosy.errors import InputError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

SKYIGNORE = ".skyignore"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that travels: `path` is relative to the top, `found` what the scan said of it."""

    path: str
    found: os.DirEntry[str]


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules of one ignore file, for what is below `prefix` ("" or "folder/")."""

    prefix: str
    spec: GitIgnoreSpec


def kept(top: str) -> Iterator[Entry]:
    """Everything below `top` that travels: folders before what is in them, sorted by name.

    Raises OSError where a folder cannot be read.
    """
    skyignore = os.path.join(top, SKYIGNORE)
    if os.path.isfile(skyignore):
        rules = [_Rules("", _read(skyignore))]
        yield from _walk(top, "", rules, git=False)
        return
    exclude = os.path.join(top, ".git", "info", "exclude")
    rules = [_Rules("", _read(exclude))] if os.path.isfile(exclude) else []
    yield from _walk(top, "", rules, git=True)


def everything(top: str) -> Iterator[Entry]:
    """All that is below `top`, in the same order."""
    yield from _walk(top, "", [], git=False)


def _walk(top: str, prefix: str, rules: list[_Rules], *, git: bool) -> Iterator[Entry]:
    own = os.path.join(top, prefix, ".gitignore")
    if git and os.path.isfile(own):
        rules = [*rules, _Rules(prefix, _read(own))]
    with os.scandir(os.path.join(top, prefix)) as scan:
        found = sorted(scan, key=lambda entry: entry.name)
    for entry in found:
        path = prefix + entry.name
        folder = entry.is_dir(follow_symlinks=False)
        if (git and entry.name == ".git") or _ignored(path + "/" * folder, rules):
            continue
        yield Entry(path, entry)
        if folder:
            yield from _walk(top, path + "/", rules, git=git)


def _ignored(path: str, rules: list[_Rules]) -> bool:
    """The innermost file with an opinion decides."""
    for one in reversed(rules):
        opinion = one.spec.check_file(path[len(one.prefix) :]).include
        if opinion is not None:
            return opinion
    return False


def _read(path: str) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # imported only where there are rules

    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        lines = [line.rstrip("\r\n") for line in file]
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise InputError(
            f"{path} has a pattern that is none: {error}",
            code="files/bad-ignore",
            hint="correct the pattern; the rules are those of .gitignore",
        ) from error

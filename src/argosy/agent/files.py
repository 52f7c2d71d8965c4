"""Puts the code and the files of a task in place on the host: a copy of `workdir`, and its file
mounts.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import Any, Dict, List, Optional, Pattern, Tuple

IGNORE_FILES = (".skyignore", ".gitignore")
Rule = Tuple[Pattern[str], bool, bool]
"""(what it matches, keeps instead of ignores, folders only)"""


class FilesError(Exception):
    """Something could not be put in place; says what and what to do."""


def put(work: str, workdir: str, mounts: List[Dict[str, Any]], home: str) -> None:
    """Make the folder `work` with a copy of `workdir` ("": empty), then the mounts. May be
    repeated.

    A mount's relative destination lies in `work`, `~/x` in the home, an absolute one where it says.
    Raises FilesError.
    """
    try:
        if not os.path.isdir(work):
            part = work + ".part"
            shutil.rmtree(part, ignore_errors=True)
            os.makedirs(part, mode=0o755)
            if workdir:
                copy_folder(workdir, part)
            os.rename(part, work)
        for mount in mounts:
            _mount(mount["source"], destination(mount["destination"], work, home))
    except OSError as error:
        raise FilesError("%s: %s" % (error.filename or work, error.strerror or error)) from error


def destination(path: str, work: str, home: str) -> str:
    """Where a mount's destination lies on this host."""
    if path == "~" or path.startswith("~/"):
        return os.path.join(home, path[2:])
    return os.path.join(work, path)


def _mount(source: str, target: str) -> None:
    if source.startswith(("http://", "https://")):
        _download(source, target)
    elif os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
        copy_folder(source, target)
    elif os.path.exists(source):
        if target.endswith("/") or os.path.isdir(target):
            target = os.path.join(target, os.path.basename(source))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(source, target + ".part")
        os.rename(target + ".part", target)
    else:
        raise FilesError("%s: not there on this host" % source)


def _download(source: str, target: str) -> None:
    import urllib.error  # only in the child that copies: it costs megabytes
    import urllib.request

    if target.endswith("/"):
        target += os.path.basename(source.split("?")[0]) or "download"
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        with urllib.request.urlopen(source, timeout=60) as answer:
            with open(target + ".part", "wb") as file:
                shutil.copyfileobj(answer, file)
    except urllib.error.URLError as error:  # its own words hold the address, which may be secret
        raise FilesError("%s: cannot be fetched: %s" % (target, error.reason)) from error
    os.rename(target + ".part", target)


def copy_folder(source: str, target: str) -> None:
    """Copy what is in a folder, without what its ignore file names. Links stay links. Raises
    OSError.
    """
    if not os.path.isdir(source):
        raise FilesError("%s: no such folder on this host" % source)
    rules = rules_of(source)

    def ignored(folder: str, names: List[str]) -> List[str]:
        below = os.path.relpath(folder, source)
        prefix = "" if below == "." else below + "/"
        return [
            name for name in names
            if ignores(rules, prefix + name, os.path.isdir(os.path.join(folder, name)))
        ]  # fmt: skip

    shutil.copytree(source, target, symlinks=True, ignore=ignored, dirs_exist_ok=True)


def rules_of(folder: str) -> List[Rule]:
    """The rules of its `.skyignore`, else of its `.gitignore`; the git folder itself is never
    copied.
    """
    for name in IGNORE_FILES:
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                rules = [_rule(line.rstrip("\r\n")) for line in file]
        except OSError:
            continue
        found = [rule for rule in rules if rule is not None]
        return found + ([(re.compile(r"\.git"), False, True)] if name == ".gitignore" else [])
    return []


def _rule(line: str) -> Optional[Rule]:
    """One line of an ignore file, in the syntax of gitignore."""
    text = line.rstrip(" ")
    if not text or text.startswith("#"):
        return None
    keeps = text.startswith("!")
    text = text[1:] if keeps or text.startswith("\\") else text
    only_folders = text.endswith("/")
    text = text.rstrip("/")
    anchored = "/" in text
    pattern = _translate(text.lstrip("/"))
    return re.compile(pattern if anchored else "(?:.*/)?" + pattern), keeps, only_folders


def _translate(glob: str) -> str:
    """A gitignore glob as a regular expression: `*` and `?` stop at a slash, `**` does not."""
    out, place = "", 0
    while place < len(glob):
        rest = glob[place:]
        if rest.startswith("**/"):
            out, place = out + "(?:.*/)?", place + 3
        elif rest.startswith("**"):
            out, place = out + ".*", place + 2
        elif rest[0] == "*":
            out, place = out + "[^/]*", place + 1
        elif rest[0] == "?":
            out, place = out + "[^/]", place + 1
        elif rest[0] == "[" and "]" in rest[2:]:
            end = rest.index("]", 2)
            inner = rest[1:end].replace("\\", "\\\\")
            out += "[" + ("^" + inner[1:] if inner[0] in "!^" else inner) + "]"
            place += end + 1
        else:
            out, place = out + re.escape(rest[0]), place + 1
    return out


def ignores(rules: List[Rule], path: str, folder: bool) -> bool:
    """Whether the rules leave out a path (relative, with slashes); the last rule that matches
    decides.
    """
    for pattern, keeps, only_folders in reversed(rules):
        if (folder or not only_folders) and pattern.fullmatch(path):
            return not keeps
    return False

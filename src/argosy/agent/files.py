"""Puts the code and the files of a task in place on the host: a copy of `workdir`, and its file
mounts; and takes folders away.
"""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from typing import Any, Callable, Dict, List

from .child import Child
from .loop import Loop

TRASH = "trash"
"""The folder, in the agent's, of what is just being removed."""


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
    """Copy all that is in a folder: what is ignored, the snapshot has left out. Links stay links.
    Raises OSError.
    """
    if not os.path.isdir(source):
        raise FilesError("%s: no such folder on this host" % source)
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)


def discard(loop: Loop, home: str, paths: List[str], done: Callable[[], None]) -> None:
    """Take folders away at once, and remove what is in them beside the loop; then call `done`."""
    trash = os.path.join(home, TRASH)
    away = []
    for path in paths:
        place = os.path.join(trash, uuid.uuid4().hex)
        try:
            os.makedirs(trash, mode=0o700, exist_ok=True)
            os.rename(path, place)
            away.append(place)
        except FileNotFoundError:
            continue
        except OSError:  # another file system, or a full one: where it is
            away.append(path)
    _remove(loop, away, done)


def empty_trash(loop: Loop, home: str) -> None:
    """Remove what an earlier life of the agent has taken away and not removed."""
    trash = os.path.join(home, TRASH)
    left = os.listdir(trash) if os.path.isdir(trash) else []
    _remove(loop, [os.path.join(trash, name) for name in left], lambda: None)


def _remove(loop: Loop, paths: List[str], done: Callable[[], None]) -> None:
    def work() -> None:
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)

    if not paths:
        done()
        return
    try:
        Child(loop, work, lambda _, error: done())
    except OSError as error:  # the agent's next life does it
        sys.stderr.write("cannot remove %s: %s\n" % (paths[0], error))
        done()

"""Puts the code and the files of a task in place on the host: a copy of `workdir`, and its file
mounts; and takes folders away.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, Callable, Dict, List, Optional

from ..child import Child
from ..loop import Loop
from ..store import lay
from ..store.clone import CloneError, Repository
from ..store.manifest import tree_of
from ..store.trees import Broken, Store

TRASH = "trash"
"""The folder, in the agent's, of what is just being removed."""


class FilesError(Exception):
    """Something could not be put in place; says what and what to do."""


def put(
    work: str,
    workdir: str,
    mounts: List[Dict[str, Any]],
    home: str,
    store: Optional[Store] = None,
    repository: Optional[Repository] = None,
) -> List[str]:
    """Make the folder `work` with a copy of `workdir` ("": empty, or a clone of `repository`), then
    the mounts. May be repeated.

    A mount's relative destination lies in `work`, `~/x` in the home, an absolute one where it says.
    A snapshot that is not on this host comes out of `store`; the trees that turned out to be
    damaged there are the answer, else []. Raises FilesError.
    """
    try:
        if not workdir and repository is None:
            os.makedirs(work, mode=0o755, exist_ok=True)
        elif not os.path.isdir(work):
            part = work + ".part"
            lay.remove(part)
            os.makedirs(part, mode=0o755)
            if repository is None:
                _put_workdir(workdir, part, store)
            else:
                repository.into(part)
            os.rename(part, work)
        for mount in mounts:
            target = destination(mount["destination"], work, home)
            _mount(mount["source"], str(mount.get("name") or ""), target, store)
    except Broken as error:
        return [str(error)]
    except CloneError as error:
        raise FilesError(str(error)) from error
    except OSError as error:
        raise FilesError("%s: %s" % (error.filename or work, error.strerror or error)) from error
    return []


def absent(work: str, workdir: str, mounts: List[Dict[str, Any]], store: Store) -> Dict[str, str]:
    """The trees that have to come before `put`: of snapshots that neither this host nor the store
    has; with their paths.
    """
    paths = [] if os.path.isdir(work) else [workdir]
    paths += [str(mount["source"]) for mount in mounts]
    trees = {tree_of(path)[1]: path for path in paths if not os.path.exists(path)}
    return {tree: path for tree, path in trees.items() if tree and not store.has(tree)}


def _put_workdir(source: str, target: str, store: Optional[Store]) -> None:
    tree = _stored(source, store)
    if store is not None and tree:
        store.build(tree, target)
    elif os.path.isdir(source):
        lay.copy_all(os.fsencode(source), os.fsencode(target))
    else:
        raise FilesError("%s: no such folder on this host" % source)


def _stored(source: str, store: Optional[Store]) -> str:
    """The tree that stands for a path which is not on this host; "" when none does."""
    if store is None or os.path.exists(source):
        return ""
    tree = tree_of(source)[1]
    return tree if tree and store.has(tree) else ""


def destination(path: str, work: str, home: str) -> str:
    """Where a mount's destination lies on this host."""
    if path == "~" or path.startswith("~/"):
        return os.path.join(home, path[2:])
    return os.path.join(work, path)


def _mount(source: str, name: str, target: str, store: Optional[Store]) -> None:
    """A single file goes into a folder that is there under its `name` ("": as its source says)."""
    if source.startswith(("http://", "https://")):
        _download(source, target)
        return
    tree = _stored(source, store)
    if not tree and not os.path.exists(source):
        raise FilesError("%s: not there on this host" % source)
    single = store.single(tree) if store is not None and tree else not os.path.isdir(source)
    if single and (target.endswith("/") or os.path.isdir(target)):
        target = os.path.join(target, name or os.path.basename(source))
    os.makedirs(os.path.dirname(target) if single else target, exist_ok=True)
    if store is not None and tree:
        store.build(tree, target)
    elif single:
        lay.copy(os.fsencode(source), os.fsencode(target))
    else:
        lay.copy_all(os.fsencode(source), os.fsencode(target))


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


def discard(loop: Loop, home: str, paths: List[str], done: Callable[[], None]) -> None:
    """Take folders away at once, and remove what is in them beside the loop; then call `done`."""
    trash = os.path.join(home, TRASH)
    away = []
    for path in paths:
        place = os.path.join(trash, os.urandom(16).hex())
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
            lay.remove(path)

    if not paths:
        done()
        return
    try:
        Child(loop, work, lambda _, error: done())
    except OSError as error:  # the agent's next life does it
        sys.stderr.write("cannot remove %s: %s\n" % (paths[0], error))
        done()

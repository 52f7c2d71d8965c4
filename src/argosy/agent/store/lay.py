"""Puts single files, links and folders in place over what is there; all may be repeated.

A file or a link takes the place of one that is there by rename, so a read-only one is no obstacle,
and whoever reads the old one goes on reading it. A folder that cannot be written is opened while
its contents change, and gets its mode last.
"""

from __future__ import annotations

import os
import shutil
import stat
from typing import List, Tuple


def fresh(path: bytes) -> bytes:
    """Where a file is made before it takes that place; a name that is long leaves no room for
    more.
    """
    return os.path.join(os.path.dirname(path), b".argosy-new-%d" % os.getpid())


def folder(path: bytes) -> None:
    """A folder that its owner can write in. Raises OSError."""
    try:
        os.mkdir(path, 0o700)
        return
    except FileExistsError:
        found = os.stat(path)
        if not stat.S_ISDIR(found.st_mode):
            raise
    except FileNotFoundError:
        os.makedirs(path, exist_ok=True)
        return
    if found.st_uid == os.geteuid() and found.st_mode & 0o700 != 0o700:
        os.chmod(path, stat.S_IMODE(found.st_mode) | 0o700)


def link(target: bytes, path: bytes) -> None:
    """A symbolic link. Raises OSError where a folder stands in its place."""
    try:
        os.symlink(target, path)
    except FileExistsError:
        made = fresh(path)
        clear(made)
        os.symlink(target, made)
        os.rename(made, path)


def copy(source: bytes, path: bytes) -> None:
    """A file with its mode and times. Raises OSError."""
    made = fresh(path)
    clear(made)
    shutil.copy2(source, made, follow_symlinks=False)
    os.rename(made, path)


def close(folders: List[Tuple[bytes, int]]) -> None:
    """Give folders their modes, the innermost first."""
    for path, mode in reversed(folders):
        os.chmod(path, mode)


def copy_all(source: bytes, target: bytes) -> None:
    """All that is in a folder into another one; links stay links. Raises OSError."""
    folders: List[Tuple[bytes, int]] = []
    _copy_all(source, target, folders)
    close(folders)


def _copy_all(source: bytes, target: bytes, folders: List[Tuple[bytes, int]]) -> None:
    folder(target)
    with os.scandir(source) as scan:
        for entry in scan:
            goal = os.path.join(target, entry.name)
            if entry.is_symlink():
                link(os.readlink(entry.path), goal)
            elif entry.is_dir():
                folders.append((goal, stat.S_IMODE(entry.stat().st_mode)))
                _copy_all(entry.path, goal, folders)
            else:
                copy(entry.path, goal)


def remove(path: str) -> None:
    """Remove what can be removed: a folder with folders in it that cannot be written, a file."""
    if os.path.islink(path) or not os.path.isdir(path):
        try:
            os.unlink(path)
        except OSError:
            pass
        return
    try:
        _open_up(path)
    except OSError:  # another user's: what is ours goes
        pass
    shutil.rmtree(path, ignore_errors=True)


def _open_up(path: str) -> None:
    """Let the owner write in every folder of a tree. Raises OSError."""
    os.chmod(path, 0o700)
    for top, names, _ in os.walk(path):
        for name in names:
            place = os.path.join(top, name)
            if not os.path.islink(place) and os.stat(place).st_mode & 0o700 != 0o700:
                os.chmod(place, 0o700)


def clear(path: bytes) -> None:
    """Remove a file, perhaps one that a crash has left; silent when it is not there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass

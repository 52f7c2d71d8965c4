"""Snapshots: the code and files of a group as they were at its launch.

    $ARGOSY_HOME/snapshots/GROUP/HASH            a folder, or a single file
    $ARGOSY_HOME/snapshots/GROUP/HASH.manifest   what is in it (manifest.py), packed

HASH is that of the manifest, so of names, modes, links and contents: equal trees of a group are one
folder; and what another group has of the same hash is shared by hard links. A snapshot is only
read: agents copy from it, and to other machines it is sent. Removing a group's snapshots is
removing its folder.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from argosy.errors import AccessError, InfraError, InputError
from argosy.model.ids import GroupId
from argosy.model.spec import GroupSpec
from argosy.storage import manifest
from argosy.storage.ignored import Entry, everything, kept
from argosy.storage.manifest import Kind, Line

FILES_MAX = 200_000  # of one tree
MANIFEST = ".manifest"


def sources(spec: GroupSpec) -> tuple[str, ...]:
    """The local paths that a group names: work folders and file mounts, each once."""
    found: dict[str, None] = {}
    for task in spec.tasks:
        if task.workdir is not None and task.workdir.path:
            found[task.workdir.path] = None
        for mount in task.file_mounts:
            if mount.source.startswith("/"):
                found[mount.source] = None
    return tuple(found)


def take(home: Path, group: GroupId, paths: Iterable[str]) -> dict[str, str]:
    """A snapshot of each path: path -> where it is now. May be repeated.

    Raises InputError for a path that is missing, AccessError for one that cannot be read, and
    InfraError when the disk is full. Blocking: a caller in a loop uses a thread.
    """
    folder = home / "snapshots" / group
    taken: dict[str, str] = {}
    for path in paths:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            taken[path] = str(_one(path, folder))
        except OSError as error:
            _translate(path, error)
    return taken


def drop(home: Path, group: GroupId) -> None:
    """Remove a group's snapshots; silent when there are none."""
    _remove(home / "snapshots" / group)


def drop_unknown(home: Path, known: Callable[[GroupId], bool]) -> None:
    """Remove what a launch left that was cut off before its group was kept."""
    folder = home / "snapshots"
    for path in sorted(folder.iterdir()) if folder.exists() else ():
        if not known(GroupId(path.name)):
            _remove(path)


def _translate(path: str, error: OSError) -> NoReturn:
    about = error.filename or path
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        missing = os.path.lexists(path)
        text = f"{about} went away while it was copied" if missing else f"{path} does not exist"
        raise InputError(
            text,
            code="files/missing",
            hint="correct `workdir` or `file_mounts`: a relative path starts at the folder where "
            "`argosy launch` was called",
        ) from error
    if error.errno in (errno.EACCES, errno.EPERM):
        raise AccessError(
            f"{about} cannot be read: {error.strerror}",
            code="files/unreadable",
            hint=f"`chmod -R u+rX {about}`, or list it in `.skyignore`",
        ) from error
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise InfraError(
            f"no room for a copy of {path}: {error.strerror}",
            code="files/disk-full",
            hint="free some space, or list what is not needed in `.skyignore`",
        ) from error
    raise InfraError(
        f"{about} cannot be copied: {error.strerror or error}", code="files/copy-failed"
    ) from error


@dataclass(frozen=True, slots=True)
class _Tree:
    """What is to be copied. `entries` is None for a single file."""

    source: str
    lines: tuple[Line, ...]
    entries: tuple[Entry, ...] | None

    @property
    def body(self) -> bytes:
        """Its manifest."""
        return manifest.composed(self.lines)


def _one(path: str, folder: Path) -> Path:
    tree = _look(os.path.realpath(path), kept)
    body = tree.body
    digest = manifest.hash_of(body)
    target = folder / digest
    if target.exists():
        return target
    other = _elsewhere(folder, digest)
    fresh = folder / f".{digest}.new"
    _remove(fresh)
    if other is None or not _linked(other, fresh):
        _remove(fresh)
        _copy(tree, fresh)
        if _moved(tree, fresh):  # somebody wrote in the source meanwhile: what counts is the copy
            body = _look(str(fresh), everything).body
            digest = manifest.hash_of(body)
            target = folder / digest
    if target.exists():
        _remove(fresh)
        return target
    _keep(folder / (digest + MANIFEST), body)
    os.rename(fresh, target)
    return target


def _keep(path: Path, body: bytes) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(manifest.packed(body))
    os.rename(fresh, path)


def _look(source: str, entries_of: Callable[[str], Iterable[Entry]]) -> _Tree:
    """Hash the source. Sockets, devices and pipes do not travel."""
    mode = os.stat(source).st_mode
    if stat.S_ISREG(mode):
        return _Tree(source, (_file_line(source, ""),), None)
    if not stat.S_ISDIR(mode):
        raise InputError(
            f"{source} is neither a file nor a folder",
            code="files/no-file",
            hint="name a file or a folder: sockets, devices and pipes do not travel",
        )
    lines: list[Line] = []
    entries = []
    for entry in entries_of(source):
        mode = entry.found.stat(follow_symlinks=False).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            continue
        entries.append(entry)
        if len(entries) > FILES_MAX:
            raise InputError(
                f"{source} has more than {FILES_MAX} files",
                code="files/too-many",
                hint="list what is not needed in `.skyignore`, or mount it as a volume",
            )
        if stat.S_ISLNK(mode):
            lines.append(Line(Kind.LINK, entry.path, target=os.readlink(entry.found.path)))
        elif stat.S_ISDIR(mode):
            lines.append(Line(Kind.FOLDER, entry.path, stat.S_IMODE(mode)))
        else:
            lines.append(_file_line(entry.found.path, entry.path))
    return _Tree(source, tuple(lines), tuple(entries))


def _file_line(path: str, name: str) -> Line:
    mode, changed_at, size, digest = manifest.read(path)
    return Line(Kind.FILE, name, mode, size, digest, changed_at=changed_at)


def _moved(tree: _Tree, copy: Path) -> bool:
    """Whether the copy is not what was hashed."""
    for line in tree.lines:
        if line.kind is Kind.FILE:
            found = os.stat(copy / line.path if line.path else copy)
            if (found.st_size, found.st_mtime_ns) != (line.size, line.changed_at):
                return True
    return False


def _copy(tree: _Tree, target: Path) -> None:
    if tree.entries is None:
        _copy_file(tree.source, str(target))
        return
    target.mkdir(mode=0o700)
    folders: list[tuple[str, int]] = []
    for entry in tree.entries:
        goal = os.path.join(target, entry.path)
        if entry.found.is_symlink():
            os.symlink(os.readlink(entry.found.path), goal)
        elif entry.found.is_dir(follow_symlinks=False):
            os.mkdir(goal, 0o700)
            mode = entry.found.stat(follow_symlinks=False).st_mode
            folders.append((goal, stat.S_IMODE(mode)))
        else:
            _copy_file(entry.found.path, goal)
    for goal, mode in reversed(folders):  # last: a folder may be read-only
        os.chmod(goal, mode)


def _copy_file(source: str, goal: str) -> None:
    shutil.copyfile(source, goal, follow_symlinks=False)
    shutil.copystat(source, goal, follow_symlinks=False)


def _elsewhere(folder: Path, digest: str) -> Path | None:
    """The same tree in the snapshots of another group."""
    for other in folder.parent.iterdir():
        found = other / digest
        if other != folder and found.exists():
            return found
    return None


def _linked(other: Path, fresh: Path) -> bool:
    """Share the other's files by hard links; False when that does not work here."""
    try:
        if other.is_file():
            os.link(other, fresh)
        else:
            shutil.copytree(other, fresh, symlinks=True, copy_function=os.link)
    except (OSError, shutil.Error):  # it is being dropped just now, too many links, no hard links
        return False
    return True


def _remove(path: Path) -> None:
    """Remove whatever it is, read-only folders too; silent when there is nothing."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for folder, _, _ in os.walk(path):  # what was copied can be listed, not always written
        os.chmod(folder, 0o700)
    shutil.rmtree(path)

"""Volumes on this host: their folders made or found, checked, and put where programs see them.

Where programs have mounts of their own, each is bound there as they enter (net/linux/mounts.py);
else a link stands for a volume that may be written, in the working directory or the home. What is
made on the way (mount points, links, folders of the group's own volumes) is written down beside the
group, and goes with it.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import Any, Dict, List, Sequence, Tuple

from ..naming import safe_name
from ..net.linux import mounts
from ..records import dataclass
from ..store import lay
from .files import destination

MADE = "made.json"
"""In the group's folder: what was made outside of it."""
EXCHANGE = ".argosy-"
"""Begins, in a volume that all tasks mount, the name of the folder of what a group shares."""


class VolumeError(Exception):
    """A volume cannot be put in place; says which, why, and what to do."""


@dataclass(frozen=True)
class Scene:
    """Where a node's volumes go."""

    shared: str
    """The machine's folder of this server."""
    group: str
    """The group's folder in it."""
    home: str
    """The agent's."""
    user_home: str
    work: str
    mounts: bool
    """Whether programs have mounts of their own."""
    mark: str
    """The group's id."""


def put(volumes: Sequence[Dict[str, Any]], scene: Scene) -> Dict[str, Any]:
    """Check and make everything. {"binds": [[source, target, read only]], "exchange": the folder
    that all tasks of the group share, as programs see it, or ""}. May be repeated. Raises
    VolumeError.
    """
    binds: List[Tuple[str, str, bool]] = []
    exchange = ""
    placed = [(_target(volume, scene), volume) for volume in volumes]
    for target, volume in sorted(placed, key=lambda one: one[0]):  # outer ones first
        try:
            there = volume["place"] == "there"
            source = str(volume["path"]) if there else _source(volume, scene)
            if there and source != target:  # it was mounted before, read-only or not
                _link(dict(volume, read_only=False), source, target, scene)
            elif not there:
                _check_target(volume, target, scene)
                if scene.mounts:
                    if not any(_within(target, above) for _, above, _ in binds):
                        _make_point(volume, target, scene)
                    binds.append((source, target, bool(volume["read_only"])))
                else:
                    _link(volume, source, target, scene)
            if volume["shares"]:
                exchange = os.path.join(target, EXCHANGE + safe_name(scene.mark))
                _make_exchange(source, scene)
        except OSError as error:
            text = "%s: %s" % (error.filename or target, error.strerror or error)
            raise VolumeError(_about(volume, text)) from error
    return {"binds": binds, "exchange": exchange}


def _target(volume: Dict[str, Any], scene: Scene) -> str:
    path = destination(volume["destination"], scene.work, scene.user_home)
    return os.path.normpath(path)


def _about(volume: Dict[str, Any], text: str) -> str:
    return "the volume at %s: %s" % (volume["destination"], text)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


# Where the bytes are


def folder_of(volume: Dict[str, Any], shared: str, group: str) -> str:
    """The folder that a volume is."""
    path = str(volume["path"])
    if volume["place"] == "group":
        return os.path.join(group, "volumes", safe_name(path))
    if volume["place"] == "shared":
        return os.path.join(shared, "volumes", safe_name(path))
    return path


def _source(volume: Dict[str, Any], scene: Scene) -> str:
    """The folder that is mounted, made if it is ours to make. Raises OSError, VolumeError."""
    root = folder_of(volume, scene.shared, scene.group)
    if volume["make"]:
        os.makedirs(root, exist_ok=True)
    elif not os.path.isdir(root):
        what = "is no folder" if os.path.lexists(root) else "is not there"
        raise VolumeError(
            _about(volume, "%s %s on this host: make it there, or mount it" % (root, what))
        )
    if volume["mount"] and mounts.mounted_at(root) == "/":
        raise VolumeError(
            _about(volume, "nothing is mounted at %s on this host: mount the share there" % root)
        )
    source = os.path.join(root, volume["sub_path"]) if volume["sub_path"] else root
    if not os.path.isdir(source):
        if volume["read_only"]:
            raise VolumeError(
                _about(volume, "it has no folder %s, and is read-only" % volume["sub_path"])
            )
        os.makedirs(source)
    if not _within(os.path.realpath(source), os.path.realpath(root)):
        raise VolumeError(_about(volume, "%s leads out of it" % volume["sub_path"]))
    needed = os.R_OK | os.X_OK | (0 if volume["read_only"] else os.W_OK)
    if not os.access(source, needed):
        how = "read" if volume["read_only"] else "write in"
        raise VolumeError(
            _about(volume, "this user may not %s %s: change its rights%s" % (
                how, source, "" if volume["read_only"] else ", or mount it `read_only: true`"))
        )  # fmt: skip
    return source


# Where programs see them


def _check_target(volume: Dict[str, Any], target: str, scene: Scene) -> None:
    for hidden in (scene.work, scene.home, scene.shared):
        if _within(hidden, target):
            raise VolumeError(
                _about(volume, "it would hide %s, which the agent needs: choose another path"
                       % hidden)
            )  # fmt: skip
    if os.path.lexists(target) and not os.path.isdir(target):
        raise VolumeError(_about(volume, "%s is there, and is no folder" % target))


def _make_point(volume: Dict[str, Any], target: str, scene: Scene) -> None:
    """Make the folder that a volume is bound over; the new ones are written down first."""
    missing = []
    path = target
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    if not missing:
        return
    if not _within(target, scene.work):  # that goes as a whole
        _write_down(scene.group, "points", missing)
    try:
        os.makedirs(target, exist_ok=True)
    except PermissionError as error:
        raise VolumeError(
            _about(volume, "%s cannot be made on this host: a path in the working directory or "
                   "below ~ can, or have the host's owner make that folder once" % error.filename)
        ) from error  # fmt: skip


def _link(volume: Dict[str, Any], source: str, target: str, scene: Scene) -> None:
    """A link in place of a mount. Raises OSError, VolumeError."""
    if volume["read_only"]:
        raise VolumeError(
            _about(volume, "programs have no mounts of their own on this host, so it cannot be "
                   "read-only: `argosy infra check` says why")
        )  # fmt: skip
    if not _within(target, scene.work) and not _within(target, scene.user_home):
        raise VolumeError(
            _about(volume, "programs have no mounts of their own on this host: choose a path in "
                   "the working directory or below ~")
        )  # fmt: skip
    if os.path.islink(target):
        if os.path.realpath(target) == os.path.realpath(source):
            return
        raise VolumeError(_about(volume, "%s is there: a link to something else" % target))
    if os.path.isdir(target):
        try:
            os.rmdir(target)
        except OSError as error:
            raise VolumeError(
                _about(volume, "%s is there and is not empty, and programs have no mounts of their "
                       "own on this host" % target)
            ) from error  # fmt: skip
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if not _within(target, scene.work):
        _write_down(scene.group, "links", [[target, source]])
    os.symlink(source, target)


# What all tasks share


def _make_exchange(source: str, scene: Scene) -> None:
    """The group's own folders in a volume, with the rights that the volume has."""
    mode = os.stat(source).st_mode & 0o1777
    exchange = os.path.join(source, EXCHANGE + safe_name(scene.mark))
    _write_down(scene.group, "exchange", [exchange])
    for path in (exchange, os.path.join(exchange, "shared"), os.path.join(exchange, "checkpoints")):
        try:
            os.mkdir(path)
            os.chmod(path, mode)
        except FileExistsError:
            pass


# What was made


def _write_down(group: str, kind: str, what: List[Any]) -> None:
    """Add to what was made for the group."""
    os.makedirs(group, mode=0o700, exist_ok=True)
    fd = os.open(os.path.join(group, MADE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with open(fd, "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        known = _known(file.read())
        new = [one for one in what if one not in known.setdefault(kind, [])]
        if new:
            known[kind] += new
            body = json.dumps(known).encode("ascii")
            os.posix_fallocate(fd, 0, len(body))  # a full disk says so before anything is changed
            file.seek(0)
            file.write(body)
            file.truncate()


def _known(body: bytes) -> Dict[str, List[Any]]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _made(group: str) -> Dict[str, List[Any]]:
    try:
        with open(os.path.join(group, MADE), "rb") as file:
            return _known(file.read())
    except OSError:
        return {}


def leave(group: str) -> None:
    """Remove what goes with a group: its own volumes, and what stood for volumes. Raises OSError
    for volumes that cannot be removed.
    """
    made = _made(group)
    for target, source in made.get("links", []):
        if os.path.islink(target) and os.readlink(target) == source:
            os.unlink(target)
    for path in sorted(made.get("points", []), key=len, reverse=True):
        mounts.remove_point(path)
    lay.remove(os.path.join(group, "volumes"))


def forgotten(shared: str, group: str) -> List[str]:
    """What goes when a group is forgotten: its folders in volumes, and its own."""
    folder = os.path.join(shared, "groups", safe_name(group))
    return [*map(str, _made(folder).get("exchange", [])), folder]


def translated(path: str, binds: Sequence[Sequence[Any]]) -> Tuple[str, bool]:
    """A path as programs see it -> the same as the agent sees it, and whether it is read-only."""
    for source, target, read_only in reversed(binds):  # inner ones come later
        if _within(path, target):
            return os.path.join(source, os.path.relpath(path, target)), bool(read_only)
    return path, False


GONE = ".gone"
"""Ends the name of a volume's folder that is just being removed."""


def remove(shared: str, volume: str) -> None:
    """Remove the bytes of a volume of this server. Raises OSError when some are left."""
    path = os.path.join(shared, "volumes", safe_name(volume))
    gone = path + GONE
    lay.remove(gone)
    if os.path.isdir(path):
        os.rename(path, gone)
        lay.remove(gone)
    if os.path.lexists(gone):
        raise OSError(1, "something in it cannot be removed", gone)


def names(shared: str) -> List[str]:
    """The ids of the volumes of this server whose bytes are here."""
    folder = os.path.join(shared, "volumes")
    found = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(name for name in found if not name.endswith(GONE))

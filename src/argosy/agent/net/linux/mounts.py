"""Mounts of volumes in a program's own mount namespace, and what is mounted where.

Loaded only where there are volumes. A mount point is made and bound under a lock on its folder, and
removed under the same: whoever removes a folder that is a mount point elsewhere takes the mount
away there, too.
"""

from __future__ import annotations

import errno
import fcntl
import os

from . import kernel

TYPE_CHECKING = False  # as `typing` has it, which is not loaded here (launch.py)
if TYPE_CHECKING:
    from typing import List, Sequence, Set

TRIES = 20
"""How often a mount point that others remove just now is made again."""


def bind_all(volumes: Sequence[Sequence[object]]) -> None:
    """Bind each [source, target, read only] in turn. Raises OSError with the target that failed."""
    for volume in volumes:
        source, target, read_only = str(volume[0]), str(volume[1]), bool(volume[2])
        fd = _locked(target)
        try:
            kernel.mount(source, target, None, kernel.MS_BIND | kernel.MS_REC)
            if read_only:
                _seal(target)
        finally:
            os.close(fd)


def _locked(target: str) -> int:
    """A descriptor of the folder `target`, which is made if need be, that holds its lock."""
    for _ in range(TRIES):
        os.makedirs(target, exist_ok=True)
        try:
            fd = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
        except OSError:
            return fd  # a file system without locks: nobody removes anything there either
        if _is_at(fd, target):
            return fd
        os.close(fd)
    raise OSError(errno.ENOENT, "it is removed again and again", target)


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _seal(target: str) -> None:
    """Make a mount and all below it read-only: what is mounted inside the volume came along."""
    whole = os.path.realpath(target)
    for path in points("self"):
        if path == whole or path.startswith(whole + "/"):
            kept = os.statvfs(path).f_flag & kernel.MS_LOCKABLE
            flags = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kept
            kernel.mount(None, path, None, flags)


def points(pid: str) -> List[str]:
    """Where something is mounted for a process, in the order of its table. Raises OSError."""
    with open("/proc/%s/mountinfo" % pid, "rb") as file:
        words = [line.split(b" ", 5)[4] for line in file]
    return [os.fsdecode(_unescaped(word)) for word in words]


def _unescaped(word: bytes) -> bytes:
    """As the kernel writes a path: blanks, tabs, newlines and backslashes are octal."""
    for code, plain in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        word = word.replace(code, plain)
    return word


def mounted_at(path: str) -> str:
    """The mount that a path of this process is on: its mount point. Raises OSError."""
    real = os.path.realpath(path)
    found = [one for one in points("self") if real == one or real.startswith(one.rstrip("/") + "/")]
    return max(found, key=len, default="/")


def remove_point(path: str) -> bool:
    """Remove a mount point that was made, unless it holds something, or somebody has a mount there;
    whether it is gone.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return not os.path.lexists(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.path.realpath(path) in _everywhere():
            return False
        os.rmdir(path)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _everywhere() -> Set[str]:
    """The mount points of every process that one may look at, each mount namespace once."""
    seen: Set[str] = set()
    found: Set[str] = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            space = os.readlink("/proc/%s/ns/mnt" % name)
            if space not in seen:
                seen.add(space)
                found.update(points(name))
        except OSError:
            continue  # it has ended, or is somebody else's
    return found

"""The store on the disk: contents by their hash, trees by the hash of their manifest.

    STORE/blobs/ab/HASH     the content of a file; one that is empty is not kept
    STORE/trees/TREE/       `manifest` and `times`; all of its contents are in `blobs`
    STORE/trees/TREE.part/  one that is being received: what has come of a file lies in it, too

All agents that have this folder use it, under its flock: shared while contents are received or
used, exclusive while they are removed. What is used is checked: a machine that went down may have
left a file that is not what its name says.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import time
from typing import Dict, Iterator, List, Set, Union

from . import lay
from .manifest import BYTES_MAX, Entry, ManifestError, blobs, parsed, times

CHUNK = 1 << 20
PART = ".part"
KEEP_S = 7 * 86400.0
"""What nobody needed for so long is removed."""
YOUNG_S = 3600.0
"""What was needed in the last hour stays, however large the store is."""
STORE_MAX_BYTES = 20 << 30


class Broken(Exception):
    """A tree is not as it should be, and was put aside: it has to be received again."""


class Store:
    """One store; nothing is made before something is received."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def tree(self, name: str) -> str:
        """The folder of a tree that is complete."""
        return os.path.join(self.folder, "trees", name)

    def part(self, name: str) -> str:
        """The folder of a tree that is being received."""
        return self.tree(name) + PART

    def blob(self, digest: str) -> str:
        """The file of a content."""
        return os.path.join(self.folder, "blobs", digest[:2], digest)

    def has(self, name: str) -> bool:
        """Whether that tree is complete."""
        return os.path.isdir(self.tree(name))

    @contextlib.contextmanager
    def held(self, exclusive: bool = False) -> Iterator[bool]:
        """Keep others from removing anything; `exclusive`: from using it, False when they do."""
        for name in ("", "trees", "blobs"):
            os.makedirs(os.path.join(self.folder, name), mode=0o700, exist_ok=True)
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
            yield True
        except BlockingIOError:
            yield False
        finally:
            os.close(fd)

    def entries(self, folder: str, name: str) -> List[Entry]:
        """What the manifest in a folder says. Raises ManifestError, FileNotFoundError."""
        with open(os.path.join(folder, "manifest"), "rb") as file:
            return parsed(file.read(BYTES_MAX), name)

    # -- using ----------------------------------------------------------------------------------

    def single(self, name: str) -> bool:
        """Whether a tree is one file. Raises Broken."""
        try:
            entries = self.entries(self.tree(name), name)
        except (ManifestError, FileNotFoundError) as error:
            self._put_aside(name)
            raise Broken(name) from error
        return len(entries) == 1 and not entries[0].path

    def build(self, name: str, target: str) -> None:
        """Put a tree at a path; what is there already and is not in the tree stays. Raises Broken
        when the tree is not what it should be, OSError.
        """
        with self.held():
            try:
                folder = self.tree(name)
                entries = self.entries(folder, name)
                with open(os.path.join(folder, "times"), "rb") as file:
                    stamps = times(file.read(), entries)
                os.utime(folder)
            except (ManifestError, FileNotFoundError) as error:
                self._put_aside(name)
                raise Broken(name) from error
            self._lay(name, entries, stamps, os.fsencode(target))

    def _lay(self, name: str, entries: List[Entry], stamps: List[int], target: bytes) -> None:
        files = iter(stamps)
        folders = []
        if not (len(entries) == 1 and not entries[0].path):
            lay.folder(target)
        for entry in entries:
            goal = os.path.join(target, entry.path) if entry.path else target
            if entry.kind == "d":
                lay.folder(goal)
                folders.append((goal, entry.mode))
            elif entry.kind == "l":
                lay.link(entry.target, goal)
            else:
                made = lay.fresh(goal)
                self._copy(name, entry, made)
                os.chmod(made, entry.mode)
                stamp = next(files, None)
                if stamp is not None:
                    os.utime(made, ns=(stamp, stamp))
                os.rename(made, goal)
        lay.close(folders)

    def _copy(self, name: str, entry: Entry, goal: bytes) -> None:
        """A content into a new file, checked on the way."""
        import hashlib  # here only: it loads all of OpenSSL

        digest, left = hashlib.blake2b(digest_size=16), entry.size
        lay.clear(goal)
        into = os.open(goal, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if not entry.size:
                return
            source = os.open(self.blob(entry.digest), os.O_RDONLY | os.O_CLOEXEC)
            try:
                while left:
                    data = os.read(source, min(left, CHUNK))
                    if not data:
                        break
                    left -= len(data)
                    digest.update(data)
                    write(into, data)
            finally:
                os.close(source)
        except FileNotFoundError:
            left = -1
        finally:
            os.close(into)
        if left or digest.hexdigest() != entry.digest:
            os.unlink(goal)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.blob(entry.digest))
            self._put_aside(name)
            raise Broken(name)

    def _put_aside(self, name: str) -> None:
        """The tree is not complete any more."""
        part = self.part(name)
        try:
            os.rename(self.tree(name), part)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            shutil.rmtree(self.tree(name), ignore_errors=True)

    # -- removing -------------------------------------------------------------------------------

    def sweep(self, needed: Set[str]) -> int:
        """Remove what nobody needs: trees by age and size, then contents of no tree; how many
        bytes. Does nothing while anybody receives or uses anything.
        """
        if not os.path.isdir(self.folder):
            return 0
        with self.held(exclusive=True) as alone:
            return self._sweep(needed) if alone else 0

    def _sweep(self, needed: Set[str]) -> int:
        top = os.path.join(self.folder, "trees")
        ages = {name: time.time() - os.stat(os.path.join(top, name)).st_mtime
                for name in os.listdir(top)}  # fmt: skip
        kept: Dict[str, int] = {}
        total = 0
        for name in sorted(ages, key=lambda name: ages[name]):
            tree = name[: -len(PART)] if name.endswith(PART) else name
            sizes = self._sizes(os.path.join(top, name), tree)
            more = sum(size for digest, size in sizes.items() if digest not in kept)
            old = ages[name] > KEEP_S or total + more > STORE_MAX_BYTES
            if old and ages[name] > YOUNG_S and tree not in needed:
                shutil.rmtree(os.path.join(top, name), ignore_errors=True)
                continue
            kept.update(sizes)
            total += more
        return self._remove_blobs(kept)

    def _sizes(self, folder: str, tree: str) -> Dict[str, int]:
        try:
            return {entry.digest: entry.size for entry in blobs(self.entries(folder, tree))}
        except (ManifestError, OSError):
            return {}

    def _remove_blobs(self, kept: Dict[str, int]) -> int:
        freed = 0
        top = os.path.join(self.folder, "blobs")
        for short in os.listdir(top):
            for digest in os.listdir(os.path.join(top, short)):
                if digest not in kept:
                    path = os.path.join(top, short, digest)
                    freed += os.stat(path).st_size
                    os.unlink(path)
        return freed


def write(fd: int, data: Union[bytes, memoryview]) -> None:
    """All of it. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]

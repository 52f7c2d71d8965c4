"""What a tree of files consists of: its manifest, whose hash is the tree's name.

    tree 1\\n, then for each entry, a folder before what is in it:
    d MODE \\0 PATH \\0      f MODE SIZE HASH \\0 PATH \\0      l \\0 PATH \\0 TARGET \\0

Paths are bytes, relative to the top. A tree that is one file has one entry, whose path is empty.
The times of change come beside it and are no part of the hash.
"""

from __future__ import annotations

import re
import struct
from typing import Iterator, List, Set, Tuple

MARK = b"tree 1\n"
HASH_BYTES = 16
HASH = re.compile(r"[0-9a-f]{32}")
ENTRIES_MAX = 250_000
BYTES_MAX = 64 << 20


class ManifestError(Exception):
    """It is not what it should be; says why."""


class Entry:
    """One thing in a tree. `kind` is `d`, `f` or `l`; `digest` and `size` are a file's."""

    __slots__ = ("digest", "kind", "mode", "path", "size", "target")

    def __init__(
        self, kind: str, path: bytes, mode: int, size: int, digest: str, target: bytes
    ) -> None:
        self.kind, self.path, self.mode = kind, path, mode
        self.size, self.digest, self.target = size, digest, target


def parsed(body: bytes, tree: str) -> List[Entry]:
    """The entries of the manifest of that tree. Raises ManifestError."""
    if hash_of(body) != tree:
        raise ManifestError("the manifest of %s is another one" % tree)
    if not body.startswith(MARK) or (len(body) > len(MARK) and body[-1:] != b"\0"):
        raise ManifestError("the manifest of %s is of another kind" % tree)
    try:
        entries = list(_entries(iter(body[len(MARK) :].split(b"\0")[:-1])))
    except (ValueError, StopIteration, UnicodeDecodeError) as error:
        raise ManifestError("the manifest of %s cannot be read: %r" % (tree, error)) from error
    if len(entries) > ENTRIES_MAX:
        raise ManifestError("the tree %s has more than %d entries" % (tree, ENTRIES_MAX))
    _check(entries, tree)
    return entries


def _entries(words: Iterator[bytes]) -> Iterator[Entry]:
    for word in words:
        kind, *rest = word.decode("ascii").split(" ")
        try:
            path = next(words)
            if kind == "l":
                yield Entry(kind, path, 0, 0, "", next(words))
            elif kind == "d":
                (mode,) = rest
                yield Entry(kind, path, int(mode, 8) & 0o7777, 0, "", b"")
            elif kind == "f":
                mode, size, digest = rest
                if not HASH.fullmatch(digest) or int(size) < 0:
                    raise ValueError(word)
                yield Entry(kind, path, int(mode, 8) & 0o7777, int(size), digest, b"")
            else:
                raise ValueError(word)
        except StopIteration:
            raise ValueError("it ends too early") from None


def _check(entries: List[Entry], tree: str) -> None:
    """No entry lies outside of the tree, nor below anything but one of its folders."""
    if len(entries) == 1 and entries[0].kind == "f" and not entries[0].path:
        return
    folders: Set[bytes] = {b""}
    seen: Set[bytes] = set()
    for entry in entries:
        above, slash, name = entry.path.rpartition(b"/")
        outside = bool(slash) and not above
        if outside or above not in folders or name in (b"", b".", b"..") or entry.path in seen:
            raise ManifestError("the tree %s has an entry %r" % (tree, entry.path))
        seen.add(entry.path)
        if entry.kind == "d":
            folders.add(entry.path)


def blobs(entries: List[Entry]) -> List[Entry]:
    """One entry for each content that is not empty, in the order of their first appearance."""
    found = {entry.digest: entry for entry in reversed(entries) if entry.size}
    return [entry for entry in entries if entry.size and found[entry.digest] is entry]


def times(body: bytes, entries: List[Entry]) -> List[int]:
    """The times of change of all files in their order, in nanoseconds; [] when they do not fit."""
    count = sum(entry.kind == "f" for entry in entries)
    return list(struct.unpack("!%dq" % count, body)) if len(body) == 8 * count else []


def hash_of(body: bytes) -> str:
    """The name of that content."""
    import hashlib  # here only: it loads all of OpenSSL

    return hashlib.blake2b(body, digest_size=HASH_BYTES).hexdigest()


def tree_of(path: str) -> Tuple[str, str]:
    """(group, tree) of a path that is a server's snapshot; ("", "") for any other."""
    parts = path.split("/")
    if len(parts) > 3 and parts[-3] == "snapshots" and HASH.fullmatch(parts[-1]):
        return parts[-2], parts[-1]
    return "", ""

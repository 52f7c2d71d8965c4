"""The manifest of a snapshot: what is in it, line by line; its hash is the snapshot's name.

The format is that of agent/store/manifest.py, which reads it on other machines: paths are bytes
there, and here text with surrogates for what is not UTF-8.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MARK: Final = b"tree 1\n"
HASH_BYTES: Final = 16
CHUNK: Final = 1 << 20
PACK_LEVEL: Final = 6


class Kind(StrEnum):
    """What a line is about."""

    FOLDER = "d"
    FILE = "f"
    LINK = "l"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing in a tree. `path` is relative to the top, "" for a tree that is one file."""

    kind: Kind
    path: str
    mode: int = 0
    size: int = 0  # of a file
    digest: str = ""  # of a file's content
    target: str = ""  # of a link
    changed_at: int = 0  # of a file, in nanoseconds; no part of the manifest


def composed(lines: Iterable[Line]) -> bytes:
    """The manifest, a folder before what is in it."""
    parts = [MARK]
    for line in lines:
        path = os.fsencode(line.path)
        match line.kind:
            case Kind.FOLDER:
                parts.append(b"d %o\0%b\0" % (line.mode, path))
            case Kind.LINK:
                parts.append(b"l\0%b\0%b\0" % (path, os.fsencode(line.target)))
            case Kind.FILE:
                words = (line.mode, line.size, line.digest.encode(), path)
                parts.append(b"f %o %d %b\0%b\0" % words)
    return b"".join(parts)


def parsed(body: bytes) -> tuple[Line, ...]:
    """The lines of a manifest that `composed` made. Raises ValueError."""
    if not body.startswith(MARK):
        raise ValueError("no manifest of a snapshot")
    words = iter(body[len(MARK) :].split(b"\0")[:-1])
    lines = []
    for word in words:
        kind, *rest = word.decode("ascii").split(" ")
        path = os.fsdecode(next(words))
        match kind, rest:
            case "d", [mode]:
                lines.append(Line(Kind.FOLDER, path, int(mode, 8)))
            case "l", []:
                lines.append(Line(Kind.LINK, path, target=os.fsdecode(next(words))))
            case "f", [mode, size, digest]:
                lines.append(Line(Kind.FILE, path, int(mode, 8), int(size), digest))
            case _:
                raise ValueError(f"no line of a manifest: {word!r}")
    return tuple(lines)


def contents(lines: Iterable[Line]) -> tuple[Line, ...]:
    """One line for each content that is not empty, in the order of their first appearance."""
    found: dict[str, Line] = {}
    for line in lines:
        if line.size:
            found.setdefault(line.digest, line)
    return tuple(found.values())


def times(top: str, lines: Iterable[Line]) -> bytes:
    """When the files of a snapshot were changed, packed, as the agent takes it. Raises OSError."""
    files = [os.path.join(top, line.path) for line in lines if line.kind is Kind.FILE]
    stamps = [os.stat(path if path[-1:] != "/" else top).st_mtime_ns for path in files]
    return packed(struct.pack(f"!{len(stamps)}q", *stamps))


def packed(body: bytes) -> bytes:
    """It as it is kept and sent."""
    return zlib.compress(body, PACK_LEVEL)


def unpacked(data: bytes) -> bytes:
    """The reverse. Raises ValueError."""
    try:
        return zlib.decompress(data)
    except zlib.error as error:
        raise ValueError(str(error)) from error


def hash_of(body: bytes) -> str:
    """The name of that content."""
    return hashlib.blake2b(body, digest_size=HASH_BYTES).hexdigest()


def read(path: str) -> tuple[int, int, int, str]:
    """(mode, time of change, bytes read, hash of them) of a file. Raises OSError."""
    digest, size = hashlib.blake2b(digest_size=HASH_BYTES), 0
    with open(path, "rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        while chunk := file.read(min(CHUNK, max(found.st_size - size, 0) + 1)):
            digest.update(chunk)
            size += len(chunk)
    return stat.S_IMODE(found.st_mode), found.st_mtime_ns, size, digest.hexdigest()

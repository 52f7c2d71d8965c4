"""Receives one tree from the server, in a child of the agent that has the stream to itself.

Docs: docs/agent-protocol.md, op `store`. What has come is on the disk at once, so whoever is cut
off, or killed, goes on there the next time.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import struct
import time
import zlib
from typing import Any, Callable, Dict, List

from .manifest import BYTES_MAX, Entry, ManifestError, blobs, parsed, times
from .trees import Store, write

QUIET_S = 60.0
"""A server that says nothing for so long is gone."""
LINGER_S = 5.0
"""A server that hears why it should stop does so at once."""
LOCK_S, LOCK_PAUSE_S = 20.0, 0.1
"""How long another agent may be at the same tree."""
HEAD = struct.Struct("!BI")
STORED, PACKED = 0, 1
FRAME_MAX = 4 << 20
"""Bytes of a frame, packed or not."""

Progress = Callable[[int, int], None]


class ReceiveError(Exception):
    """The tree did not come; says why."""


class Wire:
    """The server's side of the stream: lines and bytes, as they are waited for."""

    def __init__(self, sock: socket.socket, early: bytes = b"") -> None:
        self._sock, self._early = sock, early
        sock.settimeout(QUIET_S)

    def say(self, message: Dict[str, Any]) -> None:
        """Send a line."""
        self._sock.sendall(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")

    def let_go(self) -> None:
        """Read on until the server hangs up, or for a while: a connection that is closed over what
        nobody read is reset, and what was said is lost.
        """
        until = time.monotonic() + LINGER_S
        self._sock.settimeout(LINGER_S)
        while time.monotonic() < until and self._sock.recv(1 << 18):
            pass

    def line(self) -> Dict[str, Any]:
        """The next line. Raises ReceiveError, ValueError."""
        while b"\n" not in self._early:
            self._more()
            if len(self._early) > FRAME_MAX:
                raise ReceiveError("a line of the server is too long")
        line, _, self._early = self._early.partition(b"\n")
        message = json.loads(line.decode("utf-8"))
        if not isinstance(message, dict):
            raise ReceiveError("a line of the server is no JSON object")
        return message

    def take(self, size: int) -> bytes:
        """So many bytes. Raises ReceiveError."""
        parts = [self._early[:size]]
        self._early = self._early[size:]
        left = size - len(parts[0])
        while left:
            part = self._received(min(left, 1 << 18))
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def _more(self) -> None:
        self._early += self._received(1 << 16)

    def _received(self, most: int) -> bytes:
        try:
            part = self._sock.recv(most)
        except socket.timeout:
            raise ReceiveError("the server says nothing any more") from None
        if not part:
            raise ReceiveError("the stream has ended")
        return part


def receive(store: Store, tree: str, wire: Wire, progress: Progress) -> Dict[str, Any]:
    """Receive a tree, unless it is here: {"got": bytes of contents, "reused": bytes}.

    `progress` is told how many bytes of how many are here. Raises ReceiveError, OSError.
    """
    try:
        with store.held():
            done = _receive(store, tree, wire, progress)
    except (ManifestError, ReceiveError, ValueError, TypeError, KeyError, zlib.error) as error:
        raise _told(wire, str(error)) from error
    except OSError as error:
        text = "%s: %s" % (error.filename or store.folder, error.strerror or error)
        raise _told(wire, text) from error
    wire.say(dict(done, ok=True))
    return done


def _told(wire: Wire, text: str) -> ReceiveError:
    """The server is told, where it listens still."""
    try:
        wire.say({"error": "InfraError", "code": "agent/store", "text": text, "hints": []})
        wire.let_go()
    except OSError:
        pass
    return ReceiveError(text)


def _receive(store: Store, tree: str, wire: Wire, progress: Progress) -> Dict[str, Any]:
    part = store.part(tree)
    lock = _locked(part)
    try:
        if store.has(tree):
            os.utime(store.tree(tree))
            shutil.rmtree(part, ignore_errors=True)
            return {"got": 0, "reused": 0}
        entries = _manifest(store, tree, part, wire)
        arrival = _Arrival(store, part, entries, progress)
        wire.say(arrival.lacks())
        arrival.run(wire)
        for name in os.listdir(part):
            if name not in ("manifest", "times"):
                os.unlink(os.path.join(part, name))
        os.rename(part, store.tree(tree))
        os.utime(store.tree(tree))
        return {"got": arrival.got, "reused": arrival.reused}
    finally:
        os.close(lock)


def _locked(folder: str) -> int:
    """A descriptor that keeps other agents off. Raises ReceiveError."""
    deadline = time.monotonic() + LOCK_S
    while True:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            os.close(fd)
        if time.monotonic() > deadline:
            raise OSError(11, "another agent receives it", folder)
        time.sleep(LOCK_PAUSE_S)


def _manifest(store: Store, tree: str, part: str, wire: Wire) -> List[Entry]:
    """The entries, by the manifest that came before or is asked for now."""
    try:
        return store.entries(part, tree)
    except (ManifestError, FileNotFoundError):
        wire.say({"lacks": "manifest"})
    head = wire.line()
    sizes = int(head["manifest"]), int(head["times"])
    if not all(0 <= size <= BYTES_MAX for size in sizes):
        raise ReceiveError("the manifest of %s is too large" % tree)
    body, stamps = (_unpacked(wire.take(size), BYTES_MAX) for size in sizes)
    entries = parsed(body, tree)
    times(stamps, entries)
    for name, data in (("times", stamps), ("manifest", body)):
        path = os.path.join(part, name)
        with open(path + ".new", "wb") as file:
            file.write(data)
        os.rename(path + ".new", path)
    return entries


def _unpacked(data: bytes, most: int) -> bytes:
    unpacker = zlib.decompressobj()
    found = unpacker.decompress(data, most)
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise ReceiveError("what came does not unpack")
    return found


class _Arrival:
    """The contents that are lacking, as they come: one after the other, without gaps."""

    def __init__(self, store: Store, part: str, entries: List[Entry], progress: Progress) -> None:
        self._store, self._part, self._progress = store, part, progress
        self._all = blobs(entries)
        self._total = sum(entry.size for entry in self._all)
        self._lacking = [n for n, one in enumerate(self._all) if not self._here(one)]
        self._begun: Dict[int, int] = {}
        for number in self._lacking:
            size = self._there(self._all[number])
            if size:
                self._begun[number] = size
        wanted = sum(self._all[number].size for number in self._lacking)
        self.reused = self._total - wanted + sum(self._begun.values())
        self.got = 0
        progress(self.reused, self._total)

    def _here(self, entry: Entry) -> bool:
        try:
            return os.stat(self._store.blob(entry.digest)).st_size == entry.size
        except FileNotFoundError:
            return False

    def _there(self, entry: Entry) -> int:
        """How much of it has come; what came too much is no beginning of it."""
        path = os.path.join(self._part, entry.digest)
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            return 0
        if size < entry.size:
            return size
        os.unlink(path)
        return 0

    def lacks(self) -> Dict[str, Any]:
        """What is asked for: ranges [first, count] of contents, and how much of some is here."""
        ranges: List[List[int]] = []
        for number in self._lacking:
            if ranges and ranges[-1][0] + ranges[-1][1] == number:
                ranges[-1][1] += 1
            else:
                ranges.append([number, 1])
        begun = {str(number): size for number, size in self._begun.items()}
        return {"lacks": ranges, "begun": begun}

    def run(self, wire: Wire) -> None:
        """Take frames until all is here. Raises ReceiveError, OSError."""
        data = memoryview(b"")
        for number in self._lacking:
            data = self._one(self._all[number], self._begun.get(number, 0), data, wire)
        _, size = HEAD.unpack(wire.take(HEAD.size))
        if data or size:
            raise ReceiveError("more came than was asked for")

    def _one(self, entry: Entry, begun: int, data: memoryview, wire: Wire) -> memoryview:
        """Take one content; what is left of the last frame."""
        import hashlib  # here only: it loads all of OpenSSL

        path = os.path.join(self._part, entry.digest)
        digest = hashlib.blake2b(digest_size=16)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            for offset in range(0, begun, FRAME_MAX):
                digest.update(os.pread(fd, min(FRAME_MAX, begun - offset), offset))
            os.lseek(fd, begun, os.SEEK_SET)
            left = entry.size - begun
            while left:
                if not data:
                    data = memoryview(self._frame(wire))
                write(fd, data[:left])
                digest.update(data[:left])
                taken = min(left, len(data))
                data, left = data[taken:], left - taken
                self.got += taken
                self._progress(self.reused + self.got, self._total)
        finally:
            os.close(fd)
        if digest.hexdigest() != entry.digest:
            os.unlink(path)
            raise ReceiveError("a file came that is another one: %r" % entry.path)
        goal = self._store.blob(entry.digest)
        try:
            os.rename(path, goal)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(goal), mode=0o700, exist_ok=True)
            os.rename(path, goal)
        return data

    @staticmethod
    def _frame(wire: Wire) -> bytes:
        kind, size = HEAD.unpack(wire.take(HEAD.size))
        if not 0 < size <= FRAME_MAX or kind not in (STORED, PACKED):
            raise ReceiveError("a frame of the server is none")
        data = wire.take(size)
        return _unpacked(data, FRAME_MAX) if kind == PACKED else data

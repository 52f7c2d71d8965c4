"""Which trees attempts wait for, and who is bringing them: the agent's side of `need` and `store`.

The server is asked on the control stream, again and again, until the tree is here; it then opens a
stream of its own for each tree, and a child takes it over.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import sys
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from ..child import Child
from ..link import Message, Stream
from ..loop import Loop, Timer
from .manifest import HASH
from .receive import Wire, receive
from .trees import Store

ASK_EVERY_S = 5.0
LOOK_EVERY_S = 1.0
SWEEP_EVERY_S = 3600.0
COUNTERS = struct.Struct("=qq")
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))

Done = Callable[[str], None]


class Wait:
    """One attempt's wait for trees. `done` is called once, with "" or with why they cannot come."""

    def __init__(self, lease: str, paths: Dict[str, str], done: Done, on_text: Done) -> None:
        """`paths`: the tree of each -> the snapshot on the server's machine."""
        self.lease, self.paths, self.done = lease, paths, done
        self.on_text = on_text
        """Called when what it waits for is to be told in other words."""
        self.text = ""


class _Arriving:
    """One tree on its way: the child, and what it has counted in memory that both see."""

    def __init__(self) -> None:
        self.child: Optional[Child] = None
        self._shared = mmap.mmap(-1, COUNTERS.size)

    def count(self, here: int, total: int) -> None:
        """Called in the child."""
        COUNTERS.pack_into(self._shared, 0, here, total)

    @property
    def counted(self) -> Tuple[int, int]:
        """(bytes here, bytes in all); (0, 0) before anything is known."""
        here, total = COUNTERS.unpack_from(self._shared, 0)
        return here, total

    def close(self) -> None:
        """Free the memory."""
        self._shared.close()


class Stock:
    """All waits of one agent, over one store."""

    def __init__(self, loop: Loop, folder: str) -> None:
        self.store = Store(folder)
        self.send: Callable[[Message], bool] = lambda message: False
        """To all control streams."""
        self.needed: Callable[[], Set[str]] = set
        """The trees that attempts of this agent may still want."""
        self._loop = loop
        self._waits: List[Wait] = []
        self._arriving: Dict[str, _Arriving] = {}
        self._trouble: Dict[str, str] = {}
        """Tree -> why it did not come the last time."""
        self._timer: Optional[Timer] = None
        self._asked_at = self._swept_at = float("-inf")

    # -- waiting --------------------------------------------------------------------------------

    def wait(self, wait: Wait) -> None:
        """Begin a wait: the server is asked at once."""
        self._waits.append(wait)
        self._asked_at = self._loop.now()
        for message in self._needs([wait]):
            self.send(message)
        self._tell()
        if self._timer is None:
            self._timer = self._loop.after(LOOK_EVERY_S, self._look)

    def drop(self, wait: Wait) -> None:
        """It waits no more; it is not told."""
        if wait in self._waits:
            self._waits.remove(wait)

    def needs(self) -> List[Message]:
        """What a new control stream is to hear."""
        return self._needs(self._waits)

    def _needs(self, waits: List[Wait]) -> List[Message]:
        return [
            {"type": "need", "lease": wait.lease, "tree": tree, "path": path}
            for wait in waits
            for tree, path in wait.paths.items()
            if not self.store.has(tree)
        ]

    def _look(self) -> None:
        """While anything is waited for: another agent may have brought it; else ask again."""
        self._timer = None
        self._settle()
        if not self._waits:
            return
        if self._loop.now() - self._asked_at >= ASK_EVERY_S:
            self._asked_at = self._loop.now()
            for message in self.needs():
                if message["tree"] not in self._arriving:
                    self.send(message)
        self._tell()
        self._timer = self._loop.after(LOOK_EVERY_S, self._look)

    def _settle(self) -> None:
        for wait in list(self._waits):
            if all(self.store.has(tree) for tree in wait.paths):
                self._waits.remove(wait)
                wait.done("")

    def _tell(self) -> None:
        for wait in self._waits:
            text = self._text(wait)
            if text != wait.text:
                wait.text = text
                wait.on_text(text)

    def _text(self, wait: Wait) -> str:
        counts = [self._arriving[tree].counted for tree in wait.paths if tree in self._arriving]
        here, total = sum(count[0] for count in counts), sum(count[1] for count in counts)
        if not total:
            trouble = [self._trouble[tree] for tree in wait.paths if tree in self._trouble]
            return "waits for its files" + "".join(": " + text for text in trouble[:1])
        return "waits for its files: %d %% of %s" % (100 * here // total, size_words(total))

    # -- receiving ------------------------------------------------------------------------------

    def take(self, stream: Stream, message: Message) -> None:
        """The op `store`: a child takes the stream over; the newest of a tree wins."""
        tree = str(message["tree"])
        if not HASH.fullmatch(tree):
            stream.fail("InputError", "agent/bad-tree", "%r is no tree" % tree)
            return
        if "failed" in message:
            self._fail(tree, str(message["failed"]))
            stream.send({"ok": True})
            stream.close()
            return
        self._forget(tree)
        arriving = self._arriving[tree] = _Arriving()
        sock, early = stream.hand_over()
        store = self.store

        def work() -> Any:
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a server that hung up is an error
            return receive(store, tree, Wire(sock, early), arriving.count)

        def answer(value: Any, error: Optional[str]) -> None:
            self._forget(tree)
            self._trouble.pop(tree, None)
            if error is not None:
                sys.stderr.write("store: %s: %s\n" % (tree, error))
                self._trouble[tree] = error
                return
            self._settle()
            self.sweep()

        try:
            arriving.child = Child(self._loop, work, answer, keep=(sock.fileno(),))
        except OSError as error:
            sys.stderr.write("store: %s: %s\n" % (tree, error))
            self._forget(tree)
        finally:
            sock.close()

    def _forget(self, tree: str) -> None:
        arriving = self._arriving.pop(tree, None)
        if arriving is not None:
            if arriving.child is not None:
                arriving.child.drop()
            arriving.close()

    def _fail(self, tree: str, text: str) -> None:
        for wait in list(self._waits):
            if tree in wait.paths:
                self._waits.remove(wait)
                wait.done(text or "its files cannot be sent")

    # -- keeping it small -----------------------------------------------------------------------

    def sweep(self) -> None:
        """Remove what nobody needs, in a child, once in a while."""
        now = self._loop.now()
        if now - self._swept_at < SWEEP_EVERY_S or not os.path.isdir(self.store.folder):
            return
        self._swept_at = now
        store, needed = self.store, self.needed()
        needed.update(tree for wait in self._waits for tree in wait.paths)
        try:
            Child(self._loop, lambda: store.sweep(needed), _swept)
        except OSError as error:  # another time
            sys.stderr.write("store: %s\n" % error)

    def close(self) -> None:
        """End what is on its way; what has come of it stays."""
        for tree in list(self._arriving):
            self._forget(tree)


def _swept(_: Any, error: Optional[str]) -> None:
    if error is not None:
        sys.stderr.write("store: %s\n" % error)


def size_words(count: int) -> str:
    """A number of bytes for people."""
    for unit, name in UNITS:
        if count >= unit:
            return "%.*f %s" % (0 if count >= 10 * unit else 1, count / unit, name)
    return "%d B" % count

"""The agent's door: a unix socket, one JSON object a line; the first line of a stream says what it
is for.

A stream that is slow to read is not written to without bound: whoever sends much (`logs`, `exec`)
waits for `on_drained`. Control streams get heartbeats, and the newest one of a server wins.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

from .loop import Loop

LINE_MAX = 64 << 20
READ_BYTES = 1 << 18
FULL_BYTES = 1 << 20
"""A stream with more than this unsent is full."""
CONTROL_MAX_BYTES = 64 << 20
"""A control stream that lets so much pile up is dead."""

BOOK, BOOK_LARGE = b',"book":', 4096
"""What is before an address book at the end of a message, and the bytes from which it is large."""

LOOK_EVERY_S = 5.0
"""Between two looks whether the socket is still there."""

Message = Dict[str, Any]


class Stream:
    """One connection. Callbacks may be exchanged at any time; after `close` none is called."""

    def __init__(self, loop: Loop, sock: socket.socket) -> None:
        self.on_line: Callable[[Message], None] = lambda message: None
        self.on_raw: Optional[Callable[[bytes], None]] = None
        """Set it to take the bytes as they come, not as lines."""
        self.on_end: Callable[[], None] = lambda: None
        """The other side sends no more, or the stream broke."""
        self.on_drained: Callable[[], None] = lambda: None
        self.sent_at = loop.now()
        self.ended = False
        self.max_bytes = 0
        """More unsent bytes than this break the stream; 0: no limit."""
        self._loop, self._sock = loop, sock
        self._input: List[bytes] = []
        self._input_bytes = 0
        self._output: List[bytes] = []
        self._output_bytes = 0
        self._closing = self._paused = False
        self._book: Tuple[bytes, Any] = (b"", None)
        """The last large book that came: its JSON, and its value, which nobody changes."""
        sock.setblocking(False)
        self._fd = sock.fileno()
        loop.on_read(self._fd, self._readable)

    @property
    def full(self) -> bool:
        """Whether to wait for `on_drained` before sending more."""
        return self._output_bytes > FULL_BYTES

    @property
    def gone(self) -> bool:
        """Whether nothing can be sent any more: it is closed, or broken."""
        return self._fd < 0

    def send(self, message: Message) -> None:
        """Send one line; silent when the stream has ended."""
        self.send_raw(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")

    def send_raw(self, data: bytes) -> None:
        """Send bytes; silent when the stream has ended."""
        if self._fd < 0 or self._closing or not data:
            return
        self.sent_at = self._loop.now()
        self._output.append(data)
        self._output_bytes += len(data)
        if len(self._output) == 1:
            self._writable()
        if self.max_bytes and self._output_bytes > self.max_bytes:
            self._broken()

    def pause(self, paused: bool) -> None:
        """Read no more for now, or again."""
        if paused != self._paused and self._fd >= 0 and not self.ended:
            self._paused = paused
            self._loop.on_read(self._fd, None if paused else self._readable)

    def hand_over(self) -> Tuple[socket.socket, bytes]:
        """Give the connection away, and what has come and was not taken; nothing may be unsent."""
        self._loop.forget(self._fd)
        self._fd, self.ended = -1, True
        early, self._input = b"".join(self._input), []
        self._sock.setblocking(True)
        return self._sock, early

    def _readable(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end_input()
        elif self.on_raw is not None:
            self.on_raw(data)
        else:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        """Cut into lines; a line at a time, for each may change who listens."""
        if b"\n" not in data:
            self._input.append(data)
            self._input_bytes += len(data)
            if self._input_bytes > LINE_MAX:
                self._misused("agent/line-too-long", "a line of more than 64 MiB")
            return
        rest = b"".join(self._input) + data
        self._input, self._input_bytes = [], 0
        while rest and self._fd >= 0 and not self._closing:
            if self.on_raw is not None:
                self.on_raw(rest)
                return
            line, newline, after = rest.partition(b"\n")
            if not newline:
                self._input, self._input_bytes = [line], len(line)
                return
            rest = after
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            message = self._decoded(line)
            if not isinstance(message, dict):
                raise ValueError("not an object")
        except ValueError as error:
            self._misused("agent/bad-line", "a line is no JSON object: %s" % error)
            return
        self.take(message)

    def _decoded(self, line: bytes) -> Any:
        """The value of a line; the book at the end of many assignments is decoded once."""
        head, found, tail = line.rpartition(BOOK)
        if found and len(tail) >= BOOK_LARGE:
            try:  # both parts are whole: so this is the outer object's own, and its last
                message = json.loads(head.decode("utf-8") + "}")
                if tail != self._book[0]:
                    self._book = (tail, json.loads(tail[:-1].decode("utf-8")))
                message["book"] = self._book[1]
                return message
            except ValueError:
                pass  # a key of that name somewhere else
        return json.loads(line.decode("utf-8"))

    def take(self, message: Message) -> None:
        """Give a message to who listens; one that is misused ends the stream."""
        if self._fd < 0 or self._closing:
            return
        try:
            self.on_line(message)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            text = "a message lacks or misuses a field: %s %s" % (type(error).__name__, error)
            what = message.get("op") or message.get("type")  # no more of it: there may be secrets
            sys.stderr.write("link: %s in %.100s\n" % (text, json.dumps(what)))
            self._misused("agent/bad-message", text)

    def _misused(self, code: str, text: str) -> None:
        """An error line, and the end; whoever listens hears that nobody is there any more."""
        self.fail("InputError", code, text)
        self._end_input()

    def _end_input(self) -> None:
        if not self.ended:
            self.ended = True
            self._loop.on_read(self._fd, None)
            self.on_end()

    def _writable(self) -> None:
        while self._output:
            try:
                sent = self._sock.send(self._output[0])
            except BlockingIOError:
                self._loop.on_write(self._fd, self._writable)
                return
            except OSError:
                self._broken()
                return
            self._output_bytes -= sent
            if sent == len(self._output[0]):
                del self._output[0]
            else:
                self._output[0] = self._output[0][sent:]
        self._loop.on_write(self._fd, None)
        if self._closing:
            self._shut()
        else:
            self._loop.soon(self._drained)

    def _drained(self) -> None:
        if self._fd >= 0 and not self._closing and not self.full:
            self.on_drained()

    def _broken(self) -> None:
        ended, self.ended = self.ended, True
        self._shut()
        if not ended:
            self.on_end()

    def fail(self, error: str, code: str, text: str, hints: Optional[List[str]] = None) -> None:
        """Send an error line and end the stream. `error` is the name of its class in the control
        plane.
        """
        self.send({"error": error, "code": code, "text": text, "hints": hints or []})
        self.close()

    def close(self) -> None:
        """End the stream once everything was sent."""
        if self._fd >= 0 and not self._closing:
            self._closing = True
            if not self._output:
                self._shut()

    def _shut(self) -> None:
        if self._fd >= 0:
            self._loop.forget(self._fd)
            self._fd = -1
            self._output, self._output_bytes = [], 0
            self._sock.close()


class Server:
    """Listens on a socket in a folder; every stream's first line goes to `on_first(stream,
    message)`.
    """

    def __init__(self, loop: Loop, name: str, on_first: Callable[[Stream, Message], None]) -> None:
        """Bind `name` in the current directory (a relative path: absolute ones are limited to 107
        bytes).
        """
        self._loop, self._on_first, self._name = loop, on_first, name
        try:
            os.unlink(name)
        except FileNotFoundError:
            pass
        self._listen()
        self._look_later()

    def _listen(self) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            self._sock.bind(self._name)
        finally:
            os.umask(before)
        self._sock.listen(128)
        self._sock.setblocking(False)
        self._loop.on_read(self._sock.fileno(), self._accept)

    def _look_later(self) -> None:
        self._looking = self._loop.after(LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        """A socket that somebody removed is made again: nobody could come in any more."""
        self._look_later()
        if os.path.lexists(self._name):
            return
        gone = self._sock
        try:
            self._listen()
        except OSError as error:
            sys.stderr.write("link: %s: %s\n" % (self._name, error.strerror))
            self._sock = gone
            return
        self._loop.forget(gone.fileno())
        gone.close()

    def _accept(self) -> None:
        for _ in range(16):
            try:
                sock, _address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:  # no descriptors left: later
                sys.stderr.write("link: accept: %s\n" % error)
                self._loop.on_read(self._sock.fileno(), None)
                self._loop.after(1.0, lambda: self._loop.on_read(self._sock.fileno(), self._accept))
                return
            stream = Stream(self._loop, sock)
            stream.on_line = lambda message, stream=stream: self._on_first(stream, message)  # type: ignore[misc]
            stream.on_end = stream.close

    def close(self) -> None:
        """Listen no more."""
        self._looking.cancel()
        self._loop.forget(self._sock.fileno())
        self._sock.close()

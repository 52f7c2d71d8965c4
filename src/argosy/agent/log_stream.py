"""The op `logs`: an attempt's log by offset, number of lines or time; filtered, followed."""

from __future__ import annotations

import re
from typing import Any, Dict, Optional, Pattern

from .host import Host
from .link import Message, Stream
from .logs.log import CHUNK, MATCH_LONGEST, Lines, Log
from .sessions import encoded

LINE_LONGEST = 4 << 20


class Logs:
    """`logs`: chunks from an offset, a number of last lines, or a time; filtered; followed."""

    def __init__(self, host: Host, stream: Stream, message: Message) -> None:
        self._stream, self._tailer = stream, host.place.tailer
        self._done = True  # until all below is in place
        numbers = _numbers(message)  # before anything is opened
        try:
            self._path, attempt = host.log_of(str(message["attempt"]))
            self._pattern = _pattern(message.get("grep"))
            self._log = attempt.log() if attempt is not None else Log(self._path)
        except LookupError as error:
            stream.fail("NotFound", "agent/no-log", str(error))
            return
        except re.error as error:
            stream.fail("InputError", "agent/bad-grep", "not a regular expression: %s" % error)
            return
        except OSError as error:
            stream.fail(
                "InfraError", "agent/log-unreadable", "%s: %s" % (self._path, error.strerror)
            )
            return
        self._own = attempt is None
        self._lines = Lines(LINE_LONGEST)
        self._line_offset = 0
        self._left = numbers["max_bytes"]
        if not self._tailer.refresh(self._path):
            self._log.poll()
        self._next = self._first_offset(numbers)
        until = numbers["until"]
        self._stop = self._log.offset_until(until) if until is not None else None
        self._follow = bool(message.get("follow")) and until is None
        if self._follow:
            self._follow = self._tailer.follow(self._path, self._more)
        self._line_offset = self._next
        stream.on_drained = self._more
        stream.on_end = self._close
        self._done = False
        self._more()

    def _first_offset(self, numbers: Dict[str, Any]) -> int:
        log, start = self._log, 0
        if numbers["offset"] is not None:
            start = numbers["offset"]
        elif numbers["since"] is not None:
            start = log.offset_since(numbers["since"])
        if numbers["tail"] is not None and self._pattern is None:
            start = max(start, log.offset_of_tail(numbers["tail"]))
        return start

    def _more(self) -> None:
        """Send what there is, as long as the stream takes it."""
        if not self._done and not self._own and not self._tailer.growing(self._path):
            self._log, self._own = Log(self._path), True  # the attempt has ended and closed its own
            self._log.poll()
        while not self._done and not self._stream.full:
            limit = CHUNK if self._stop is None else min(CHUNK, self._stop - self._next)
            start, data = self._log.read(self._next, limit) if limit > 0 else (self._next, b"")
            if start > self._next:
                self._stream.send({"gap": [self._next, start]})
                self._lines.rest()
                self._next = self._line_offset = start
            if not data:
                self._at_end()
                return
            self._next = start + len(data)
            self._give(start, data)

    def _give(self, start: int, data: bytes) -> None:
        if self._pattern is None:
            self._send(start, data)
            return
        for line in self._lines.feed(data):
            if self._pattern.search(line, 0, MATCH_LONGEST):
                self._send(self._line_offset, line)
            self._line_offset += len(line)

    def _send(self, offset: int, data: bytes) -> None:
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        for place in range(0, len(data), CHUNK):
            part = data[place : place + CHUNK]
            at = self._log.time_at(offset + place)
            self._stream.send({"offset": offset + place, "at": at, "data": encoded(part)})
        if self._left is not None and self._left <= 0:
            self._finish()

    def _at_end(self) -> None:
        if self._follow and self._tailer.growing(self._path):
            return
        if self._pattern is not None:
            line = self._lines.rest()
            if line and self._pattern.search(line, 0, MATCH_LONGEST):
                self._send(self._line_offset, line)
        self._finish()

    def _finish(self) -> None:
        if not self._done:
            self._done = True
            self._stream.send({"end": self._next})
            self._stream.close()
            self._close()

    def _close(self) -> None:
        self._done = True
        self._tailer.unfollow(self._path, self._more)
        if self._own:
            self._own = False
            self._log.close()
        self._stream.close()


def _pattern(text: Optional[str]) -> Optional[Pattern[bytes]]:
    return re.compile(text.encode("utf-8")) if text else None


def _numbers(message: Message) -> Dict[str, Any]:
    """The numbers of the message, None where there is none. Raises ValueError, TypeError."""
    kinds = {"offset": int, "tail": int, "since": float, "until": float, "max_bytes": int}
    given = {name: message.get(name) for name in kinds}
    return {name: None if value is None else kinds[name](value) for name, value in given.items()}

"""The op `logs`: an attempt's log by offset, number of lines or time; filtered, followed."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from ..host import Host
from ..link import Message, Stream
from ..logs.log import CHUNK, Lines, Log
from ..logs.search import LIMIT_S, Search
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
            grep = message.get("grep")
            self._search = Search(host.place.loop, str(grep)) if grep else None
            self._log = attempt.log() if attempt is not None else Log(self._path)
        except LookupError as error:
            stream.fail("NotFound", "agent/no-log", str(error))
            return
        except ValueError as error:
            stream.fail("InputError", "agent/bad-grep", str(error))
            return
        except OSError as error:
            stream.fail(
                "InfraError", "agent/log-unreadable", "%s: %s" % (self._path, error.strerror)
            )
            return
        self._own = attempt is None
        self._lines = Lines(LINE_LONGEST)
        self._line_offset = 0
        self._searching = False
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
        if numbers["tail"] is not None and self._search is None:
            start = max(start, log.offset_of_tail(numbers["tail"]))
        return start

    def _more(self) -> None:
        """Send what there is, as long as the stream takes it."""
        if not self._done and not self._own and not self._tailer.growing(self._path):
            self._log, self._own = Log(self._path), True  # the attempt has ended and closed its own
            self._log.poll()
        while not self._done and not self._searching and not self._stream.full:
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
            if self._search is None:
                self._send(start, data)
            else:
                self._sift(self._lines.feed(data))

    def _sift(self, lines: List[bytes]) -> None:
        """Send those that match, as soon as that is known."""
        assert self._search is not None
        found = self._search.now(lines)
        if found is not None:
            self._sifted(lines, found)
            return
        self._searching = True
        self._search.later(lines, lambda found, problem: self._searched(lines, found, problem))

    def _searched(self, lines: List[bytes], found: Optional[List[int]], problem: str) -> None:
        """A child has searched; None: it was killed by something, or could not come to an end."""
        self._searching = False
        if problem:
            self._fail("InfraError", "agent/cannot-search", "cannot search: " + problem)
            return
        if found is None:
            text = "the regular expression takes over %d s to search a part of the log" % LIMIT_S
            hint = "write it without nested `*` and `+`, or filter with `| grep`"
            self._fail("InputError", "agent/grep-too-slow", text, hint)
            return
        self._sifted(lines, found)
        self._more()

    def _sifted(self, lines: List[bytes], found: List[int]) -> None:
        places = set(found)
        for place, line in enumerate(lines):
            if place in places:
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
        rest = self._lines.rest() if self._search is not None else b""
        if rest:
            self._sift([rest])
        if not self._searching:
            self._finish()

    def _finish(self) -> None:
        if not self._done:
            self._done = True
            self._stream.send({"end": self._next})
            self._stream.close()
            self._close()

    def _fail(self, kind: str, code: str, text: str, hint: str = "") -> None:
        if not self._done:
            self._stream.fail(kind, code, text, [hint] if hint else [])
            self._close()

    def _close(self) -> None:
        self._done = True
        if self._search is not None:
            self._search.close()
        self._tailer.unfollow(self._path, self._more)
        if self._own:
            self._own = False
            self._log.close()
        self._stream.close()


def _numbers(message: Message) -> Dict[str, Any]:
    """The numbers of the message, None where there is none. Raises ValueError, TypeError."""
    kinds = {"offset": int, "tail": int, "since": float, "until": float, "max_bytes": int}
    given = {name: message.get(name) for name in kinds}
    return {name: None if value is None else kinds[name](value) for name, value in given.items()}

"""The proxy behind a group's balanced addresses: a process of its own, plain TCP, per connection.

A connection goes to the healthy backend with the fewest open connections. One that refuses is
passed over at once and avoided for a moment. While none is healthy, new connections are held for
HOLD_SECONDS, so that a restart in place looks like a slow answer. What happens to one backend
never touches the connections of another, and a change of health cuts nothing.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import time
from collections import deque
from typing import Deque, Dict, List, Optional, Set, Tuple

from .. import balance
from ..linux import kernel
from ..network import write_whole
from .relay import IN, OUT, RESET, Loop, Side, join

CONNECT_SECONDS = 1.0  # then the next backend is tried
AVOID_SECONDS = 0.5  # how long a backend that failed comes last
HOLD_SECONDS = 5.0  # how long a connection waits for a healthy backend
HOLD_MAX = 1024  # connections held; more are reset
RETRY_SECONDS = 0.1  # held connections when all have refused; a port that could not be bound
STATS_SECONDS = 1.0
ACCEPT_MAX = 64  # a round, so that open connections are served meanwhile
BACKLOG = 1024
IDLE_SECONDS = 3600.0

Key = Tuple[str, int]


class Backend:
    """One address behind a service, and what became of it so far."""

    __slots__ = (
        *("address", "usable", "open", "connections", "failures", "avoid_until", "turn"),
        *("bytes_in", "bytes_out"),
    )

    def __init__(self, address: Key) -> None:
        self.address = address
        self.usable = False
        self.open = 0
        self.connections = 0
        self.failures = 0
        self.avoid_until = 0.0
        self.turn = 0  # when it last got one, to go round among equals
        self.bytes_in = 0  # to the backend
        self.bytes_out = 0


class Service:
    """A listening address with its backends."""

    def __init__(self, proxy: Proxy, name: str, address: Key) -> None:
        self.proxy = proxy
        self.name = name
        self.address = address
        self.backends: Dict[Key, Backend] = {}
        self.listener: Optional[socket.socket] = None
        self.error = ""
        self.connections = 0
        self.refused = 0
        self.turn = 0

    def choose(self, tried: Set[Key], now: float) -> Optional[Backend]:
        """The least busy that may be used; None when all were tried or none is healthy."""
        best = None
        best_rank: Tuple[bool, int, int] = (True, 0, 0)
        for key, backend in self.backends.items():
            if backend.usable and key not in tried:
                rank = (backend.avoid_until > now, backend.open, backend.turn)
                if best is None or rank < best_rank:
                    best, best_rank = backend, rank
        if best is not None:
            self.turn += 1
            best.turn = self.turn
        return best

    def update(self, wanted: Dict[Key, bool]) -> None:
        """Take the backends as the agent sees them now."""
        for key, usable in wanted.items():
            backend = self.backends.setdefault(key, Backend(key))
            if usable and not backend.usable:
                backend.avoid_until = 0.0
            backend.usable = usable
        for key in [key for key in self.backends if key not in wanted]:
            self.backends[key].usable = False
            if not self.backends[key].open:
                del self.backends[key]

    def listen(self) -> bool:
        """Ensure that it listens; False when the address is not to be had now."""
        if self.listener is not None:
            if self.listener.fileno() not in self.proxy.loop.calls:
                self.proxy.loop.watch(self.listener.fileno(), IN, self._accept)
            return True
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(self.address)
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            self.error = "%s: %s:%d" % (error.strerror, *self.address)
            return False
        sock.setblocking(False)
        self.error = ""
        self.listener = sock
        self.proxy.loop.watch(sock.fileno(), IN, self._accept)
        return True

    def close(self) -> None:
        """Listen no more; open connections stay."""
        if self.listener is not None:
            self.proxy.loop.close(self.listener)
            self.listener = None

    def pause(self) -> None:
        """Accept none for a moment; the kernel keeps those that wait."""
        assert self.listener is not None
        self.proxy.loop.forget(self.listener.fileno())
        self.proxy.retry_at = self.proxy.retry_at or self.proxy.now + RETRY_SECONDS

    def _accept(self, _events: int) -> None:
        assert self.listener is not None
        for _ in range(ACCEPT_MAX):
            try:
                client = self.listener.accept()[0]
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    self.pause()
                    return
                continue
            client.setblocking(False)
            self.connections += 1
            Attempt(self, client).next()


class Attempt:
    """A client's way to a backend: try one after the other, or wait for a healthy one."""

    __slots__ = ("backend", "client", "deadline", "hold_until", "server", "service", "tried")

    def __init__(self, service: Service, client: socket.socket) -> None:
        self.service = service
        self.client = client
        self.tried: Set[Key] = set()
        self.backend: Optional[Backend] = None
        self.server: Optional[socket.socket] = None
        self.deadline = 0.0
        self.hold_until = 0.0

    def next(self) -> None:
        """Try the best backend that was not tried yet."""
        proxy = self.service.proxy
        while True:
            backend = self.service.choose(self.tried, proxy.now)
            if backend is None:
                proxy.hold(self)
                return
            self.tried.add(backend.address)
            self.backend = backend
            backend.open += 1
            self.server = server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            server.setblocking(False)
            code = server.connect_ex(backend.address)
            if code == 0:
                self._connected()
                return
            if code == errno.EINPROGRESS:
                self.deadline = proxy.now + CONNECT_SECONDS
                proxy.connecting.append((self.deadline, self))
                proxy.loop.watch(server.fileno(), OUT, self._answered)
                return
            self._failed()

    def _answered(self, _events: int) -> None:
        assert self.server is not None
        self.service.proxy.loop.forget(self.server.fileno())
        self.deadline = 0.0
        if self.server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._failed()
            self.next()
        else:
            self._connected()

    def timed_out(self) -> None:
        """The backend did not answer in time."""
        self.deadline = 0.0
        self._failed()
        self.next()

    def _failed(self) -> None:
        assert self.backend is not None
        assert self.server is not None
        proxy = self.service.proxy
        proxy.loop.close(self.server)
        self.backend.open -= 1
        self.backend.failures += 1
        self.backend.avoid_until = proxy.now + AVOID_SECONDS
        proxy.changed()

    def _connected(self) -> None:
        assert self.backend is not None
        assert self.server is not None
        proxy, backend = self.service.proxy, self.backend
        for sock in (self.client, self.server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        backend.connections += 1

        def end() -> None:
            backend.open -= 1
            backend.bytes_in += first.bytes_in
            backend.bytes_out += second.bytes_in
            proxy.changed()

        first, second = Side(proxy.loop, self.client, end), Side(proxy.loop, self.server, end)
        join(proxy.loop, first, second)
        proxy.changed()

    def refuse(self) -> None:
        """Give the client a reset: nobody was there in time."""
        self.service.refused += 1
        self.service.proxy.changed()
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.service.proxy.loop.close(self.client)


class Proxy:
    """All services of a group in one loop."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.loop = Loop()
        self.services: Dict[Key, Service] = {}
        self.connecting: Deque[Tuple[float, Attempt]] = deque()  # by deadline
        self.held: Deque[Attempt] = deque()
        self.retry_at = 0.0  # 0: nothing waits for it
        self.stats_at = 0.0
        self.seen: Tuple[int, int] = (0, 0)
        self.wanted: Set[int] = set()  # signals that came

    @property
    def now(self) -> float:
        """When this round of the loop began."""
        return self.loop.now

    def reload(self) -> None:
        """Read the control file, if it is another one than before."""
        try:
            found = os.stat(os.path.join(self.directory, balance.CONTROL))
            seen = (found.st_ino, found.st_mtime_ns)
            if seen == self.seen:
                return
            entries = balance.read_control(self.directory)
        except (OSError, ValueError):
            return  # no file (yet), or not ours to mend: go on as before
        self.seen = seen
        wanted = {entry.address: entry for entry in entries}
        for key in [key for key in self.services if key not in wanted]:
            self.services.pop(key).close()
        for key, entry in wanted.items():
            if key not in self.services:
                self.services[key] = Service(self, entry.name, key)
            self.services[key].update(entry.backends)
        self._listen()
        self._retry_held()
        self._write_stats()

    def hold(self, attempt: Attempt) -> None:
        """Keep a client until a backend takes it, or for HOLD_SECONDS."""
        attempt.hold_until = attempt.hold_until or self.now + HOLD_SECONDS
        if attempt.hold_until <= self.now or len(self.held) >= HOLD_MAX:
            attempt.refuse()
            return
        self.held.append(attempt)
        self.retry_at = self.retry_at or self.now + RETRY_SECONDS

    def changed(self) -> None:
        """Something that the statistics tell has changed."""
        if not self.stats_at:
            self.stats_at = self.now + STATS_SECONDS

    def turn(self) -> None:
        """Wait for the next thing and do it."""
        self.loop.turn(self._patience())
        now = self.now
        while self.connecting and self.connecting[0][0] <= now:
            deadline, attempt = self.connecting.popleft()
            if attempt.deadline == deadline:  # else it has been answered
                attempt.timed_out()
        if self.retry_at and self.retry_at <= now:
            self.retry_at = 0.0
            self._listen()
            self._retry_held()
        if self.stats_at and self.stats_at <= now:
            self._write_stats()
        for number in list(self.wanted):
            self.wanted.discard(number)
            self._write_stats() if number == signal.SIGUSR1 else self.reload()

    def _patience(self) -> float:
        times = [t for t in (self.retry_at, self.stats_at) if t]
        if self.connecting:
            times.append(self.connecting[0][0])
        return max(0.0, min(times) - time.monotonic()) if times else IDLE_SECONDS

    def _listen(self) -> None:
        for service in self.services.values():
            if not service.listen():
                self.retry_at = self.retry_at or self.now + RETRY_SECONDS

    def _retry_held(self) -> None:
        waiting, self.held = self.held, deque()
        for attempt in waiting:
            attempt.tried.clear()
            if self.services.get(attempt.service.address) is attempt.service:
                attempt.next()
            else:
                attempt.refuse()

    def _write_stats(self) -> None:
        self.stats_at = 0.0
        out = {}
        for service in self.services.values():
            out[service.name] = {
                "connections": service.connections,
                "held": sum(1 for attempt in self.held if attempt.service is service),
                "refused": service.refused,
                "error": service.error,
                "backends": {
                    "%s:%d" % key: {name: getattr(one, name) for name in STATS_FIELDS}
                    for key, one in service.backends.items()
                },
            }
        try:
            write_whole(os.path.join(self.directory, balance.STATS), json.dumps(out))
        except OSError:
            pass  # a full disk or a folder that is gone must not stop the traffic


STATS_FIELDS = ("usable", "open", "connections", "failures", "bytes_in", "bytes_out")


def watch_folder(directory: str) -> Optional[int]:
    """An inotify descriptor that is readable when a file was moved in; None if there is none."""
    libc = ctypes.CDLL(None)
    fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0 or libc.inotify_add_watch(fd, os.fsencode(directory), 0x80) < 0:  # IN_MOVED_TO
        return None
    return fd


def main(argv: List[str]) -> None:
    """Serve the group whose directory is argv[0]; one proxy each, a second one waits its turn."""
    directory = argv[0]
    lock = os.open(os.path.join(directory, "proxy.running.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    me = os.readlink("/proc/self")
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%s %d\n" % (me.encode(), kernel.start_time(me)), 0)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    proxy = Proxy(directory)
    waker, wakee = socket.socketpair()
    for sock in (waker, wakee):
        sock.setblocking(False)
    proxy.loop.watch(wakee.fileno(), IN, lambda _events: proxy.wanted.update(wakee.recv(64)))
    for number in (signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda _number, _frame: None)
    signal.set_wakeup_fd(waker.fileno())
    inotify = watch_folder(directory)
    proxy.reload()
    if inotify is None:
        _poll_for_ever(proxy)
    else:
        fd = inotify

        def news(_events: int) -> None:
            os.read(fd, 65536)
            proxy.reload()

        proxy.loop.watch(fd, IN, news)
        proxy.reload()  # what came between the first look and the watch
        while True:
            proxy.turn()


def _poll_for_ever(proxy: Proxy) -> None:
    """Without inotify (none left for this user): look four times a second."""
    while True:
        proxy.retry_at = proxy.retry_at or proxy.now + 0.25
        proxy.turn()
        proxy.reload()

"""The ops that are about one attempt: exec, put, get, forward. One object per stream."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import stat
from typing import Any, Dict, List, Optional

from ..attempt.attempts import Attempt
from ..attempt.files import destination
from ..attempt.guests import ENTERING_AGAIN, Entering, Size
from ..attempt.volumes import translated
from ..child import Child
from ..host import Host
from ..link import Message, Stream
from ..logs.log import CHUNK
from ..net import forward

DRAIN_READS = 20
"""A pipe holds less than so many chunks; what comes later is not the command's own."""

EARLY_MOST = 64
"""Messages that wait for a command to be started."""

CONNECT_S = 5.0
"""How long a port may take to answer."""

TERMINAL_MOST = 1000
"""Rows and columns of a terminal at the most."""


def encoded(data: bytes) -> str:
    """Bytes as they travel in a message."""
    return base64.b64encode(data).decode("ascii")


def _decoded(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii"))


def _size(rows: Any, cols: Any) -> Size:
    """A terminal's size, within bounds. Raises ValueError, TypeError."""
    return max(1, min(TERMINAL_MOST, int(rows))), max(1, min(TERMINAL_MOST, int(cols)))


def attempt_of(host: Host, stream: Stream, message: Message) -> Optional[Attempt]:
    """The attempt that a message names; None after telling the stream that there is none."""
    attempt = host.attempts.get(str(message["attempt"]))
    if attempt is None:
        text = "attempt %s is not here" % message["attempt"]
        stream.fail(
            "NotFound", "agent/no-attempt", text, ["`argosy status` shows the live attempts"]
        )
    return attempt


class Exec:
    """`exec`: a command inside an attempt, with a terminal or with pipes."""

    def __init__(self, host: Host, stream: Stream, message: Message) -> None:
        attempt = attempt_of(host, stream, message)
        if attempt is None:
            return
        self._stream, self._attempt = stream, attempt
        self._loop = host.place.loop
        self._input: List[bytes] = []
        self._input_over = False
        self._tty = bool(message.get("tty"))
        size = _size(message.get("rows") or 24, message.get("cols") or 80)
        argv = [str(part) for part in message["argv"]]
        self._size = size if self._tty else None
        self._closed_input = not message.get("stdin", True) and not self._tty
        env = dict(message.get("env") or {})
        self._early: List[Message] = []
        """What came before the command was there."""
        stream.on_line, stream.on_end = self._keep, stream.close
        self._begin(argv, env)

    def _keep(self, message: Message) -> None:
        self._early.append(message)
        self._stream.pause(len(self._early) > EARLY_MOST)

    def _begin(self, argv: List[str], env: Dict[str, str]) -> None:
        """Start the command, as soon as the program is where the command is to be."""
        stream = self._stream
        if stream.ended:  # the client has gone
            return
        try:
            self._guest = self._attempt.invite(argv, self._size, env)
        except Entering:
            self._loop.after(ENTERING_AGAIN, lambda: self._begin(argv, env))
            return
        except LookupError as error:
            stream.fail("Conflict", "agent/not-running", str(error))
            return
        except OSError as error:
            stream.fail("InfraError", "agent/cannot-exec", "cannot start a command: %s" % error)
            return
        if self._closed_input:
            self._guest.close_input()
        self._open = {self._guest.out: "stdout", self._guest.err: "stderr"}
        self._open.pop(-1, None)
        self._guest.on_end = self._ended
        stream.on_line, stream.on_end, stream.on_drained = self._line, self._left, self._resume
        stream.pause(False)
        self._resume()
        for message in self._early:
            stream.take(message)

    def _resume(self) -> None:
        for fd in list(self._open):
            self._loop.on_read(fd, lambda fd=fd: self._output(fd))  # type: ignore[misc]

    def _output(self, fd: int) -> None:
        data = self._read(fd)
        if data is None:
            return
        if not data:
            self._loop.on_read(fd, None)
            self._open.pop(fd, None)
            return
        self._stream.send({self._open[fd]: encoded(data)})
        if self._stream.full:
            for other in self._open:
                self._loop.on_read(other, None)

    @staticmethod
    def _read(fd: int) -> Optional[bytes]:
        """What is there; b"" at the end, None when nothing is there now."""
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:
            return None
        except OSError:  # EIO: the last one closed the terminal
            return b""

    def _line(self, message: Message) -> None:
        if "stdin" in message:
            self._input.append(_decoded(message["stdin"]))
            self._write()
        elif message.get("stdin_end"):
            self._input_over = True
            self._write()
        elif "resize" in message and self._tty:
            self._guest.resize(*_size(*message["resize"]))
        elif "signal" in message:
            self._guest.signal(int(message["signal"]))

    def _write(self) -> None:
        fd = self._guest.into
        while self._input and fd >= 0:
            try:
                count = os.write(fd, self._input[0])
            except BlockingIOError:
                self._stream.pause(len(self._input) > 64)
                self._loop.on_write(fd, self._write)
                return
            except OSError:
                self._input.clear()
                break
            self._input[0] = self._input[0][count:]
            if not self._input[0]:
                del self._input[0]
        self._stream.pause(False)
        if fd >= 0:
            self._loop.on_write(fd, None)
            if self._input_over and self._tty:
                with contextlib.suppress(OSError):  # its other end may have gone
                    os.write(fd, b"\x04")
            elif self._input_over:
                self._guest.close_input()

    def _ended(self) -> None:
        """The command has ended: what it wrote is sent, and nobody waits for who still holds its
        pipes.
        """
        for fd in list(self._open):
            for _ in range(DRAIN_READS):
                data = self._read(fd)
                if not data:
                    break
                self._stream.send({self._open[fd]: encoded(data)})
        status = self._guest.status or 0
        if os.WIFSIGNALED(status):
            self._stream.send({"signal": os.WTERMSIG(status)})
        else:
            self._stream.send({"exit_code": os.WEXITSTATUS(status)})
        self._open.clear()
        self._attempt.dismiss(self._guest)
        self._attempt.advance()
        self._stream.close()

    def _left(self) -> None:
        """The client has gone: SIGHUP, then SIGKILL."""
        if self._guest.status is None:
            self._open.clear()
            self._guest.on_end = lambda: self._attempt.dismiss(self._guest)
            self._guest.hang_up()
        self._stream.close()


class Put:
    """`put`: a file (by rename), or a folder as tar, into the attempt's working directory."""

    def __init__(self, host: Host, stream: Stream, message: Message) -> None:
        attempt = attempt_of(host, stream, message)
        if attempt is None:
            return
        self._stream = stream
        self._tar, self._unpacking = bool(message.get("tar")), False
        self._loop = host.place.loop
        try:
            self._target = _path(attempt, str(message["path"]), write=True)
            if not self._tar and (
                str(message["path"]).endswith("/") or os.path.isdir(self._target)
            ):
                raise IsADirectoryError(21, "is a folder", self._target)
            os.makedirs(self._target if self._tar else os.path.dirname(self._target), exist_ok=True)
            self._part = self._target.rstrip("/") + ".argosy-part"
            self._file = open(self._part, "wb")
            os.chmod(self._part, int(message.get("mode") or 0o644) & 0o7777)
        except (OSError, LookupError) as error:
            stream.fail("InputError", "agent/cannot-put", str(error))
            return
        stream.on_line, stream.on_end = self._line, self._left

    def _line(self, message: Message) -> None:
        try:
            if "data" in message:
                self._file.write(_decoded(message["data"]))
            elif message.get("end"):
                self._file.close()
                self._finish()
        except OSError as error:
            self._drop()
            self._stream.fail("InfraError", "agent/cannot-put", str(error))

    def _finish(self) -> None:
        if not self._tar:
            os.rename(self._part, self._target)
            self._ok(None, None)
            return
        part, target = self._part, self._target
        Child(self._loop, lambda: _unpack(part, target), self._ok)
        self._unpacking = True

    def _ok(self, _: Any, error: Optional[str]) -> None:
        if self._tar:
            os.unlink(self._part)
        if error is not None:
            self._stream.fail("InputError", "agent/cannot-put", error)
        else:
            self._stream.send({"ok": True})
            self._stream.close()
        self._part = ""

    def _left(self) -> None:
        self._drop()
        self._stream.close()

    def _drop(self) -> None:
        """Remove what came of it, unless it is whole and just being unpacked."""
        self._file.close()
        if self._part and not self._unpacking and os.path.exists(self._part):
            os.unlink(self._part)


def _unpack(archive: str, target: str) -> None:
    """Unpack below the target only."""
    import tarfile

    with tarfile.open(archive) as tar:
        for member in tar:
            place = os.path.realpath(os.path.join(target, member.name))
            root = os.path.realpath(target)
            if place != root and not place.startswith(root + os.sep):
                raise ValueError("%s lies outside" % member.name)
            tar.extract(member, target, set_attrs=True)


def _path(attempt: Attempt, path: str, write: bool = False) -> str:
    """A path of the client, relative to the attempt's working directory, as the agent sees it.
    Raises LookupError.
    """
    work = attempt.record.get("work")
    if not work:
        raise LookupError("%s has no working directory yet" % attempt.id)
    inside = os.path.normpath(destination(path, str(work), attempt.place.user.home))
    binds = (attempt.record.get("spec") or {}).get("volumes") or []
    found, read_only = translated(inside, binds)
    if write and read_only:
        raise LookupError("%s is in a volume that is mounted read-only" % path)
    return found + ("/" if path.endswith("/") else "")


class Get:
    """`get`: a file, or a folder as tar, out of the attempt's working directory."""

    def __init__(self, host: Host, stream: Stream, message: Message) -> None:
        attempt = attempt_of(host, stream, message)
        if attempt is None:
            return
        self._stream = stream
        self._temporary = ""
        try:
            path = _path(attempt, str(message["path"]))
            mode = os.stat(path).st_mode
            self._mode = mode & 0o7777
            stream.on_end = self._close
            if stat.S_ISDIR(mode):
                self._temporary = os.path.join(attempt.folder, "get-%d.tar" % id(self))
                archive = self._temporary
                Child(host.place.loop, lambda: _pack(path, archive), self._packed)
            elif stat.S_ISREG(mode):
                self._begin(path)
            else:  # to open a pipe would hold up everybody
                stream.fail("InputError", "agent/cannot-get", "%s is no file" % path)
        except (OSError, LookupError) as error:
            stream.fail("NotFound", "agent/cannot-get", str(error))

    def _packed(self, _: Any, error: Optional[str]) -> None:
        if error is not None:
            self._stream.fail("InfraError", "agent/cannot-get", error)
        if error is not None or self._stream.gone:
            self._close()
        else:
            self._stream.send({"tar": True})
            self._begin(self._temporary)

    def _begin(self, path: str) -> None:
        self._file = open(path, "rb")
        self._stream.on_drained = self._more
        self._more()

    def _more(self) -> None:
        while not self._stream.full and not self._file.closed:
            data = self._file.read(CHUNK)
            if not data:
                self._stream.send({"end": True, "mode": self._mode})
                self._close()
                return
            self._stream.send({"data": encoded(data)})

    def _close(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:
            file.close()
        if self._temporary and os.path.exists(self._temporary):
            os.unlink(self._temporary)
        self._stream.close()


def _pack(path: str, archive: str) -> None:
    import tarfile

    with tarfile.open(archive, "w") as tar:
        tar.add(path, arcname=".")


class Forward:
    """`forward`: the stream becomes a TCP connection to a port of the node, made from its own
    network.
    """

    def __init__(self, host: Host, stream: Stream, message: Message) -> None:
        attempt = attempt_of(host, stream, message)
        if attempt is None:
            return
        self._stream, self._loop = stream, host.place.loop
        self._output: List[bytes] = []
        self._ended, self._fd = False, -1
        self._port = int(message["port"])
        try:
            if attempt.group.network is None:
                raise LookupError("%s has no network yet" % attempt.id)
            node = str(attempt.order["node"])
            self._connecting = forward.Connecting(
                attempt.group.network, node, self._port, CONNECT_S
            )
        except (OSError, LookupError) as error:
            self._refused(error)
            return
        self._waiting = True
        stream.on_raw, stream.on_end = self._sent, self._left
        self._loop.on_read(self._connecting.fd, self._connected)

    def _refused(self, error: Exception) -> None:
        text = "port %d: %s" % (self._port, error)
        self._stream.fail("Unreachable", "agent/cannot-connect", text)

    def _connected(self) -> None:
        """The child has made the connection, or says why there is none."""
        self._waiting = False
        self._loop.forget(self._connecting.fd)
        self._loop.on_exit(self._connecting.pid, lambda _: None)
        try:
            self._sock = self._connecting.result()
        except OSError as error:
            self._refused(error)
            return
        self._sock.setblocking(False)
        self._fd = self._sock.fileno()
        self._stream.on_drained = self._resume
        self._stream.send({"ok": True})
        self._resume()
        self._stream.pause(False)
        self._write()

    def _resume(self) -> None:
        if self._fd >= 0:
            self._loop.on_read(self._fd, self._received)

    def _received(self) -> None:
        try:
            data = self._sock.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close()
            return
        self._stream.send_raw(data)
        if self._stream.gone:
            self._close()
        elif self._stream.full:
            self._loop.on_read(self._fd, None)

    def _sent(self, data: bytes) -> None:
        self._output.append(data)
        if self._waiting:
            self._stream.pause(len(self._output) > 16)
        self._write()

    def _write(self) -> None:
        while self._output and self._fd >= 0:
            try:
                count = self._sock.send(self._output[0])
            except BlockingIOError:
                self._stream.pause(len(self._output) > 16)
                self._loop.on_write(self._fd, self._write)
                return
            except OSError:
                self._close()
                return
            self._output[0] = self._output[0][count:]
            if not self._output[0]:
                del self._output[0]
        if self._fd >= 0:
            self._stream.pause(False)
            self._loop.on_write(self._fd, None)
            if self._ended:
                self._shut_down()

    def _left(self) -> None:
        """The client sends no more; the answer may still come."""
        self._ended = True
        if self._fd >= 0 and not self._output:
            self._shut_down()

    def _shut_down(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            self._loop.forget(self._fd)
            self._fd = -1
            self._sock.close()
        self._stream.close()

"""The calls of the C library that Python (3.8) does not offer."""

from __future__ import annotations

import ctypes
import errno
import os

_libc = ctypes.CDLL(None, use_errno=True)
_IN_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
IN_MODIFY = 0x2
IN_ONESHOT = 0x80000000
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    call = getattr(_libc, "fallocate64", None) or _libc.fallocate
    while True:
        try:
            _checked(call(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)))
            return
        except OSError as error:
            if error.errno != errno.EINTR:
                raise


def punch(fd: int, offset: int, length: int) -> None:
    """Free a part of a file; it reads as zeros, and the size stays. Raises OSError (EOPNOTSUPP)."""
    _fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, offset, length)


def reserve(fd: int, offset: int, length: int) -> None:
    """Take blocks behind the end of a file, for later writes; the size stays. Raises OSError."""
    _fallocate(fd, _KEEP_SIZE, offset, length)


def inotify() -> int:
    """A new inotify descriptor, non-blocking. Raises OSError."""
    return _checked(int(_libc.inotify_init1(_IN_NONBLOCK_CLOEXEC)))


def inotify_watch(fd: int, path: str, mask: int) -> int:
    """Watch a path; the watch descriptor. Raises OSError."""
    return _checked(int(_libc.inotify_add_watch(fd, os.fsencode(path), ctypes.c_uint32(mask))))


def inotify_forget(fd: int, watch: int) -> None:
    """Watch it no more; one that has fired or is unknown is silent."""
    _libc.inotify_rm_watch(fd, watch)

"""Who lives is who holds the lock of a file: asked without waiting, and without taking it."""

from __future__ import annotations

import fcntl
import os


def locked(path: str) -> bool:
    """Whether somebody holds an exclusive lock on it; not, when there is no such file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(fd)

"""The few system calls that Python 3.8 lacks: namespaces, mounts, host name, prctl.

Only os and ctypes are imported: the launcher loads this, and each page that it dirties is paid for
by every wrapper. For the same reason errno is read directly and not by `use_errno`.
"""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False  # as `typing` has it, which is not loaded here (launch.py)
if TYPE_CHECKING:
    from typing import Optional, Union

    Text = Union[str, bytes]
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_SLAVE = 1 << 19
# what an unprivileged remount must keep, since these may be locked; the same bits in statvfs
MS_LOCKABLE = 2 | 4 | 8 | 1024 | 2048

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36

# PyDLL keeps the interpreter lock, so nothing else runs between a call and the look at errno
libc = ctypes.PyDLL(None)
libc.mount.argtypes = (
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
)
libc.sethostname.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
_errno_location = libc.__errno_location
_errno_location.restype = ctypes.c_void_p


def last_error(what: str) -> OSError:
    """The error of the call before, to raise."""
    number = ctypes.c_int.from_address(_errno_location()).value
    return OSError(number, os.strerror(number), what)


def _checked(result: int, what: str) -> None:
    if result == -1:
        raise last_error(what)


def setns(fd: int, kind: int) -> None:
    """Join the namespace that `fd` names."""
    _checked(libc.setns(fd, kind), "setns")


def unshare(kinds: int) -> None:
    """Give the caller new namespaces (a new PID namespace is for its children only)."""
    _checked(libc.unshare(kinds), "unshare")


def mount(
    source: Optional[Text],
    target: Text,
    kind: Optional[str],
    flags: int,
    options: str = "",
) -> None:
    """mount(2); `None` for what does not apply."""
    result = libc.mount(
        None if source is None else os.fsencode(source),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        flags,
        options.encode() or None,
    )
    _checked(result, "mount on %s" % os.fsdecode(target))


def unmount(target: Text) -> None:
    """umount2(2), lazily: what still uses it keeps it."""
    _checked(libc.umount2(os.fsencode(target), 2), "umount %s" % os.fsdecode(target))


def bind(source: Text, target: Text, read_only: bool = False) -> None:
    """Bind a file or folder over another; `read_only` keeps the flags that may be locked."""
    mount(source, target, None, MS_BIND)
    if read_only:
        kept = os.statvfs(target).f_flag & MS_LOCKABLE
        mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def set_host_name(name: str) -> None:
    """sethostname(2); at most 64 bytes, so a longer name loses its end."""
    raw = name.encode()[:64]
    _checked(libc.sethostname(raw, len(raw)), "sethostname")


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument."""
    _checked(libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), "prctl")


def map_ids(uid_map: str, gid_map: str) -> None:
    """Write the id maps of the caller's new user namespace ("INSIDE OUTSIDE 1" each)."""
    for name, text in (("setgroups", "deny"), ("uid_map", uid_map), ("gid_map", gid_map)):
        fd = os.open("/proc/self/" + name, os.O_WRONLY)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def private_mounts(kinds: int = 0) -> None:
    """A mount namespace of the caller's own: sees new mounts of the host, shows it none."""
    unshare(CLONE_NEWNS | kinds)
    mount(None, "/", None, MS_REC | MS_SLAVE)


def start_time(pid: Union[int, str]) -> int:
    """Field 22 of /proc/PID/stat, clock ticks since boot; ProcessLookupError when it is gone."""
    try:
        fd = os.open("/proc/%s/stat" % pid, os.O_RDONLY)
    except FileNotFoundError:
        raise ProcessLookupError(3, "no such process", str(pid)) from None
    try:
        text = os.read(fd, 4096)
    finally:
        os.close(fd)
    return int(text[text.rindex(b")") + 2 :].split()[19])

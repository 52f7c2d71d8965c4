"""How an attempt gets into its network, names and PID namespace; used by the launcher's children.

The answer to "who ends what", for mode isolated:

- The wrapper itself moves into the group's PID namespace when it is born (`join`). With `own` it is
  PID 1 of one more namespace that holds exactly one attempt. Its mounts, network and files stay the
  host's, so claim, log and status are written as ever, and no further process is needed.
- The program is the wrapper's plain child: exit code or signal arrive exactly. An orphan, double
  fork, `setsid` and `env -i` included, gets the nearest reaper *of its own PID namespace* as its
  parent: that is the wrapper, as PID 1 or (own=False) as a subreaper. So ECHILD in the wrapper is
  "no descendant left", and `descendants(wrapper)` on the host finds all of them.
- A SIGKILL to a wrapper that is PID 1 makes the kernel end the whole attempt. With own=False its
  orphans go to the holder; a child of the holder that is in a node's network is a stray
  (`isolated.strays`). Killing the holder ends every attempt of the group in either case.
- Without `join` (no PID namespaces here, mode host) the wrapper must be a subreaper, and what then
  survives a SIGKILL of it is found by the environment's mark only.

The order matters for an ordinary user: its user namespace first, and by a single-threaded process.
"""

from __future__ import annotations

import os

from ..processes.layout import join_record
from .linux import kernel

TYPE_CHECKING = False  # as `typing` has it, which is not loaded here (launch.py)
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, NoReturn, Optional

    Spec = Dict[str, Any]
CLOSED_AT_EXEC = os.O_RDONLY | os.O_CLOEXEC


def join(
    written: int,
    _open: Callable[[bytes, int], int] = os.open,
    _read: Callable[[int, int], bytes] = os.read,
    _setns: Callable[[int, int], int] = kernel.libc.setns,
    _unshare: Callable[[int], int] = kernel.libc.unshare,
    _fork: Callable[[], int] = kernel.libc.fork,
) -> None:
    """Move into the PID namespace of the holder whose `join_record` (processes/layout.py) the
    descriptor `written` gives; returns in another process.

    Call it in a fresh, single-threaded child. The caller's process exits with 0; the one that goes
    on is a child of the holder, in the same session, with the same descriptors (and two more, which
    are closed at exec). That it is the right holder, and not a later process with its pid, is seen
    by `enter`, before the program is executed.
    Raises OSError while still in the caller's process (FileNotFoundError: there is no holder).
    """
    # As little Python as can be, numbers below 257, and the C library's fork: what is touched here
    # stays private to the wrapper for as long as the attempt runs. The last parameters are bound
    # names for that; what ends before it may look them up.
    fd = _open(_read(written, 32), 0)
    user = _open(_read(written, 32), 0)
    own = _read(written, 32)[0] == 49  # b"1"
    _setns(user, 0)  # refused when it is ours already; if not, the next fails
    if _setns(fd, 0):
        raise kernel.last_error("setns to the PID namespace of the group's holder")
    # A process in between: unshare is refused to who has only just set its children's namespace,
    # and its end makes the holder our parent. It is waited for here, since the end of the holder
    # would wait for whoever reaps it.
    between = _fork()
    if between == 0:
        if own and _unshare(0x20000000):  # CLONE_NEWPID
            os._exit(71)
        after = _fork()
        if after:
            os._exit(71 if after < 0 else 0)
        return
    if between < 0:
        raise kernel.last_error("fork")
    if os.waitpid(between, 0)[1]:
        raise OSError(11, "could not fork in the group's PID namespace")
    os._exit(0)


def join_holder(pid: int, own: bool) -> None:
    """`join` for who has no record in a file."""
    reader, writer = os.pipe()
    os.write(writer, join_record(pid, own))
    os.close(writer)
    join(reader)


def enter(spec: Spec) -> None:
    """Give the calling process the network, names and user that `spec` describes.

    For the program's own process, before it executes; what it may need of the host's /proc must be
    read before. Raises OSError with what failed.
    """
    if spec["mode"] == "isolated":
        _enter_isolated(spec)
    elif spec["names"] == "mount":
        _enter_host(spec)


def _enter_isolated(spec: Spec) -> None:
    holder = "/proc/%d" % spec["holder"][0]
    net = os.open(holder + "/root" + spec["net"], os.O_RDONLY | os.O_CLOEXEC)
    user = _other(holder + "/ns/user", "/proc/self/ns/user")
    if kernel.start_time(spec["holder"][0]) != spec["holder"][1]:
        raise ProcessLookupError(3, "the group's holder is gone", str(spec["holder"][0]))
    # /proc numbers us as the host does; if we count otherwise, we are in the group's namespace
    joined = os.readlink("/proc/self") != str(os.getpid())
    if user is not None:
        kernel.setns(user, kernel.CLONE_NEWUSER)
        os.close(user)
    kernel.setns(net, kernel.CLONE_NEWNET)
    os.close(net)
    kernel.private_mounts(kernel.CLONE_NEWUTS)
    _bind(spec)
    if joined:
        kernel.mount("proc", "/proc", "proc", 2 | 4 | 8)
    if spec["user"]:
        kernel.unshare(kernel.CLONE_NEWUSER)
        kernel.map_ids("%d 0 1" % spec["uid"], "%d 0 1" % spec["gid"])


def _enter_host(spec: Spec) -> None:
    if spec["user"]:
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare(kernel.CLONE_NEWUSER)
        kernel.map_ids("%d %d 1" % (uid, uid), "%d %d 1" % (gid, gid))
    kernel.private_mounts(kernel.CLONE_NEWUTS)
    _bind(spec)


def _bind(spec: Spec) -> None:
    for source, target in spec["binds"]:
        kernel.bind(source, target, read_only=True)
    if spec.get("volumes"):
        from .linux import mounts  # only here: it costs every wrapper memory

        mounts.bind_all(spec["volumes"])
    kernel.set_host_name(spec["hostname"])


def exec_into(
    spec: Spec,
    pid: int,
    argv: List[str],
    env: Optional[Dict[str, str]] = None,
    cwd: Optional[str] = None,
) -> NoReturn:
    """Run `argv` where the attempt's program `pid` (of the host) lives; never returns.

    For a forked child. `env` and `cwd` default to the program's own. Exits as the command did: with
    its code, or by its signal; 127 when it cannot be executed. Ending the caller ends the command.
    """
    code = 127
    try:
        if env is None:
            env = _environment(pid)
        inside = _join_attempt(spec, pid, cwd)
        if inside:
            reader, writer = os.pipe()
            child = os.fork()
            if child:
                _mirror(child)
            os.close(writer)
            kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)
            os.set_blocking(reader, False)
            try:
                os.read(reader, 1)
                os._exit(code)  # end-of-file: the caller ended before the signal was asked for
            except BlockingIOError:
                pass
        try:
            os.execvpe(argv[0], argv, env)
        except FileNotFoundError:
            os.write(2, ("argosy: %s: no such command\n" % argv[0]).encode("utf-8", "replace"))
    except OSError as error:
        os.write(2, ("argosy: cannot run %s: %s\n" % (argv[0], error)).encode())
        code = 126 if isinstance(error, PermissionError) else 127
    finally:
        os._exit(code)


def _join_attempt(spec: Spec, pid: int, cwd: Optional[str]) -> bool:
    """Join all that the program has of its own; True if the PID namespace is another."""
    isolated = spec["mode"] == "isolated"
    proc = "/proc/%d/" % pid
    folder = None if cwd else os.open(proc + "cwd", os.O_RDONLY | os.O_DIRECTORY)
    inner = _other(proc + "ns/user", "/proc/self/ns/user")
    outer = None
    if isolated and inner is not None:
        outer = _other("/proc/%d/ns/user" % spec["holder"][0], "/proc/self/ns/user")
    places = [(_other(proc + "ns/" + name, "/proc/self/ns/" + name), kind) for name, kind in KINDS]
    inside = places[-1][0] is not None
    # In mode isolated the mounts belong to the holder's user namespace, not to the program's own.
    first, last = (outer, inner) if outer is not None else (inner, None)
    same = outer is not None and os.path.sameopenfile(outer, inner) if inner is not None else False
    for fd, kind in [(first, kernel.CLONE_NEWUSER), *places]:
        if fd is not None:
            kernel.setns(fd, kind)
    if last is not None and not same:
        kernel.setns(last, kernel.CLONE_NEWUSER)
    os.chdir(folder if folder is not None else cwd or "/")
    return inside


KINDS = (
    ("mnt", kernel.CLONE_NEWNS),
    ("net", kernel.CLONE_NEWNET),
    ("uts", kernel.CLONE_NEWUTS),
    ("pid", kernel.CLONE_NEWPID),
)


def _mirror(child: int) -> NoReturn:
    """Wait for `child` and end as it ends; TERM and HUP are passed on, the terminal's are its."""
    import signal

    def pass_on(number: int, _frame: Any) -> None:
        try:
            os.kill(child, number)
        except ProcessLookupError:
            pass  # it has ended, perhaps of the same signal

    for passed_on in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(passed_on, pass_on)
    for told_by_terminal in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(told_by_terminal, signal.SIG_IGN)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # one core file is enough
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _environment(pid: int) -> Dict[str, str]:
    with open("/proc/%d/environ" % pid, "rb") as file:
        pairs = [entry.partition(b"=") for entry in file.read().split(b"\0") if b"=" in entry]
    return {os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs}


def _other(path: str, own: str) -> Optional[int]:
    """A descriptor of the namespace at `path`; None when the caller is in it already."""
    if os.readlink(path) == os.readlink(own):
        return None
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

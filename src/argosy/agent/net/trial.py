"""What works here: tried, not guessed, by building a one-node group with all its parts.

The answer is kept in a file for as long as the machine runs and its programs stay where they are.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import zlib
from typing import Any, Dict, List, Optional

from . import enter, isolated, names
from .linux import holder as holders
from .linux import inside, kernel, router
from .linux.hints import hint
from .machine import TRIALS
from .network import NetworkError, boot_id, write_whole

NODE = "node-0"
OF_TRIAL = re.compile(r"trial-([0-9]+)-([0-9]+)(-.*)?")  # pid and start time of who tries
OLD_S = 600.0
"""No trial takes that long."""
NO_NAMES = "install libnss-wrapper, or allow user namespaces, or run the agent as root"


def trial(directory: str, wanted: str = "auto", way_out: Optional[bool] = None) -> Dict[str, Any]:
    """Find out what works, or read what was found on this boot; see the package for the keys.

    A failure is remembered too; `forget` makes the next call try again.
    """
    if way_out is None:
        way_out = router.host_has_default_route()
    key = [boot_id(), os.geteuid(), wanted, way_out, _programs()]
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path = os.path.join(directory, TRIALS)
    known = _read(path)
    name = "%s-%s" % (wanted, way_out)
    if known.get(name, {}).get("key") == key:
        answer: Dict[str, Any] = known[name]["answer"]
        return answer
    answer = _try(directory, wanted, way_out)
    known.pop(name, None)  # the newest is the last
    write_whole(path, json.dumps({**known, name: {"key": key, "answer": answer}}))
    return answer


def forget(directory: str) -> None:
    """Let the next `trial` try again."""
    path = os.path.join(directory, TRIALS)
    if os.path.exists(path):
        os.unlink(path)


def clear(directory: str) -> None:
    """End what trials have left that were killed: holders with all that is in them, folders."""
    for mark, holder in holders.every():
        if _is_left(mark) and _is_of_this_namespace(holder.pid):
            try:
                holders.kill(holder)
            except (OSError, NetworkError) as error:  # another user's
                sys.stderr.write("trial: holder %d: %s\n" % (holder.pid, error))
    for name in os.listdir(directory) if os.path.isdir(directory) else []:
        path = os.path.join(directory, name)
        if _is_left(name) if "-%s-" % _here() in name else _is_old(name, path):
            shutil.rmtree(path, ignore_errors=True)


def _is_old(name: str, path: str) -> bool:
    """Whether a trial of another PID namespace, or before this boot, must have come to its end."""
    try:
        old = time.time() - os.stat(path).st_mtime > OLD_S
    except OSError:
        return False
    return old and OF_TRIAL.fullmatch(name) is not None


def _mine() -> str:
    """What everything that this process tries is called."""
    return "trial-%d-%d" % (os.getpid(), kernel.start_time("self"))


def _folder() -> str:
    """What the names of its folders begin with."""
    return "%s-%s-" % (_mine(), _here())


def _here() -> str:
    """Where pids mean the same as here: this boot of this machine, this PID namespace."""
    return "%08x" % zlib.crc32((boot_id() + os.readlink("/proc/self/ns/pid")).encode())


def _is_left(name: str) -> bool:
    """Whether it is of a trial whose process has ended."""
    found = OF_TRIAL.fullmatch(name)
    if found is None:
        return False
    try:
        return kernel.start_time(found.group(1)) != int(found.group(2))
    except ProcessLookupError:
        return True


def _is_of_this_namespace(holder: int) -> bool:
    """Pids mean the same there: the holder is one PID namespace below us, not in a container."""
    try:
        with open("/proc/%d/status" % holder, encoding="ascii", errors="replace") as file:
            numbers = [line.split()[1:] for line in file if line.startswith("NSpid:")]
    except OSError:
        return False
    return bool(numbers) and len(numbers[0]) == 2


def _programs() -> List[Optional[str]]:
    """What an administrator may change between two trials of one boot."""
    return [router.find_program("nft"), router.way_out_problem()]


def _read(path: str) -> Dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            value: Dict[str, Any] = json.load(file)
            return value
    except (OSError, ValueError):
        return {}


def _try(directory: str, wanted: str, way_out: bool) -> Dict[str, Any]:
    failure: Optional[NetworkError] = None
    if wanted != "host":
        try:
            namespaces = _try_isolated(directory, way_out)
            return _answer("isolated", "mount", way_out, namespaces)
        except NetworkError as error:
            failure = error
        if wanted == "isolated":
            return _answer("none", "none", False, False, failure)
    return _try_host(directory, failure)


def _answer(
    mode: str,
    shown: str,
    way_out: bool,
    pid_namespaces: bool,
    failure: Optional[NetworkError] = None,
) -> Dict[str, Any]:
    return {
        "mode": mode,
        "names": shown,
        "pid_namespaces": pid_namespaces,
        "way_out": way_out,
        "failed_step": failure.step if failure else "",
        "reason": failure.reason if failure else "",
        "hint": failure.hint if failure else "",
    }


def _try_isolated(directory: str, way_out: bool) -> bool:
    """Build, put an attempt into it, tear down; tells whether PID namespaces work."""
    if way_out and router.way_out_problem():
        raise NetworkError("pasta", router.way_out_problem(), hint("pasta", 0))
    with tempfile.TemporaryDirectory(prefix=_folder(), dir=directory) as folder:
        place = os.path.join(folder, "net")
        network = isolated.build(place, _mine(), [NODE], way_out=way_out)
        try:
            names.rewrite(network.hosts, names.compose("trial", network))
            spec = isolated.enter_attempt(network, NODE, NODE + ".trial")
            try:
                _try_attempt(spec)
                return True
            except NetworkError:
                _try_attempt({**spec, "join": None})
                return False
        finally:
            isolated.destroy(network.record())


def _try_attempt(spec: Dict[str, Any]) -> None:
    """A wrapper and a program, as the launcher makes them; raises what the program met."""
    with inside.step("attempt"):
        reader, writer = os.pipe()
        child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            inside.plain_signals()
            signal.alarm(10)
            if spec["join"]:
                holder, _, own = spec["join"]
                enter.join_holder(holder, own)
            os.write(writer, inside.answer(lambda: _program(spec)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    inside.read_answer(reader, child)


def _program(spec: Dict[str, Any]) -> bool:
    return bool(inside.call(lambda: _see_names(spec)))


def _see_names(spec: Dict[str, Any]) -> bool:
    with inside.step("attempt"):
        enter.enter(spec)
    own = os.uname().nodename
    with open("/etc/hosts", encoding="utf-8") as file:
        if own != spec["hostname"] or own not in file.read():
            raise NetworkError("attempt", "the attempt does not see its own names")
    return True


def _try_host(directory: str, failure: Optional[NetworkError]) -> Dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix=_folder(), dir=directory) as folder:
        path = os.path.join(folder, "hosts")
        names.rewrite(path, "127.0.0.1 localhost\n")
        try:
            names.try_mount(path)
            return _answer("host", "mount", False, False, failure)
        except NetworkError as error:
            failure = failure or NetworkError("names", error.reason, error.hint or NO_NAMES)
    shown = "nss_wrapper" if names.nss_wrapper() else "none"
    return _answer("host", shown, False, False, failure)

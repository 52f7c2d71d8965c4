"""Leases of this machine for one server: `agent lease` answers each line of JSON that it reads.

    {"id": N, "op": "look"}     boot id, leases of this server, what anybody has taken
    {"id": N, "op": "take", "lease": L, "group": G, ...}     ensure a lease, and that an agent runs
    {"id": N, "op": "release", "lease": L}     mark it; a process of its own ends what runs, and
                                               then the lease; `{"changed": true}` says so
    {"id": N, "op": "start"}    ensure that the agent listens
    {"id": N, "op": "volumes"}, "remove-volume"     the volumes of this server; remove one's bytes

The first line is `{"facts": .., "boot_id": .., "home": .., "address": ..}`. It ends with standard
input, or after SILENCE_S without a word; what it began goes on. A lease is this server's when it
names this home.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any, Dict, List, Optional

from .. import facts
from ..net import machine
from ..processes.folder import boot_id
from .book import MACHINE_FILE, Book, Refused

TYPE_CHECKING = False  # as `typing` has it
if TYPE_CHECKING:
    import socket

    from .book import Entries

SILENCE_S = 120.0
START_S = 20.0
TELL_TRIES = 5
RELEASE_S = 3600.0
LOOK_AT_CHILDREN_S = 0.02
LATER: Dict[str, Any] = {}
"""In place of an answer that comes when a process has ended."""
TRIAL_NICE = 10
TRIAL_AFTER_S = 2.0
"""What a server asks a host that it meets comes first: a trial is as much work as all of that. A
plan made meanwhile does not know the network here; an agent that is started makes its own trial.
"""
KEPT_VARIABLES = ("HOME", "USER", "LOGNAME", "TZ", "XDG_RUNTIME_DIR")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Desk:
    """The answers, and the processes that were begun."""

    def __init__(self, home: str, shared: str, options: Dict[str, str]) -> None:
        self._home, self._shared, self._options = home, shared, options
        self.boot = boot_id()
        self.facts = facts.host_facts(home)
        self._book = Book(options.get("book") or MACHINE_FILE, self.boot)
        self.address = options.get("address") or machine.found_address()
        try:
            machine.say_address(home, self.address)
        except OSError as error:  # the agent then finds out itself
            sys.stderr.write("%s: %s\n" % (home, error.strerror))
        self._starter: Any = None
        """The `subprocess.Popen` that starts the agent; None: nobody does."""
        self._ending: Dict[str, int] = {}
        self._removing: Dict[int, Any] = {}
        """Process -> the request that it works for."""
        self.late: List[Dict[str, Any]] = []
        """Answers to requests of before."""
        self._trying = 0
        self._try_at: Optional[float] = time.monotonic() + TRIAL_AFTER_S
        """When the network has to be tried, on the monotonic clock; None: it was seen to."""

    def try_network(self) -> None:
        """Find out which network works here, in a process of its own, unless that is known; in its
        time.
        """
        if self._try_at is None or time.monotonic() < self._try_at:
            return
        self._try_at = None
        if machine.found_mode(self._shared, self.boot):
            return
        self._trying = os.fork()
        if self._trying == 0:
            try:
                os.nice(TRIAL_NICE)
                null = os.open(os.devnull, os.O_RDWR)
                for fd in (0, 1, 2):  # the connection waits for the end of these
                    os.dup2(null, fd)
                from ..net import trial  # a large import, which no server waits for

                trial.clear(self._shared)
                trial.trial(self._shared)
            finally:
                os._exit(0)

    def answer(self, asked: Dict[str, Any]) -> Dict[str, Any]:
        """The answer to one request, an error included; LATER: `late` will have it."""
        try:
            verbs = {"look": self._look, "take": self._take, "release": self._release,
                     "start": self._start, "volumes": self._volumes,
                     "remove-volume": self._remove_volume}  # fmt: skip
            found = verbs[asked["op"]](asked)
        except Refused as error:
            found = {"error": error.code, "text": error.text, "hint": error.hint,
                     "later": error.later}  # fmt: skip
        except (KeyError, TypeError, ValueError, OSError) as error:
            found = {"error": "failed", "text": repr(error), "hint": "", "later": True}
        return found if found is LATER else {"id": asked.get("id"), **found}

    @property
    def patience(self) -> float:
        """Seconds that a request may be waited for before something else has to be seen to."""
        if self._ending or self._removing or self._trying or self._starter is not None:
            return LOOK_AT_CHILDREN_S
        if self._try_at is not None:
            return max(0.0, self._try_at - time.monotonic())
        return SILENCE_S

    def collect(self) -> bool:
        """Reap what has ended; whether leases may have changed by that."""
        if self._starter is not None and self._starter.poll() is not None:
            self._starter = None
        over = [lease for lease, pid in self._ending.items() if os.waitpid(pid, os.WNOHANG)[0]]
        for lease in over:
            del self._ending[lease]
        for pid in list(self._removing):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                found = {"id": self._removing.pop(pid)}
                if status:
                    text = "something of the volume in %s/volumes cannot be removed" % self._shared
                    found.update(
                        error="volume", text=text, hint="remove it on the host", later=True
                    )
                self.late.append(found)
        tried = bool(self._trying and os.waitpid(self._trying, os.WNOHANG)[0])
        if tried:
            self._trying = 0
        return bool(over) or tried

    # The verbs

    def _look(self, _asked: Dict[str, Any]) -> Dict[str, Any]:
        entries = self._book.entries()
        living = self._book.living(entries)
        taken = {index for one in living for index in one["indices"]}
        return {
            "boot_id": self.boot,
            "leases": {lease: one for lease, one in entries.items() if self._mine(one)},
            "cpus": sum(float(one["cpus"]) for one in living),
            "memory_gib": sum(float(one["memory_gib"]) for one in living),
            "gpus": sorted(taken | self._book.gpus_of_others(entries)),
            "holders": sorted(lease for lease, one in entries.items() if one["boot"] == self.boot),
            "network": machine.found_mode(self._shared, self.boot),
        }

    def _take(self, asked: Dict[str, Any]) -> Dict[str, Any]:
        lease = str(asked["lease"])
        with self._book.changed(cards=bool(int(asked["gpus"]))) as entries:
            held = entries.get(lease)
            if held is None:
                held = self._fitting(asked, entries)
                zero = entries.get(asked["group_lease"])
                if zero is None or zero["released"] or zero["boot"] != self.boot:
                    entries[asked["group_lease"]] = self._entry(asked, 0.0, 0.0, [])
                entries[lease] = held
            elif not self._mine(held):
                raise Refused("foreign", "%s is held by %s" % (lease, held["home"]), "", False)
        if not held["released"] and held["boot"] == self.boot:
            self._begin_start()
        return {"lease": held}

    def _fitting(self, asked: Dict[str, Any], entries: Entries) -> Dict[str, Any]:
        """The entry for what is asked. Raises Refused when it does not fit, now or ever."""
        living = self._book.living(entries)
        cpus, memory = float(asked["cpus"]), float(asked["memory_gib"])
        count, choices = int(asked["gpus"]), [int(one) for one in asked["choices"]]
        there = {int(card["index"]) for card in self.facts["gpus"]}
        choices = [one for one in choices if one in there]
        total = (float(self.facts["cpus"]), float(self.facts["memory_gib"]), len(choices))
        taken = {index for one in living for index in one["indices"]}
        taken |= self._book.gpus_of_others(entries)
        free_gpus = [one for one in choices if one not in taken]
        free = (
            total[0] - sum(float(one["cpus"]) for one in living),
            total[1] - sum(float(one["memory_gib"]) for one in living),
            len(free_gpus),
        )
        wanted = (cpus, memory, count)
        if any(want > have for want, have in zip(wanted, total)):
            raise Refused("too-large", "%s wanted, %s in all" % (_words(wanted), _words(total)),
                          "ask for less, or name a larger host", False)  # fmt: skip
        if any(want > have for want, have in zip(wanted, free)):
            raise Refused("full", "%s wanted, %s free" % (_words(wanted), _words(free)),
                          "`argosy infra check` shows who holds what", True)  # fmt: skip
        return self._entry(asked, cpus, memory, free_gpus[:count])

    def _entry(
        self, asked: Dict[str, Any], cpus: float, memory: float, indices: List[int]
    ) -> Dict[str, Any]:
        return {
            "home": self._home, "uid": os.getuid(), "boot": self.boot, "at": time.time(),
            "group": asked["group"], "group_name": asked["group_name"], "cpus": cpus,
            "memory_gib": memory, "indices": indices, "released": False,
        }  # fmt: skip

    def _release(self, asked: Dict[str, Any]) -> Dict[str, Any]:
        lease = str(asked["lease"])
        if not os.path.exists(self._book.path):
            return {"there": False}
        with self._book.changed() as entries:
            held = entries.get(lease)
            if held is None or not self._mine(held):
                return {"there": False}
            held["released"] = True
        if lease not in self._ending:
            self._ending[lease] = self._beside(lease, held)
        return {"there": True}

    def _start(self, _asked: Dict[str, Any]) -> Dict[str, Any]:
        self._begin_start()
        import subprocess

        try:
            if self._starter is not None:
                self._starter.wait(START_S)
        except subprocess.TimeoutExpired:
            raise Refused("agent", "the agent did not start within %g s" % START_S,
                          "read %s/agent.log on the host" % self._home, True)  # fmt: skip
        return {}

    def _volumes(self, _asked: Dict[str, Any]) -> Dict[str, Any]:
        from ..attempt import volumes

        return {"volumes": volumes.names(self._shared)}

    def _remove_volume(self, asked: Dict[str, Any]) -> Dict[str, Any]:
        """In a process of its own, since it may be large; the answer comes when it has ended."""
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                from ..attempt import volumes

                volumes.remove(self._shared, str(asked["volume"]))
                code = 0
            except OSError as error:
                sys.stderr.write("%s: %s\n" % (error.filename, error.strerror))
            finally:
                os._exit(code)
        self._removing[pid] = asked.get("id")
        return LATER

    # The agent, and ending what a lease has

    def _mine(self, entry: Dict[str, Any]) -> bool:
        return bool(entry["home"] == self._home)

    def _begin_start(self) -> None:
        """Start the agent unless one lives or is being started."""
        import subprocess  # here only: who looks at a host has no need of it

        self.collect()
        if self._starter is not None or self._lives():
            return
        words = ["run", "--home", self._home, "--shared", self._shared, "--detach"]
        for name in ("server-id", "idle-exit"):
            if name in self._options:
                words += ["--" + name, self._options[name]]
        command = [sys.executable, "-I", "-S", os.path.abspath(sys.argv[0]), *words]
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        with open(os.path.join(self._home, "agent.log"), "ab") as log:
            self._starter = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, close_fds=True,
                env={"PATH": PATH, "LANG": "C.UTF-8", **kept}, start_new_session=True,
            )  # fmt: skip

    def _beside(self, lease: str, held: Dict[str, Any]) -> int:
        """End a lease in a process of its own, which survives this one; its pid."""
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            log = os.open(os.path.join(self._home, "agent.log"), os.O_WRONLY | os.O_APPEND
                          | os.O_CREAT, 0o600)  # fmt: skip
            for fd, target in ((null, 0), (null, 1), (log, 2)):
                os.dup2(fd, target)
            self._starter, self._trying = None, 0  # the parent's children
            self._ending, self._removing = {}, {}
            code = 0 if self._end(lease, held) else 1
        except (OSError, ValueError, Refused) as error:
            os.write(2, ("release of %s: %r\n" % (lease, error)).encode("utf-8", "replace"))
        finally:
            os._exit(code)

    def _end(self, lease: str, held: Dict[str, Any]) -> bool:
        """Whether nothing of the lease is left; it is forgotten then."""
        if lease == held["group"] + ".0":
            others = [
                one
                for name, one in self._book.entries().items()
                if self._mine(one) and one["group"] == held["group"] and name != lease
            ]
            if others:
                return False
            from ..commands import end_network

            if end_network(self._shared, held["group"]):
                return False
        elif not self._tell(lease):
            return False
        with self._book.changed() as entries:
            there = entries.get(lease)
            if there is not None and self._mine(there) and there["released"]:  # not taken anew
                del entries[lease]
        return True

    def _tell(self, lease: str) -> bool:
        """Have the agent end everything of the lease, where one ever ran; it is started for it."""
        sock = self._connected()
        for _ in range(TELL_TRIES):  # one that finds nothing to do may end before it is asked
            if sock is not None:
                break
            if not os.path.exists(os.path.join(self._home, "journal")):
                return True
            self._start({})
            sock = self._connected()
        if sock is None:
            return False
        with sock:
            sock.settimeout(RELEASE_S)
            sock.sendall(json.dumps({"op": "release", "lease": lease}).encode("ascii") + b"\n")
            answer = sock.makefile("rb").readline()
        return bool(answer) and "ok" in json.loads(answer)

    def _lives(self) -> bool:
        """Whether an agent listens, be it too busy to answer."""
        import socket  # here only: who looks at a host has no need of it

        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.setblocking(False)
            try:
                os.chdir(self._home)  # the path of a socket is short
                sock.connect("agent.sock")
            except BlockingIOError:
                return True
            except OSError:
                return False
        return True

    def _connected(self) -> Optional[socket.socket]:
        import socket

        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.chdir(self._home)  # the path of a socket is short
            sock.connect("agent.sock")
            return sock
        except OSError:
            sock.close()
            return None


def _words(amount: Any) -> str:
    return "%.4g cpus, %.4g GiB, %d GPUs" % tuple(amount)


def serve(options: Dict[str, str]) -> int:
    """Answer requests from standard input until it ends."""
    home = os.path.realpath(os.path.expanduser(options["home"]))
    shared = os.path.realpath(os.path.expanduser(options.get("shared") or home))
    for folder in (home, shared):
        os.makedirs(folder, mode=0o700, exist_ok=True)
    sys.argv[0] = os.path.abspath(sys.argv[0])
    desk = Desk(home, shared, options)
    _say({"facts": desk.facts, "boot_id": desk.boot, "home": home, "address": desk.address})
    rest, heard = b"", time.monotonic()
    while True:
        desk.try_network()
        if select.select([0], [], [], desk.patience)[0]:
            data = os.read(0, 65536)
            if not data:
                return 0
            heard = time.monotonic()
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                answer = desk.answer(json.loads(line))
                if answer is not LATER:
                    _say(answer)
        elif time.monotonic() - heard > SILENCE_S - 1.0:
            return 0
        if desk.collect():
            _say({"changed": True})
        while desk.late:
            _say(desk.late.pop(0))


def _say(message: Dict[str, Any]) -> None:
    data = json.dumps(message).encode("ascii") + b"\n"
    while data:
        data = data[os.write(1, data) :]

"""The agent's commands: `run`, `attach`, `lease`, `launcher`, `version`.

run       be the agent of a home folder (one per folder; a second one is refused with exit code 7)
attach    join standard input and output to the agent's socket (relay.py)
container be PID 1 of a container, and keep its agent alive (container.py)
dial      let a server in that this host can reach (dial.py)
keep      write ended attempts and their logs to standard output (keep.py)
lease     answer questions about leases of this machine, for a server elsewhere (leases/desk.py)
launcher  what `run` starts for its wrappers
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from typing import Any, Dict, List, Optional, Set

from . import __version__

IDLE_EXIT_S = 600.0
END_WAIT_S = 10.0
LOCK_WAIT_S = 1.0
EXIT_CONFLICT, EXIT_USAGE = 7, 2
USAGE = """usage: agent run --home DIR [--shared DIR] [--server-id ID] [--idle-exit SECONDS]
                 [--capacity JSON] [--address IP] [--detach] [--kept]
       agent container --home DIR [--server-id ID] [--address IP]
       agent attach --home DIR [--say WORD] [--wait SECONDS]
       agent lease --home DIR [--shared DIR] [--server-id ID] [--idle-exit SECONDS] [--book FILE]
                   [--address IP]
       agent facts --shared DIR [--home DIR]
       agent dial --home DIR      (ARGOSY_DIAL, ARGOSY_LEASE, ARGOSY_DIAL_FOLDER in the environment)
       agent keep --home DIR
       agent end-network --shared DIR --group GROUP
       agent version
"""


def main(argv: Optional[List[str]] = None) -> int:
    """Run one command; the exit code."""
    words = sys.argv[1:] if argv is None else argv
    command, options = (words[0], _options(words[1:])) if words else ("", {})
    if command == "run" and options is not None and "home" in options:
        return run(options)
    if command == "container" and options is not None and "home" in options:
        from .pod import container

        home = os.path.abspath(options["home"])
        given = options  # mypy: never None from here on
        return container.serve(home, lambda: run(given), lambda: _dial(home))
    if command == "dial" and options is not None and "home" in options:
        return _dial(options["home"])
    if command == "keep" and options is not None and "home" in options:
        from .pod import keep

        return keep.keep(options["home"], sys.stdout.buffer)
    if command == "attach" and options is not None and "home" in options:
        from . import relay

        return relay.relay(options["home"], options.get("say", ""), float(options.get("wait") or 0))
    if command == "facts" and options is not None and "shared" in options:
        from . import commands

        return commands.facts(options.get("home") or options["shared"], options["shared"])
    if command == "end-network" and options is not None and "group" in options:
        from . import commands

        return commands.end_network(options["shared"], options["group"])
    if command == "lease" and options is not None and "home" in options:
        from .leases import desk

        return desk.serve(options)
    if command == "launcher":
        from .launch import launch

        launch()
        return 0
    if command == "version":
        print(__version__)
        return 0
    sys.stderr.write(USAGE)
    return EXIT_USAGE


def _options(words: List[str]) -> Optional[Dict[str, str]]:
    """`--name value` pairs (no argparse: it would cost every agent a megabyte); None when
    malformed.
    """
    options: Dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word[2:].partition("=")
        if not word.startswith("--") or name not in (
            "home", "shared", "server-id", "idle-exit", "capacity", "detach", "group",
            "book", "say", "address", "wait", "kept",
        ):  # fmt: skip
            return None
        if name in ("detach", "kept"):
            options[name] = "1"
        elif equals:
            options[name] = value
        elif rest:
            options[name] = rest.pop(0)
        else:
            return None
    return options


def _dial(home: str) -> int:
    """Let the server in that the environment names; never ends by itself."""
    from .pod import dial

    env = os.environ
    dial.Dialer(home, env["ARGOSY_DIAL"], env["ARGOSY_DIAL_FOLDER"], env["ARGOSY_LEASE"]).run()
    return 0


def package_command(code: str) -> List[str]:
    """How to run code that may import `agent`, from a zip file or a folder, frugally."""
    here = os.path.dirname(os.path.abspath(__file__))
    start = "import sys; sys.path.append(sys.argv[1]); sys.dont_write_bytecode = True; "
    return [sys.executable, "-I", "-S", "-c", start + code, os.path.dirname(here)]


def run(options: Dict[str, str]) -> int:
    """Be the agent of a home folder until there is nothing to do."""
    from .logs import own

    home = os.path.abspath(options["home"])
    shared = os.path.abspath(options.get("shared") or home)
    for folder in (home, shared, os.path.join(home, "attempts"), os.path.join(home, "work")):
        os.makedirs(folder, mode=0o700, exist_ok=True)
    if options.get("detach") and not _detached(home):
        return 0
    if not _locked(home):
        sys.stderr.write("error: another agent lives in %s\n" % home)
        return EXIT_CONFLICT
    os.chdir(home)
    own.cap("agent.log")
    if options.get("address"):
        from .net import machine

        machine.say_address(home, options["address"])
    return Agent(home, shared, options).run()


def _locked(home: str) -> bool:
    """Become the only agent of the folder; waits a moment, for a child that a killed agent has just
    forked.
    """
    lock = os.open(os.path.join(home, "agent.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() > deadline:
                os.close(lock)
                return False
        time.sleep(0.02)


def _detached(home: str) -> bool:
    """Go on in a process of one's own, with `agent.log` as its output; False in the caller, once it
    listens.
    """
    ready, told = os.pipe()
    if os.fork():
        os.close(told)
        os.read(ready, 1)  # ends when the agent has bound its socket, or has ended
        return False
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open(os.path.join(home, "agent.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ["ARGOSY_AGENT_READY"] = str(told)
    return True


class Agent:
    """All parts put together."""

    def __init__(self, home: str, shared: str, options: Dict[str, str]) -> None:
        from . import environment, facts, gpus, host, journal, link, loop, place
        from .door import control
        from .fence import keeper
        from .logs import tailer
        from .pod import container
        from .processes import execution, folder
        from .store import stock

        _plain_process()
        self.loop = loop.Loop()
        boot = folder.boot_id()
        me = folder.identity_of(os.getpid(), boot)
        assert me is not None
        self._write_json(home, {"pid": me.pid, "start_time": me.started, "boot_id": boot})
        given = control.read_capacity(options.get("capacity", ""))
        found = facts.host_facts(home)
        real_gpus = len(found["gpus"])
        found.update(given, network={})
        gpu_file = gpus.MACHINE_FILE if real_gpus else os.path.join(home, "gpus.json")
        self.place = place.Place(
            home=home,
            shared=shared,
            boot=boot,
            me=me,
            user=environment.this_user(),
            image=container.image_environment(home),
            gpus_on_host=real_gpus,
            loop=self.loop,
            journal=journal.Journal(os.path.join(home, "journal")),
            launcher=execution.Launcher(
                self.loop,
                package_command("from agent.launch import launch; launch()"),
                "agent@" + home,
            ),
            tailer=tailer.Tailer(self.loop),
            gpus=gpus.Reservations(gpu_file, boot, self.loop),
            stock=stock.Stock(self.loop, os.path.join(shared, "store")),
        )
        self.host = host.Host(self.place)
        watchdog = "from agent.fence.watchdog import watch; watch(*sys.argv[2:])"
        self.fence = keeper.Keeper(self.place, self.host.attempts, package_command(watchdog))
        kept = bool(options.get("kept"))
        self.desk = control.Desk(self.host, found, self.fence, kept=kept)
        self.host.on_empty = self.desk.on_change = self._idle
        self._idle_exit = float(options.get("idle-exit") or IDLE_EXIT_S)
        self._idle_timer: Optional[loop.Timer] = None
        self.host.adopt()
        self.fence.begin()
        self.place.stock.needed = self._trees
        self.place.stock.sweep()
        self.server = link.Server(self.loop, "agent.sock", self.desk.first)
        if not kept:  # else nothing will run here
            self._try_network(shared)

    @staticmethod
    def _write_json(home: str, value: Dict[str, Any]) -> None:
        """By rename; on a full disk in place, where the old one has its block."""
        path = os.path.join(home, "agent.json")
        body = json.dumps(value).encode("ascii")
        try:
            with open(path + ".part", "wb") as file:
                file.write(body)
            os.rename(path + ".part", path)
        except OSError:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(fd, body, 0)
                os.ftruncate(fd, len(body))
            except OSError as error:
                sys.stderr.write("%s: %s\n" % (path, error))
            finally:
                os.close(fd)

    def _trees(self) -> Set[str]:
        """What attempts on this host may still be made of."""
        from .store.manifest import tree_of

        tasks = self.place.journal.of("task").values()
        paths = [str(task.get("workdir") or "") for task in tasks]
        paths += [str(one["source"]) for task in tasks for one in task.get("file_mounts") or []]
        return {tree_of(path)[1] for path in paths}

    def _try_network(self, shared: str) -> None:
        """Find out which network works here, beside everything else; the facts then say so."""
        from .child import Child
        from .net import trial
        from .pod import container

        inside = container.network(self.place.home)
        if inside is not None:
            self.desk.facts["network"] = inside
            return

        def answer(value: Any, error: Optional[str]) -> None:
            self.desk.facts["network"] = (
                value if error is None else {"mode": "none", "reason": error}
            )

        def look() -> Any:
            trial.clear(shared)
            return trial.trial(shared)

        Child(self.loop, look, answer)

    def run(self) -> int:
        """Serve until idle for long enough, or told to end (SIGTERM): what runs goes on in either
        case. In a container also until it was told to leave, and has ended what ran. The exit code.
        """
        from .pod import container

        codes = [0]

        def left() -> None:
            codes[0] = container.EXIT_LEFT
            signal.signal(container.LEAVE, signal.SIG_IGN)  # it may be told once more
            self.loop.stop()

        if self.place.image is not None:
            self.loop.on_signal(container.LEAVE, lambda: self.host.leaving.begin(left))
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.on_signal(number, self.loop.stop)
        self._idle()
        told = os.environ.pop("ARGOSY_AGENT_READY", "")
        if told:
            os.close(int(told))
        try:
            self.loop.run()
        finally:
            self.server.close()
            self.place.stock.close()
            self._wait_for_children()
            self.fence.close()
            self.host.close()
            self.place.launcher.close()
            self.place.tailer.close()
            self.place.journal.close()
            os.unlink("agent.sock")
        return codes[0]

    def _wait_for_children(self) -> None:
        from .child import LIVING

        deadline = self.loop.now() + END_WAIT_S
        while LIVING and self.loop.now() < deadline:
            self.loop.once(0.1)

    def _idle(self) -> None:
        """Begin or end the wait for nothing to do."""
        busy = bool(self.place.journal.of("lease")) or bool(self.desk.controls)
        busy = busy or self.place.image is not None  # the container lasts as long as its lease
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if not busy:
            self._idle_timer = self.loop.after(self._idle_exit, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if not self.place.journal.of("lease") and not self.desk.controls:
            self.loop.stop()
        else:
            self._idle()


def _plain_process() -> None:
    """Undo what the starter's signal dispositions were: children inherit ignored ones."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGHUP, lambda *_: None)


if __name__ == "__main__":
    sys.exit(main())

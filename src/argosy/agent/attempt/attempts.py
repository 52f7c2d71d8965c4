"""One attempt on this host: looks, asks `decide` for the next step, carries it out, until there is
nothing to do.

What must survive a kill -9 is in its record in the journal, written before the step it belongs to
is taken.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Set

from .. import decide, facts
from ..decide import Order, Seen, Situation, Stage, Step
from ..fence.told import fenced
from ..groups import Group
from ..logs.log import Change, Log
from ..loop import Timer
from ..naming import digest, safe_name
from ..net import isolated
from ..place import Place
from ..processes import folder as folders
from ..processes import tree
from ..processes.execution import LAUNCHER_NAME, Execution, Phase
from ..processes.layout import PARTS, folder_of
from .guests import Entering, Guest, Inside, Size
from .health import Health
from .prepare import Preparation
from .request import request_of, write_peers

SWEEP_PAUSE = 0.02
STEPS_MAX = 50
EXEC_WAIT = 0.2


class Attempt:
    """One attempt and all that belongs to it. `record` is what the journal holds of it."""

    def __init__(
        self, place: Place, record: Dict[str, Any], task: Dict[str, Any], group: Group
    ) -> None:
        """`task` and `record["order"]` are the protocol's TASK and ORDER."""
        self.place, self.record, self.task, self.group = place, record, task, group
        self.id = str(record["order"]["attempt"])
        self.folder = os.path.join(place.home, "attempts", safe_name(self.id))
        self.setup: Optional[Execution] = None
        self.run: Optional[Execution] = None
        self.guests: Set[Guest] = set()
        self.peers_told: Any = None
        """What the peers file was written from."""
        self.on_change: Callable[[], None] = lambda: None
        self.on_event: Callable[[str, str], None] = lambda code, text: None
        self._loop = place.loop
        self._health = Health(place, group, record["order"]["node"], self.log)
        self._health.on_change = lambda: self.on_change()
        self._health.on_event = lambda code, text: self.on_event(code, text)
        self._preparation: Optional[Preparation] = None
        self._problem = self._problem_text = ""
        self._log: Optional[Log] = None
        self._sweeping: Optional[Timer] = None
        self._stopped_with: Dict[str, float] = {}
        """Part -> the grace with which its stop was ordered."""
        self._entering: Dict[int, float] = {}
        """Pid of a program -> since when it is seen entering its namespaces."""
        self._stuck = ""
        self._advancing = False

    @property
    def stage(self) -> Stage:
        """The stage reached."""
        return Stage(self.record["stage"])

    @property
    def goal(self) -> Stage:
        """The stage that it is to reach; one that nobody lists any more, or whose host goes away,
        is to end.
        """
        if self.record.get("dropped") or self.record.get("leaving"):
            return Stage.ENDED
        return Stage(self.record["order"]["goal"])

    @property
    def healthy(self) -> bool:
        """Whether its probe says so (without one: whether it runs)."""
        return self._health.healthy

    @property
    def order(self) -> Dict[str, Any]:
        """The protocol's ORDER, the newest."""
        return dict(self.record["order"])

    @property
    def grace(self) -> float:
        """Seconds from SIGTERM to SIGKILL."""
        value = 0.0 if self.record.get("fenced") else self.record["order"].get("grace")
        return float(self.task.get("grace", 30.0) if value is None else value)

    @property
    def output(self) -> str:
        """Path of its log."""
        return os.path.join(self.folder, "output")

    def log(self) -> Log:
        """Its log, opened when first needed. Raises OSError."""
        if self._log is None:
            self._log = Log(self.output, int(self.task.get("log_cap_bytes") or 0))
        return self._log

    def save(self) -> None:
        """Put the record into the journal."""
        self.place.journal.put("attempt", self.id, self.record)

    def seen(self) -> Dict[str, Any]:
        """The protocol's SEEN."""
        record, order = self.record, self.record["order"]
        return {
            "attempt": self.id, "node": order["node"], "number": order["number"],
            "incarnation": order["incarnation"], "stage": int(record["stage"]),
            "outcome": record.get("outcome"), "exit_code": record.get("exit_code"),
            "signal": record.get("signal"), "cause": record.get("cause", ""),
            "text": record.get("text", "") or self._waits_for(),
            "address": record.get("address", ""), "healthy": self.healthy, "at": record["at"],
        }  # fmt: skip

    def _waits_for(self) -> str:
        """What holds it up just now, in words; "" when nothing does."""
        return self._stuck or (self._preparation.held if self._preparation is not None else "")

    # -- life -----------------------------------------------------------------------------------

    def adopt(self) -> None:
        """Take over what an earlier life of the agent left running."""
        if self.stage is Stage.ENDED:
            return
        stopped_at, kill_at = self.record.get("stop_at"), self.record.get("kill_at", 0.0)
        for part in PARTS:
            execution = self._execution(part)
            if not execution.adopt(self.place.boot, stopped_at if part == "run" else None):
                continue
            execution.on_change = self.advance
            setattr(self, part, execution)
            if part == "run" and stopped_at is not None and execution.phase is not Phase.OVER:
                self._stopped_with["run"] = self.grace
                execution.stop(max(0.0, kill_at - self._loop.now()), signalled=True)
        self._follow_log()
        if self.run is not None and self.stage >= Stage.RUNNING:
            self._start_probe()

    def _execution(self, part: str) -> Execution:
        folder = folder_of(self.folder, part)
        made = Execution(self._loop, self.place.launcher, folder, self.id, keeps=part == "setup")
        made.strays = self._strays
        return made

    def _strays(self) -> List[int]:
        return isolated.strays(self.record.get("spec") or {})

    def advance(self) -> None:
        """Do all that can be done now."""
        if self._advancing:
            self._loop.soon(self.advance)
            return
        self._advancing = True
        try:
            for _ in range(STEPS_MAX):
                order = decide.next_step(self._situation())
                if order.step is Step.WAIT:
                    break
                self._take(order)
                if order.step in (Step.DROP_PREPARE, Step.SWEEP):
                    break
        finally:
            self._advancing = False
        self._report_stuck()

    def _situation(self) -> Situation:
        return Situation(
            stage=self.stage,
            goal=self.goal,
            preparing=self._preparation is not None,
            prepared=bool(self.record.get("prepared")),
            problem=self._problem,
            problem_text=self._problem_text,
            setup_needed=bool(self.record.get("setup_needed")),
            setup=self._seen("setup", self.setup),
            has_run=bool((self.task.get("run") or "").strip()),
            run=self._seen("run", self.run),
            guests=int(bool(self.guests) or bool(self.record.get("guests"))),
            rebooted=self.record["boot"] != self.place.boot,
            fenced=fenced(self),
        )

    def _seen(self, part: str, execution: Optional[Execution]) -> Optional[Seen]:
        if execution is None:
            return None
        end = execution.exit
        refused = folders.read_failure(execution.folder) if end and end.number == 127 else ""
        if end is not None and end.kind == "refused":
            refused = "cannot start: " + os.strerror(end.number)
        # A shell tells of a child's signal by a code.
        oom = end is not None and signal.SIGKILL in (end.signal, (end.code or 0) - 128)
        oom = oom and facts.oom_kills() > self.record.get("oom_kills", 1 << 62)
        return Seen(
            running=execution.claim is not None and not refused,
            exited=end is not None,
            over=execution.phase is Phase.OVER,
            stopping=self._stopped_with.get(part, float("inf")) <= self.grace,
            never=execution.never,
            stopped=execution.stopped,
            code=end.code if end is not None else None,
            signal=end.signal if end is not None else None,
            refused=refused,
            oom=oom,
            memory=": " + facts.memory_words() if oom and facts.memory_words() else "",
        )  # fmt: skip

    def _take(self, order: Order) -> None:
        """Carry out one step."""
        step = order.step
        if step is Step.REACH:
            assert order.stage is not None
            self._reach(order.stage)
        elif step is Step.PREPARE:
            self._prepare()
        elif step is Step.DROP_PREPARE:
            self._drop_prepare()
        elif step is Step.SETUP:
            self.setup = self._start("setup", str(self.task.get("setup") or ""))
        elif step is Step.START:
            self.record["oom_kills"] = facts.oom_kills()
            self.run = self._start("run", str(self.task["run"]))
        elif step is Step.STOP_SETUP:
            self._stop("setup", self.setup)
        elif step is Step.STOP_RUN:
            self._stop("run", self.run)
        elif step is Step.SWEEP:
            self._sweep()
        elif step is Step.END:
            assert order.end is not None
            self._end(order.end)

    def _reach(self, stage: Stage) -> None:
        self.record["stage"] = int(stage)
        self.record["at"] = time.time()
        if stage is Stage.READY:
            self._note_setup()
        if stage is Stage.RUNNING:
            self._hand_on_gpus()
            self._start_probe()
        if stage >= Stage.STOPPING:
            self._health.end()
        self.save()
        self.on_change()

    def _end(self, end: decide.End) -> None:
        asked = self.record.get("dropped") or Stage(self.record["order"]["goal"]) is Stage.ENDED
        if self.record.get("leaving") and not asked:
            end = decide.leaving(end)
        self._health.end()
        self.record.update(
            stage=int(Stage.ENDED), at=time.time(), outcome=end.outcome, cause=end.cause,
            text=end.text, exit_code=end.exit_code, signal=end.signal,
        )  # fmt: skip
        self.save()
        self.place.tailer.remove(self.output)
        try:
            self.place.gpus.give(self.id)
        except OSError as error:  # it lapses with its holder anyway
            self.on_event("write-failed", "%s: %s" % (error.filename, error.strerror))
        for part in PARTS:  # the secrets in it are needed no more
            try:
                os.unlink(os.path.join(folder_of(self.folder, part), "request"))
            except OSError:
                pass
        self.on_change()

    # -- preparing ------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Begin everything that `setup` and `run` need; the end arrives at `_prepared`."""
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
        except OSError as error:
            self._fail("files-failed", "%s: %s" % (error.filename, error.strerror))
            return
        self._follow_log()
        lease = str(self.record["lease"])
        self._preparation = Preparation(self.place, self.group, lease, self.task, self.order)
        self._preparation.on_end = self._prepared
        self._preparation.on_wait = self.on_change
        self._preparation.begin()

    def _prepared(self) -> None:
        done, self._preparation = self._preparation, None
        if done is None:
            return
        if done.problem:
            self._fail(done.problem, done.text)
            return
        self.record.update(done.found, prepared=True)
        self.save()
        self.advance()

    def _fail(self, cause: str, text: str) -> None:
        self._problem, self._problem_text = cause, text
        self._loop.soon(self.advance)

    def _drop_prepare(self) -> None:
        if self._preparation is not None:
            self._preparation.drop()
            self._preparation = None
        self._loop.soon(self.advance)

    # -- executions -----------------------------------------------------------------------------

    def _start(self, part: str, script: str) -> Optional[Execution]:
        """Ask for `setup` or `run`. A full disk is a problem of files, not of the agent."""
        execution = self._execution(part)
        execution.on_change = self.advance
        try:
            path = os.path.join(self.folder, part + ".sh")
            folders.write_once(path, script.encode("utf-8", "surrogateescape"))
            write_peers(self)
            request = request_of(self, path)
            os.makedirs(request.cwd, exist_ok=True)
            self.save()
            execution.start(request)
        except OSError as error:
            execution.close()
            self._fail("files-failed", "%s: %s" % (error.filename, error.strerror))
            return None
        return execution

    def _stop(self, part: str, execution: Optional[Execution]) -> None:
        assert execution is not None
        if part == "run" and self.record.get("stop_at") is None:
            self.record["stop_at"] = time.time()
        if part == "run":
            self.record["kill_at"] = min(
                self._loop.now() + self.grace, self.record.get("kill_at", float("inf"))
            )
            self.save()
        self._stopped_with[part] = self.grace
        execution.stop(self.grace)

    def _note_setup(self) -> None:
        """`setup` need not run again here, unless it left processes that end with this attempt."""
        if self.setup is not None and not self.setup.processes():  # its wrapper may still be ending
            name = os.path.basename(str(self.record["work"]))
            key = digest(str(self.task.get("setup") or ""))
            self.place.journal.put("setup", name, {"key": key, "group": self.group.facts["id"]})

    def _hand_on_gpus(self) -> None:
        """The reservation lives as long as the wrapper, also without the agent."""
        if self.run is not None and self.run.claim is not None:
            indices = self.order.get("gpu_indices") or []
            self.place.gpus.hand_on(indices, self.id, self.run.claim.wrapper)

    def _report_stuck(self) -> None:
        for execution in (self.setup, self.run):
            if execution is not None and execution.stuck is not None:
                stuck = execution.stuck
                text = "pid %d (%s), state %s, in %s, does not end on SIGKILL" % (
                    stuck.pid, stuck.command, stuck.state, stuck.where or "?",
                )  # fmt: skip
                if text != self._stuck:
                    self._stuck = text
                    self.on_event("unkillable", text)
                    self.on_change()

    # -- log and health -------------------------------------------------------------------------

    def _follow_log(self) -> None:
        try:
            self.place.tailer.add(self.log(), self._log_changed)
        except OSError as error:
            self.on_event("log-write-failed", "%s: %s" % (self.output, error.strerror))

    def _log_changed(self, change: Change) -> None:
        for code, text in change.news():
            if code == "log-truncated" or not self.record.get(code):
                self.record[code] = True
                self.on_event(code, text)
        self._health.log_grew()

    def _start_probe(self) -> None:
        if self.stage is Stage.RUNNING:
            self._health.start(self.task.get("ready"), self.invite, self.dismiss)

    # -- guests ---------------------------------------------------------------------------------

    def inside(self) -> Inside:
        """Where a guest would run. Raises LookupError when nothing of the attempt runs, Entering
        while its program is on the way there (for EXEC_WAIT at most, whatever it calls itself).
        """
        for execution in (self.run, self.setup):
            if execution is not None and execution.claim is not None and not execution.exit:
                pid = execution.claim.program.pid
                if tree.command_name(pid) == LAUNCHER_NAME:
                    now = self._loop.now()
                    if now < self._entering.setdefault(pid, now) + EXEC_WAIT:
                        raise Entering
                else:
                    self._entering.pop(pid, None)
                env = folders.read_environment(execution.folder)
                return Inside(pid, env, str(self.record["work"]), self.record.get("spec"))
        raise LookupError("nothing of %s runs now" % self.id)

    def invite(
        self, argv: List[str], size: Optional[Size], env: Optional[Dict[str, str]] = None
    ) -> Guest:
        """Run a command inside, on a terminal of that size if any.

        Raises LookupError, OSError, Entering.
        """
        inside = self.inside()
        inside.env.update(env or {})
        if not self.record.get("guests"):
            self.record["guests"] = True
            self.save()
        guest = Guest(self._loop, inside, argv, size)
        self.guests.add(guest)
        return guest

    def dismiss(self, guest: Guest) -> None:
        """The guest has ended."""
        guest.close()
        self.guests.discard(guest)

    def _sweep(self) -> None:
        """End guests and what they left behind: whatever bears the mark, or is in the node."""
        if self._sweeping is not None:
            return
        for guest in list(self.guests):
            guest.signal(signal.SIGKILL)
            guest.close()
            self.guests.discard(guest)
        mark = "ARGOSY_MARK=" + self.id
        if tree.kill_all(tree.with_marks([mark])[mark].union(self._strays())):
            self._sweeping = self._loop.after(SWEEP_PAUSE, self._sweep_again)
        else:
            self.record["guests"] = False
            self._loop.soon(self.advance)

    def _sweep_again(self) -> None:
        self._sweeping = None
        self._sweep()

    # -- for people -----------------------------------------------------------------------------

    def processes(self) -> List[int]:
        """Its living processes and wrappers, on this host."""
        found: List[int] = []
        for execution in (self.setup, self.run):
            if execution is not None and execution.claim is not None:
                if execution.phase is not Phase.OVER:
                    found += [execution.claim.wrapper.pid, *execution.processes()]
        return found

    def break_it(self, what: str, number: int) -> int:
        """Kill the program as an outsider would, or freeze or thaw all its processes; how many were
        hit.
        """
        hit = 0
        for execution in (self.setup, self.run):
            if execution is None or execution.claim is None or execution.phase is Phase.OVER:
                continue
            if what == "kill":
                program = execution.claim.program
                if not execution.exit and tree.alive(program):
                    hit += tree.send(program.pid, number)
            elif what == "freeze":
                hit += len(tree.freeze(execution.processes))
            else:
                hit += execution.signal_all(signal.SIGCONT)
        return hit

    def close(self) -> None:
        """Free what this life of the agent holds; everything goes on."""
        self._health.on_change = lambda: None
        self._health.end()
        if self._preparation is not None:
            self._preparation.drop()
        for execution in (self.setup, self.run):
            if execution is not None:
                execution.close()
        for guest in list(self.guests):
            guest.hang_up()
        if self._log is not None:
            try:
                self._log.close()
            except OSError as error:
                sys.stderr.write("%s: %s\n" % (self.output, error))

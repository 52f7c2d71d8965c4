"""Sorts streams by what they are for: the control stream of a server, and the ops that answer one
question.
"""

from __future__ import annotations

import os
import re
import signal
import time
from typing import Any, Callable, Dict, List, Optional

from .. import __version__, facts
from ..fence.keeper import Keeper
from ..fence.record import boottime
from ..host import Host
from ..link import CONTROL_MAX_BYTES, Message, Stream
from ..loop import Loop, Timer
from .log_stream import Logs
from .sessions import Exec, Forward, Get, Put, attempt_of

PROTOCOL = 1
HEARTBEAT_S = 2.0
OPS_OF_KEPT = ("logs", "history", "forget", "status")
"""All that an agent answers which only has the logs of hosts that are gone."""


class Control:
    """One control stream: heartbeats while nothing else is sent; under a fence, that are counted
    and acknowledged, whatever else is sent.
    """

    def __init__(self, loop: Loop, stream: Stream, server: str, life: int, fence: Keeper) -> None:
        self.stream, self.server, self.life = stream, server, life
        self._loop, self._fence = loop, fence
        self._counted = 0
        self._sent: Dict[int, float] = {}
        """Number of a heartbeat -> when it was sent, of those that were not acknowledged."""
        stream.max_bytes = CONTROL_MAX_BYTES
        self._timer: Optional[Timer] = loop.soon(self._beat)

    def _beat(self) -> None:
        if self.stream.ended:
            return
        if self._fence.seconds:
            self._counted_beat()
            return
        since = self._loop.now() - self.stream.sent_at
        if since >= HEARTBEAT_S - 0.05:
            self.stream.send({"type": "heartbeat", "at": time.time()})
            since = 0.0
        self._timer = self._loop.after(HEARTBEAT_S - since, self._beat)

    def _counted_beat(self) -> None:
        fence = self._fence.seconds
        self._counted += 1
        self._sent[self._counted] = boottime()
        beat = {"type": "heartbeat", "at": time.time(), "n": self._counted, "fence": fence}
        self.stream.send(beat)
        self._timer = self._loop.after(min(HEARTBEAT_S, fence / 4), self._beat)

    def acked(self, number: int) -> None:
        """The server has that heartbeat."""
        sent_at = self._sent.get(number)
        if sent_at is not None:
            self._sent = {n: at for n, at in self._sent.items() if n > number}
            self._fence.acked(sent_at)

    def close(self) -> None:
        """Send no more."""
        if self._timer is not None:
            self._timer.cancel()
        self.stream.close()


class Desk:
    """Where every stream's first line arrives."""

    def __init__(
        self, host: Host, host_facts: Dict[str, Any], fence: Keeper, kept: bool = False
    ) -> None:
        """`kept`: logs of hosts that are gone were brought here, and nothing is to run beside."""
        self.host, self.facts, self.fence, self._kept = host, host_facts, fence, kept
        self.controls: List[Control] = []
        self.on_change: Callable[[], None] = lambda: None
        """Called when a control stream came or went."""
        self._loop = host.place.loop
        host.send = host.place.stock.send = self.send
        fence.on_out = self._hang_up

    def send(self, message: Message) -> bool:
        """Tell all control streams; whether there was one."""
        for control in list(self.controls):
            control.stream.send(message)
        return bool(self.controls)

    def first(self, stream: Stream, message: Message) -> None:
        """The first line of a stream."""
        op = message.get("op")
        if self._kept and op not in OPS_OF_KEPT:
            text = "the host is gone; only the logs of what ran there are kept"
            stream.fail("Unreachable", "agent/host-gone", text)
        elif op == "control":
            self._control(stream, message)
        elif op in ("logs", "exec", "put", "get", "forward"):
            kind = {"logs": Logs, "exec": Exec, "put": Put, "get": Get, "forward": Forward}[op]
            kind(self.host, stream, message)
        elif op == "store":
            self.host.place.stock.take(stream, message)
        elif op == "chaos":
            self._chaos(stream, message)
        elif op == "release":
            lease = str(message["lease"])
            self.host.release(lease)
            self.host.when_gone(lease, lambda: self._answer(stream, {"ok": True}))
        elif op == "status":
            self._answer(stream, self.status())
        elif op == "history":
            found = self.host.history(str(message.get("group") or ""))
            self._answer(stream, {"attempts": found})
        elif op == "forget":
            self.host.forget(str(message["group"]), lambda: self._answer(stream, {"ok": True}))
        else:
            text = "unknown op %r" % (op,)
            stream.fail(
                "InputError", "agent/unknown-op", text, ["is the agent older than the server?"]
            )

    @staticmethod
    def _answer(stream: Stream, message: Message) -> None:
        stream.send(message)
        stream.close()

    # -- control --------------------------------------------------------------------------------

    def _control(self, stream: Stream, message: Message) -> None:
        if int(message["protocol"]) != PROTOCOL:
            text = "it speaks protocol %d only" % PROTOCOL
            stream.fail("Conflict", "agent/protocol", text, ["restart the agent of this version"])
            return
        server, life = str(message["server"]), int(message["life"])
        for other in list(self.controls):
            if other.server == server and other.life > life:
                text = "a later life of that server is connected"
                stream.fail("Conflict", "agent/older-life", text)
                return
            if other.server == server:
                self._gone(other)
        if not self.fence.open(float(message.get("fence") or 0.0)):
            text = "the fence ran out, and what ran here has not ended yet"
            stream.fail("Conflict", "agent/fenced", text)
            return
        control = Control(self._loop, stream, server, life, self.fence)
        stream.on_line = self._line(control)
        stream.on_end = lambda: self._gone(control)
        stream.send(self._hello())
        for known in [*self.host.welcome(), *self.host.place.stock.needs()]:
            stream.send(known)
        self.controls.append(control)
        for lease in list(self.host.place.journal.of("lease")):
            self.host.told(lease)
        self.on_change()

    def _hello(self) -> Message:
        place = self.host.place
        return {
            "type": "hello", "protocol": PROTOCOL, "agent": __version__, "boot_id": place.boot,
            "pid": place.me.pid, "facts": self.facts, "fence": self.fence.seconds,
        }  # fmt: skip

    def _line(self, control: Control) -> Callable[[Message], None]:
        def take(message: Message) -> None:
            if self.fence.check():
                return  # what was on its way while the fence ran out does not count
            op = message.get("type") or message.get("op")
            if op == "assign":
                self.host.assign(message)
            elif op == "release":
                self.host.release(str(message["lease"]))
            elif op == "ack":
                control.acked(int(message["n"]))
            elif op == "ping":
                control.stream.send({"type": "pong", "n": message.get("n"), "at": time.time()})

        return take

    def _gone(self, control: Control) -> None:
        control.close()
        if control in self.controls:
            self.controls.remove(control)
            self.on_change()

    def _hang_up(self) -> None:
        """No control stream is good any more."""
        for control in list(self.controls):
            self._gone(control)

    # -- questions ------------------------------------------------------------------------------

    def _chaos(self, stream: Stream, message: Message) -> None:
        attempt = attempt_of(self.host, stream, message)
        if attempt is None:
            return
        what = str(message["what"])
        if what not in ("kill", "freeze", "thaw"):
            stream.fail("InputError", "agent/unknown-chaos", "unknown: %s" % what)
            return
        if not attempt.break_it(what, int(message.get("signal") or signal.SIGKILL)):
            stream.fail("Conflict", "agent/not-running", "nothing of %s runs now" % attempt.id)
            return
        self._answer(stream, {"ok": True})

    def status(self) -> Message:
        """Everything, for people and for tests."""
        host, place = self.host, self.host.place
        cpu, rss = facts.usage([os.getpid()])
        return {
            "agent": __version__, "pid": place.me.pid, "boot_id": place.boot, "home": place.home,
            "facts": self.facts, "report": host.full_report(), "usage": host.usage(),
            "groups": {
                name: group.network.record() if group.network is not None else None
                for name, group in host.groups.items()
            },
            "logs": {
                attempt.id: {"end": log.end, "kept": log.kept}
                for attempt in host.attempts.values()
                for log in ([attempt.log()] if os.path.exists(attempt.output) else [])
            },
            "launcher": place.launcher.pid, "controls": [c.server for c in self.controls],
            "fence": self.fence.seconds,
            "journal_behind": place.journal.behind, "journal_skipped": place.journal.skipped,
            "cpu_s": cpu, "rss_bytes": rss,
        }  # fmt: skip


def read_capacity(text: str) -> Dict[str, Any]:
    """Facts (`--capacity`) that replace the machine's own: a virtual host. Raises ValueError."""
    import json

    value = json.loads(text) if text else {}
    if not isinstance(value, dict) or not all(re.fullmatch("[a-z_]+", str(k)) for k in value):
        raise ValueError("--capacity is no JSON object of facts")
    return value

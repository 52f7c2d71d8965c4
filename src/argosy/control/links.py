"""One control stream to each agent: assignments go out, reports come in.

A link is kept while a lease of a living group is on its host. It remembers the newest assignment of
each lease and sends it again on every new connection, once the agent has said all that it knows:
an agent ignores what it has, and one that has lost an attempt must not execute it again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from argosy.clock import Clock
from argosy.control.fences import HostFence
from argosy.errors import ArgosyError, Broken, Unreachable
from argosy.infra.api import HostRef, Infra, Stream
from argosy.model.ids import AttemptId, LeaseId, Serial
from argosy.tasks import until_one_ends

log = logging.getLogger("argosy.control.links")

PROTOCOL: Final = 1
RETRY_FIRST: Final = 0.05  # seconds until a broken stream is opened again; doubles
RETRY_MOST: Final = 2.0
HOST_GONE: Final = "agent/host-gone"  # says an agent that only has the logs of a host
ATTACH_TIMEOUT: Final = 20.0
SEND_TIMEOUT: Final = 20.0
NO_AGENT: Final = "agent/does-not-start"  # as infras say it
STARTS_FAILED: Final = 3  # in a row, and people are told
IDLE_CLOSE: Final = 60.0  # a link without assignments is closed after so long


@dataclass(frozen=True, slots=True)
class Usage:
    """What a running attempt uses."""

    cpu_percent: float  # of one core
    rss_bytes: int


class Listener(Protocol):
    """Who is told what agents say."""

    def heard(self, link: AgentLink, leases: Mapping[str, Any], *, full: bool) -> None:
        """A report, of all its leases when `full`."""

    def told(self, event: Mapping[str, Any]) -> None:
        """Something that people should know."""

    def needs(self, link: AgentLink, message: Mapping[str, Any]) -> None:
        """The agent asks for files that its host does not have."""

    def spoke(self, link: AgentLink) -> None:
        """The agent answered a ping, or speaks again after it was silent for long."""


class AgentLink:
    """The control stream to one agent."""

    def __init__(
        self,
        infra: Infra,
        host: str,
        *,
        hello: Mapping[str, Any],
        clock: Clock,
        listener: Listener,
        fence: HostFence,
    ) -> None:
        self.ref = HostRef(infra.name, host)
        self.heard_at = 0.0
        self.boot_id = ""
        self.silent = False  # nobody heard it for `suspect_after`; kept by the controller
        self.usage: dict[AttemptId, Usage] = {}
        self._infra, self._hello, self._clock, self._listener = infra, hello, clock, listener
        self._fence = fence
        if fence.seconds:
            self._hello = {**hello, "fence": fence.seconds}
        self._stream: Stream | None = None
        self._mailbox: dict[LeaseId, tuple[Serial, bytes]] = {}
        self._sent: dict[LeaseId, Serial] = {}
        self._pinged = False
        self._beat: int | None = None  # a heartbeat that is to be acknowledged
        self._wanted = asyncio.Event()
        self._introduced = asyncio.Event()  # the agent has said all that it knows
        self._idle_since = clock.now()
        self._cpu: dict[str, tuple[float, float]] = {}
        self._book: tuple[Any, bytes] = (None, b"")  # the newest that was sent, and its JSON
        self._complained: set[tuple[LeaseId, str]] = set()  # what people were told already

    # What goes out

    def has(self, lease: LeaseId, serial: Serial) -> bool:
        """Whether this assignment, or a newer one, was posted."""
        kept = self._mailbox.get(lease)
        return kept is not None and kept[0] >= serial

    def post(self, lease: LeaseId, serial: Serial, message: Mapping[str, Any]) -> None:
        """Send an assignment now, and again on every new connection."""
        self._mailbox[lease] = (serial, self._encoded(message))
        self._wanted.set()

    def _encoded(self, message: Mapping[str, Any]) -> bytes:
        """One line; a book that several messages share is made into JSON once."""
        book = message.get("book")
        if book is None:
            return _json(message) + b"\n"
        if self._book[0] is not book:
            self._book = (book, _json(book))
        rest = _json({name: value for name, value in message.items() if name != "book"})
        return rest[:-1] + b',"book":' + self._book[1] + b"}\n"

    def drop(self, lease: LeaseId) -> None:
        """The lease is gone: nothing is sent about it any more."""
        self._mailbox.pop(lease, None)
        self._sent.pop(lease, None)
        if not self._mailbox:
            self._idle_since = self._clock.now()

    def repeat(self, lease: LeaseId) -> None:
        """Send the assignment of that lease once more."""
        self._sent.pop(lease, None)
        self._wanted.set()

    def ping(self) -> None:
        """Make the agent say something at once."""
        self._pinged = True
        self._wanted.set()

    @property
    def idle(self) -> bool:
        """Nothing was assigned here for a while."""
        return not self._mailbox and self._clock.now() - self._idle_since > IDLE_CLOSE

    # The stream

    async def run(self) -> None:
        """Keep the stream open until the task is cancelled."""
        delay, starts_failed = RETRY_FIRST, 0
        while True:
            self._introduced.clear()
            try:
                async with asyncio.timeout(ATTACH_TIMEOUT):
                    stream = await self._infra.attach(self.ref)
                starts_failed = 0
                await self._serve(stream)
            except (ArgosyError, OSError, TimeoutError, ValueError) as error:
                log.info("link-down", extra={"host": str(self.ref.host), "why": str(error)})
                if getattr(error, "code", "") == HOST_GONE:
                    delay = IDLE_CLOSE
                if getattr(error, "code", "") == NO_AGENT:
                    starts_failed += 1
                    if starts_failed >= STARTS_FAILED:
                        self._complain("agent-does-not-start", str(error))
            except Exception:  # ours to mend; without its link the host would be out of reach
                log.exception("link-failed", extra={"host": str(self.ref.host)})
            if self._introduced.is_set():  # not by an agent that turned us away
                delay = RETRY_FIRST
            await self._clock.sleep(delay)
            delay = min(RETRY_MOST, delay * 2)

    async def _serve(self, stream: Stream) -> None:
        self._stream, self._sent, self._introduced = stream, {}, asyncio.Event()
        self._beat = None
        try:
            self._fence.ask()
            await stream.write(json.dumps(self._hello).encode() + b"\n")
            await until_one_ends(self._receive(stream), self._send(stream))
        finally:
            self._stream = None
            await stream.close()

    async def _send(self, stream: Stream) -> None:
        await self._introduced.wait()
        while True:
            self._wanted.clear()
            if self._pinged:
                self._pinged = False
                await self._write(stream, b'{"type":"ping","n":0}\n')
            if self._beat is not None:
                beat, self._beat = self._beat, None
                await self._write(stream, b'{"type":"ack","n":%d}\n' % beat)
            for lease, (serial, line) in list(self._mailbox.items()):
                if self._sent.get(lease) != serial:
                    self._sent[lease] = serial
                    await self._write(stream, line)
            await self._wanted.wait()

    async def _write(self, stream: Stream, line: bytes) -> None:
        async with asyncio.timeout(SEND_TIMEOUT):
            await stream.write(line)

    async def _receive(self, stream: Stream) -> None:
        while line := await stream.readline():
            if not line.endswith(b"\n"):
                return
            self._heard()
            try:
                self._take(json.loads(line))
            except (KeyError, TypeError, AttributeError) as error:
                raise Broken(f"what the agent on {self.ref.host} says can't be read") from error

    def _heard(self) -> None:
        self.heard_at = self._clock.now()
        if self.silent:
            self.silent = False
            self._listener.spoke(self)

    def _take(self, message: Mapping[str, Any]) -> None:
        match message.get("type"):
            case "hello":
                if message.get("protocol") != PROTOCOL:
                    raise self._stranger(f"protocol {message.get('protocol')}")
                self.boot_id = str(message.get("boot_id", ""))
                self._fence.told(float(message.get("fence") or 0.0), self._clock.now())
            case "report":
                full = bool(message.get("full"))
                self._listener.heard(self, message["leases"], full=full)
                if full:
                    self._introduced.set()
            case "pong":
                self._listener.spoke(self)
            case "event":
                self._listener.told(message)
            case "need":
                self._listener.needs(self, message)
            case "usage":
                self._use(message)
            case "heartbeat" if "n" in message:
                self._fence.told(float(message["fence"]), self._clock.now())
                self._beat = int(message["n"])
                self._wanted.set()
            case None if message.get("code") == "agent/protocol":
                raise self._stranger(str(message.get("text")))
            case None if message.get("code") == HOST_GONE:
                raise Unreachable(str(message.get("text")), code=HOST_GONE)
            case _:
                pass  # other heartbeats, and words of newer agents

    def _stranger(self, said: str) -> Broken:
        """The agent is of a version that cannot be spoken with: everybody concerned is told."""
        text = (
            f"the agent on {self.ref.host} is of another Argosy ({said}; this server speaks "
            f"protocol {PROTOCOL}): what runs there goes on, and is reached again by an Argosy of "
            "that version"
        )
        self._complain("agent-protocol", text)
        return Broken(text, code="agent/protocol")

    def _complain(self, code: str, text: str) -> None:
        """Tell each group that waits for this agent, once."""
        for lease in self._mailbox:
            if (lease, text) not in self._complained:
                self._complained.add((lease, text))
                self._listener.told({"lease": lease, "code": code, "text": text})

    def _use(self, message: Mapping[str, Any]) -> None:
        at, usage, seen = float(message["at"]), {}, {}
        for attempt, fact in message["attempts"].items():
            cpu = float(fact.get("cpu_s", 0.0))
            since, before = self._cpu.get(attempt, (at, cpu))
            percent = 100.0 * max(0.0, cpu - before) / (at - since) if at > since else 0.0
            usage[AttemptId(attempt)] = Usage(percent, int(fact.get("rss_bytes", 0)))
            seen[attempt] = (at, cpu)
        self.usage, self._cpu = usage, seen


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()

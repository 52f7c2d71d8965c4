"""One host: made ready once, its desk kept open, its agent attached to.

Nobody waits for a host that does not answer: it is tried in a task of its own, with pauses, and
whoever asks meanwhile hears the last error.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any, Final

from argosy.errors import ArgosyError, InfraError, Unreachable
from argosy.infra.ssh.bootstrap import ATTACHED, MARK, NOISE_MAX, Agents, Place, Ready, opening
from argosy.infra.ssh.config import HostConfig
from argosy.infra.ssh.connection import Connection
from argosy.infra.ssh.desk import Desk
from argosy.infra.ssh.failures import EXIT_SSH, not_python, other_agent
from argosy.infra.ssh.stream import PipeStream
from argosy.model.ids import LeaseId

LOG: Final = logging.getLogger("argosy.infra.ssh")
OPEN_SECONDS: Final = 60.0  # until a host is ready, an upload over a slow way included
ATTACH_SECONDS: Final = 15.0
EXIT_NO_AGENT: Final = 8  # of `agent attach`
SHELL_ENDED: Final = ("ssh/no-shell", "ssh/shell-ended")  # before the script had done its part
PAUSES: Final = (1.0, 2.0, 5.0, 10.0, 15.0)  # after failures in a row, then the last for ever


class SshHost:
    """A host of a pool. `changed` is called when a look would differ from the last one; `asked`
    says which leases were asked of the host, and blocks.
    """

    def __init__(
        self, host: HostConfig, place: Place, agent: Callable[[], Agents], home: Path,
        *, changed: Callable[[], None], asked: Callable[[], Set[LeaseId]],
    ) -> None:  # fmt: skip
        self.config, self.name = host, host.name
        self.facts: dict[str, Any] = {}  # as it said when it was reached last; {}: never
        self.trouble: ArgosyError | None = None  # why it was not reached the last time
        self._place, self._agent = place, agent
        self._changed, self._asked = changed, asked
        self._connection = Connection(host, home)
        self._desk: Desk | None = None
        self._ready: Ready | None = None
        self._opening: asyncio.Task[Desk] | None = None
        self._failures, self._again_at = 0, 0.0

    async def desk(self, seconds: float) -> Desk:
        """Its desk, opened if need be; waits no longer than that. Raises Unreachable, AccessError,
        InfraError.
        """
        if self._desk is not None and self._desk.open:
            return self._desk
        if self._opening is None:
            if self.trouble is not None and asyncio.get_running_loop().time() < self._again_at:
                raise self.trouble
            self._opening = asyncio.create_task(self._opened(), name=f"open {self.name}")
            self._opening.add_done_callback(self._settle)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self._opening)
        except TimeoutError as error:
            raise self.trouble or Unreachable(
                f"{self.name} has not answered yet",
                code="ssh/no-answer",
                hint="see whether the host and the way to it work",
                retry=PAUSES[0],
            ) from error

    async def attach(self) -> PipeStream:
        """A stream to its agent, which is started if need be. Raises Unreachable."""
        try:
            async with asyncio.timeout(ATTACH_SECONDS):
                if self._ready is None:
                    await self.desk(ATTACH_SECONDS)
                stream = await self._attached()
                if stream is None:
                    desk = await self.desk(ATTACH_SECONDS)
                    await desk.ask("start")
                    stream = await self._attached()
        except TimeoutError as error:
            raise self._no_agent(f"not within {ATTACH_SECONDS:g} s", "ssh/no-answer") from error
        except Unreachable:
            raise
        except ArgosyError as error:
            raise Unreachable(error.text, code=error.code, hint=error.hints) from error
        if stream is None:
            raise self._no_agent("it ends as soon as it is started")
        return stream

    async def close(self) -> None:
        """Let go of it; what runs there goes on."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._desk is not None:
            await self._desk.close()
        await self._connection.close()

    # --- opening ---------------------------------------------------------------------------------

    async def _opened(self) -> Desk:
        """Make it ready, and open its desk."""
        agents = await asyncio.to_thread(self._agent)
        async with asyncio.timeout(OPEN_SECONDS):
            if self._desk is not None:
                await self._put_away(self._desk)
            try:
                desk, ready = await self._visited(agents, quick=True)
            except InfraError as error:
                if error.code not in SHELL_ENDED:
                    raise
                # A `python3` that does not start, say: others are looked for.
                desk, ready = await self._visited(agents, quick=False)
            try:
                await self._see_all_is_here(desk)
            except BaseException:
                await desk.close()
                raise
        self.facts, self._ready = desk.facts, ready
        return desk

    async def _visited(self, agents: Agents, *, quick: bool) -> tuple[Desk, Ready]:
        """A desk there that is open, and what it takes to attach to the agent."""
        stream = await self._connection.stream(opening(agents, self._place, quick=quick))
        try:
            python, path = await self._introduced(stream, agents)
            hello = json.loads(await self._line(stream))
        except BaseException:
            await stream.close()
            raise
        desk = Desk(self.name, stream, hello, self._changed)
        return desk, Ready(python, path, hello["home"])

    async def _see_all_is_here(self, desk: Desk) -> None:
        """What was asked of the host, and is there, belongs to this agent. Raises AccessError: for
        another one its leases would seem to be gone, and be begun again beside what runs.
        """
        asked = await asyncio.to_thread(self._asked)
        if asked:
            look = await desk.ask("look")
            if (asked & set(look["holders"])) - look["leases"].keys():
                raise other_agent(self.config)

    async def _put_away(self, desk: Desk) -> None:
        """A desk that has ended: what it said decides whether its connection is good still."""
        self._desk = None
        try:
            code, said = await desk.ended()
            if code == EXIT_SSH:
                self._connection.failed(said)
        finally:
            await desk.close()

    def _settle(self, task: asyncio.Task[Desk]) -> None:
        """Keep what came of the opening, whoever asked for it."""
        self._opening = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._desk, self.trouble, self._failures = task.result(), None, 0
        else:
            before, self.trouble = self.trouble, self._translated(error)
            pause = PAUSES[min(self._failures, len(PAUSES) - 1)]
            self._again_at = asyncio.get_running_loop().time() + pause
            self._failures += 1
            if before is None or before.text != self.trouble.text:  # it may go on for days
                LOG.warning("%s: %s", self.name, self.trouble.text)
        self._changed()

    def _translated(self, error: BaseException) -> ArgosyError:
        if isinstance(error, ArgosyError):
            return error
        text = str(error) or "no answer in time"
        return Unreachable(f"{self.name}: {text}", code="ssh/no-answer", retry=PAUSES[0])

    async def _introduced(self, stream: PipeStream, agents: Agents) -> tuple[str, str]:
        """(python, agent) on the host, once the script has done its part."""
        await self._until(stream, MARK)
        while True:
            word, _, rest = (await self._line(stream)).partition(" ")
            match word:
                case "need":
                    await stream.write(agents.asked(rest).body)
                case "have":
                    python, _, path = rest.partition("\t")
                    return python, path
                case "none":
                    raise not_python(self.config, rest)
                case _:
                    raise InfraError(
                        f"{self.name} cannot be made ready: {rest or word}",
                        code="ssh/not-ready",
                        hint="mend it there; `agent_home` in the pool names another folder",
                        retry=PAUSES[-1],
                    )

    async def _line(self, stream: PipeStream) -> str:
        """The next line. Raises what the end of the stream means."""
        line = await stream.readline()
        if not line.endswith(b"\n"):
            raise await self._end(stream)
        return line.decode("utf-8", "replace").rstrip("\r\n")

    async def _until(self, stream: PipeStream, mark: str) -> None:
        noise = 0
        while (line := await self._line(stream)) != mark:
            noise += len(line)
            if noise > NOISE_MAX:
                raise InfraError(
                    f"the start files of the shell on {self.name} print without end",
                    code="ssh/noise",
                    hint="let them print nothing where there is no terminal",
                )

    async def _end(self, stream: PipeStream) -> ArgosyError:
        code, said = await stream.ended()
        if code == EXIT_SSH:
            return self._connection.failed(said)
        return InfraError(
            f"{self.name}: the shell ended with {code}: {said.strip()[-300:]}",
            code="ssh/no-shell" if code in (126, 127) else "ssh/shell-ended",
            hint="the host needs `sh`, `dd` and Python >= 3.8",
            retry=PAUSES[-1],
        )

    # --- the agent -------------------------------------------------------------------------------

    async def _attached(self) -> PipeStream | None:
        """A stream to its agent; None when none runs."""
        if self._ready is None:
            raise self._no_agent("it has to be made ready anew")
        stream = await self._connection.stream(self._ready.attach())
        try:
            noise = 0
            while line := await stream.readline():
                if line.rstrip() == ATTACHED.encode():
                    return stream
                noise += len(line)
                if noise > NOISE_MAX:
                    break
            code, said = await stream.ended()
        except BaseException:
            await stream.close()
            raise
        await stream.close()
        if code == EXIT_NO_AGENT:
            return None
        if code == EXIT_SSH:
            raise self._connection.failed(said)
        await self._begin_anew()  # somebody may have taken the agent or its Python away
        raise self._no_agent(said.strip()[-300:] or f"exit code {code}")

    async def _begin_anew(self) -> None:
        """What was found there holds no more: whoever asks next makes the host ready again."""
        self._ready = None
        if self._desk is not None:
            await self._desk.close()

    def _no_agent(self, why: str, code: str = "agent/does-not-start") -> Unreachable:
        return Unreachable(
            f"the agent on {self.name} cannot be attached: {why}",
            code=code,
            hint=f"read agent.log below {self._place.folder} on the host",
            retry=PAUSES[0],
        )

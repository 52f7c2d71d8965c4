"""Whole groups on an infra, through the real control plane: what every infra must do for them.

A test module subclasses `InfraStories` beside `InfraSuite`, with the same `opened`; the bench's
home must make the server open the infra under its name.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from argosy.control.control import Control
from argosy.infra.api import Breaks
from argosy.model.action import Limits
from argosy.model.group import Attempt, Group, Intent, Outcome, Phase, Stage, Verb
from argosy.model.ids import GroupId, NodeId, group_of
from argosy.spec.parse import parse
from argosy.store.store import Store
from argosy.testing.infra_bench import Bench, Program, until

GANG_SIZE = 3


class StoryBench(Bench, Protocol):
    """A bench on which whole groups run."""

    home: Path
    part: str  # resources, in YAML, of which three nodes fit at once
    most: str  # resources of which three nodes fit at once, and no fourth


class Server:
    """A server's control plane without its API, on a bench."""

    def __init__(self, control: Control, store: Store, bench: StoryBench) -> None:
        self.control, self.store, self.network = control, store, bench.network
        self._bench = bench

    @classmethod
    @asynccontextmanager
    async def open(cls, bench: StoryBench) -> AsyncIterator[Server]:
        """One life of it; groups outlive it."""
        store = await asyncio.to_thread(Store.open, bench.home / "store.db")
        control = Control(store, bench.home, Limits(backoff_most=1.0))
        await control.start()
        try:
            yield cls(control, store, bench)
        finally:
            await control.stop()
            store.close()

    async def launch(self, text: str, base: Path) -> GroupId:
        """Submit a file."""
        spec = parse(text, file="story.yaml", base=str(base)).spec
        group = await self.control.submit(
            replace(spec, network=self.network), source=text, replace=False
        )
        return group.id

    def group(self, group: GroupId) -> Group:
        """Its record now."""
        return self.control.find(group)

    async def until(self, group: GroupId, wanted: Callable[[Group], bool]) -> Group:
        """Its record, once it is as wanted."""

        async def look() -> Group:
            return self.group(group)

        return await until(look, wanted)

    async def ended(self, group: GroupId) -> Group:
        """Its record, once it is over and nothing with its mark is left."""
        await self.until(group, lambda now: now.phase.final)

        async def left() -> list[str]:
            looks = [await infra.sightings() for infra in self.control.infras.values()]
            marks = [one.lease for look in looks for one in look.leases]
            return [lease for lease in marks if group_of(lease) == group]

        await until(left, lambda found: not found)
        return self.group(group)

    async def running(self, group: GroupId) -> Group:
        """Its record, once every node runs."""
        return await self.until(group, lambda now: all(
            attempt_of(now, node).stage is Stage.RUNNING for node in now.spec.nodes()
        ) if len(now.attempts) >= len(now.spec.nodes()) else False)  # fmt: skip

    async def break_host(self, attempt: Attempt, what: str) -> None:
        """Break the host of an attempt: as a user can, where the infra lets them."""
        if isinstance(self.control.infras[attempt.infra], Breaks):
            await self.control.break_host(attempt, what)
        else:
            await self._bench.breaks.break_host(attempt.host, what)

    async def ask(self, attempt: Attempt, message: dict[str, Any]) -> list[dict[str, Any]]:
        """One question to the agent of an attempt; every line of the answer."""
        stream = await self.control.agent_of(attempt)
        try:
            await stream.write(json.dumps({**message, "attempt": attempt.id}).encode() + b"\n")
            lines = []
            while line := await stream.readline():
                lines.append(json.loads(line))
            return lines
        finally:
            await stream.close()

    async def log(self, attempt: Attempt) -> str:
        """Everything that an attempt wrote."""
        lines = await self.ask(attempt, {"op": "logs", "follow": True})
        chunks = [base64.b64decode(line["data"]) for line in lines if "data" in line]
        return b"".join(chunks).decode("utf-8", "replace")


def attempt_of(group: Group, node: NodeId) -> Attempt:
    """The newest attempt of a node."""
    mine = [attempt for attempt in group.attempts if attempt.node == node]
    return max(mine, key=lambda attempt: attempt.number)


def outcomes(group: Group) -> dict[str, Outcome | None]:
    """Node -> how its newest attempt ended."""
    return {str(node): attempt_of(group, node).outcome for node in group.spec.nodes()}


class InfraStories:
    """Stories of whole groups. Subclass it, and say in `opened` how a bench is made."""

    def opened(self, home: Path) -> AbstractAsyncContextManager[StoryBench]:
        """A fresh bench with its state under `home`."""
        raise NotImplementedError

    def tell(
        self, home: Path, story: Callable[[StoryBench, Server], Coroutine[Any, Any, None]]
    ) -> None:
        """Tell a story with one server; every group ends, and nothing is left of any."""

        async def whole() -> None:
            async with self.opened(home) as bench, Server.open(bench) as server:
                try:
                    await story(bench, server)
                finally:
                    for group in server.control.groups(ended=False):
                        for attempt in group.attempts:
                            if attempt.live and attempt.host:
                                await server.break_host(attempt, "restore")
                        now = server.control.clock.now()
                        await server.control.intend(group.id, Intent(Verb.CANCEL_NOW, now))
                        await server.ended(group.id)

        asyncio.run(whole())

    def test_a_gang_starts_together_with_names_and_ends_with_its_codes(
        self, tmp_path: Path
    ) -> None:
        """Nothing starts before all is ready; peers find each other; logs and codes are kept."""

        async def story(bench: StoryBench, server: Server) -> None:
            text = SERVICE.format(part=bench.part)
            ended = await server.ended(await server.launch(text, tmp_path))
            assert ended.phase is Phase.FAILED, ended.text
            ready = max(attempt.ready_at for attempt in ended.attempts)
            assert all(attempt.started_at >= ready for attempt in ended.attempts)
            by_task = {attempt.node.task: attempt for attempt in ended.attempts}
            assert by_task["client"].exit_code == 0, await server.log(by_task["client"])
            assert "hello from server-0" in await server.log(by_task["client"])
            assert by_task["bad"].exit_code == 7
            assert "out of luck" in await server.log(by_task["bad"])
            assert by_task["server"].outcome in (Outcome.SUCCEEDED, Outcome.STOPPED)

        self.tell(tmp_path, story)

    def test_two_gangs_that_do_not_fit_together_run_one_after_the_other(
        self, tmp_path: Path
    ) -> None:
        """Each wants all there is; none ever holds a part while it waits."""

        async def story(bench: StoryBench, server: Server) -> None:
            text = "name: {name}\nnum_nodes: 3\nresources: {most}\nrun: sleep 0.5\n"
            ids = [
                await server.launch(text.format(name=name, most=bench.most), tmp_path)
                for name in ("first", "second")
            ]
            groups = [await server.ended(group) for group in ids]
            assert [group.phase for group in groups] == [Phase.SUCCEEDED] * 2
            spans = sorted(
                (
                    min(attempt.created_at for attempt in group.attempts),
                    max(attempt.ended_at for attempt in group.attempts),
                )
                for group in groups
            )
            assert spans[0][1] <= spans[1][0] + CLOCKS_MAY_DIFFER

        self.tell(tmp_path, story)

    def test_a_killed_program_is_restarted_in_place_and_others_are_left_alone(
        self, tmp_path: Path
    ) -> None:
        """On the same lease, with the next number, and a reason."""

        async def story(bench: StoryBench, server: Server) -> None:
            group = await server.launch(RESTARTING.format(part=bench.part), tmp_path)
            before = await server.running(group)
            victim = attempt_of(before, NodeId("work", 1))
            (answer,) = await server.ask(victim, {"op": "chaos", "what": "kill"})
            assert answer.get("ok"), answer
            after = await server.until(group, lambda now: again(now, victim))
            fresh = attempt_of(after, victim.node)
            assert (fresh.number, fresh.lease) == (2, victim.lease)
            assert fresh.restart_reason
            for other in (NodeId("work", 0), NodeId("work", 2)):
                assert attempt_of(after, other).id == attempt_of(before, other).id
                assert attempt_of(after, other).stage is Stage.RUNNING

        self.tell(tmp_path, story)

    def test_a_lost_host_is_replaced_on_evidence(self, tmp_path: Path) -> None:
        """Its node goes to another lease, elsewhere or once it is back; others keep running."""

        async def story(bench: StoryBench, server: Server) -> None:
            group = await server.launch(RESTARTING.format(part=bench.part), tmp_path)
            before = await server.running(group)
            victim = attempt_of(before, NodeId("work", 1))
            await server.break_host(victim, "lose")
            if bench.lost_at_once:
                await server.until(group, lambda now: by_id(now, victim).outcome is Outcome.LOST)
            else:
                await self._suspect(server)
                now = server.group(group)
                assert [one.id for one in now.attempts] == [one.id for one in before.attempts]
                assert all(one.outcome is None for one in now.attempts)
            await server.break_host(victim, "restore")
            await server.until(group, lambda now: by_id(now, victim).outcome is Outcome.LOST)
            after = await server.until(group, lambda now: again(now, victim))
            assert attempt_of(after, victim.node).lease != victim.lease
            for attempt in before.attempts:
                if attempt.host != victim.host:
                    assert by_id(after, attempt).stage is Stage.RUNNING

        self.tell(tmp_path, story)

    async def _suspect(self, server: Server) -> None:
        """Wait until what is silent from now on is suspect."""
        began, suspect = time.monotonic(), server.control.limits.suspect_after

        async def look() -> float:
            return time.monotonic() - began

        await until(look, lambda waited: waited > suspect + 1.0)

    def test_a_frozen_host_is_a_doubt_and_nothing_more(self, tmp_path: Path) -> None:
        """Longer than it takes to be suspect; after the thaw everything goes on."""

        async def story(bench: StoryBench, server: Server) -> None:
            group = await server.launch(RESTARTING.format(part=bench.part), tmp_path)
            before = await server.running(group)
            victim = attempt_of(before, NodeId("work", 0))
            await server.break_host(victim, "freeze")
            await self._suspect(server)
            await server.break_host(victim, "thaw")
            stream = await server.control.agent_of(victim)
            await stream.close()
            after = server.group(group)
            assert [one.id for one in after.attempts] == [one.id for one in before.attempts]
            assert all(one.stage is Stage.RUNNING for one in after.attempts)

        self.tell(tmp_path, story)

    def test_a_group_outlives_its_server(self, tmp_path: Path) -> None:
        """What ends meanwhile is known to the next life of the server."""

        async def whole() -> None:
            async with self.opened(tmp_path) as bench:
                program = Program()
                waits = f"export {program.entry}; sleep 1000; exit 3"
                text = f"name: alone\nresources: {bench.part}\nrun: {waits}\n"
                async with Server.open(bench) as server:
                    group = await server.launch(text, tmp_path)
                    before = await server.running(group)
                (sleeper,) = await program.pids(1)  # its host may see no file that is made here
                os.kill(sleeper, signal.SIGKILL)
                async with Server.open(bench) as server:
                    ended = await server.ended(group)
                    assert ended.phase is Phase.FAILED
                    assert [one.id for one in ended.attempts] == [one.id for one in before.attempts]
                    assert ended.attempts[0].exit_code == 3

        asyncio.run(whole())

    def test_cancel_ends_every_process_and_leaves_nothing(self, tmp_path: Path) -> None:
        """Programs get SIGTERM; daemons of theirs that ignore it are killed after the grace."""

        async def story(bench: StoryBench, server: Server) -> None:
            program = Program()
            indented = program.text.replace("\n", "\n  ")
            text = f"name: c\ngrace: 1s\nresources: {bench.part}\nrun: |\n  {indented}\n"
            group = await server.launch(text, tmp_path)
            await server.running(group)
            pids = await program.pids()
            now = server.control.clock.now()
            await server.control.intend(group, Intent(Verb.CANCEL, now))
            ended = await server.ended(group)
            assert ended.phase is Phase.CANCELLED
            assert set(outcomes(ended).values()) == {Outcome.STOPPED}
            assert not [pid for pid in pids if program.state(pid)]
            assert not ended.unreachable

        self.tell(tmp_path, story)


def again(group: Group, victim: Attempt) -> bool:
    """Whether a later attempt of the same node runs."""
    newest = attempt_of(group, victim.node)
    return newest.number > victim.number and newest.stage is Stage.RUNNING


def by_id(group: Group, attempt: Attempt) -> Attempt:
    """The same attempt in a later record."""
    return next(one for one in group.attempts if one.id == attempt.id)


CLOCKS_MAY_DIFFER = 0.05  # seconds; ends are of the agent's clock, starts of the server's

RESTARTING = f"""\
name: work
num_nodes: {GANG_SIZE}
resources: {{part}}
restart: {{{{on: [failure, lost], max: 3, backoff: 0s, scope: node}}}}
grace: 1s
run: sleep 1000
"""

SERVICE = """\
name: meet
execution: parallel
primary_tasks: [client, bad]
---
name: server
resources: {part}
ready: {{tcp: 8000}}
grace: 1s
run: |
  cat >serve.py <<'PY'
  import os, socketserver
  class Hello(socketserver.StreamRequestHandler):
      def handle(self):
          self.wfile.write(b"hello from " + os.environ["ARGOSY_NODE"].encode())
  class Server(socketserver.ThreadingTCPServer):
      allow_reuse_address = True
  Server((os.environ["ARGOSY_HOSTNAME"], 8000), Hello).serve_forever()
  PY
  exec python3 serve.py
---
name: client
depends_on: {{server: healthy}}
resources: {part}
run: |
  cat >ask.py <<'PY'
  import socket
  print(socket.create_connection(("server-0.meet", 8000)).recv(99).decode())
  PY
  exec python3 ask.py
---
name: bad
depends_on: {{server: healthy}}
resources: {part}
run: echo out of luck; exit 7
"""

"""However a group ends on real SSH hosts, nothing of it is left there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from argosy.model.group import Group, Intent, Outcome, Phase, Verb
from argosy.model.ids import NodeId
from argosy.testing.infra_bench import Program
from argosy.testing.infra_stories import Server, again, attempt_of
from tests.infra.ssh.left import left_on_hosts
from tests.infra.ssh.ssh_bench import SshBench, ssh_bench

pytestmark = pytest.mark.ssh

NODES = 3


def text(program: Program, last: str) -> str:
    """Three nodes that leave children and a daemon behind when they do `last`."""
    lines = program.text.replace("sleep 1000\ntrue\n", f"sleep 1000 &\n{last}\n").splitlines()
    script = "\n".join(f"  {line}" for line in lines)
    return (
        f"name: ends\nnum_nodes: {NODES}\ngrace: 1s\nworkdir: code\n"
        "resources: {infra: ssh/lab, accelerators: 'H100:8'}\n"
        f"restart: {{on: lost, backoff: 0s, scope: node}}\nrun: |\n{script}\n"
    )


async def cancelled(server: Server, group: Group, verb: Verb = Verb.CANCEL) -> None:
    await server.control.intend(group.id, Intent(verb, server.control.clock.now()))


async def cancelled_now(bench: SshBench, server: Server, group: Group) -> None:
    await cancelled(server, group, Verb.CANCEL_NOW)


async def cancelled_kindly(bench: SshBench, server: Server, group: Group) -> None:
    await cancelled(server, group)


async def cancelled_with_dead_agents(bench: SshBench, server: Server, group: Group) -> None:
    for attempt in group.attempts:
        await bench.breaks.break_host(attempt.host, "kill-agent")
    await cancelled(server, group)


async def cancelled_after_a_loss(bench: SshBench, server: Server, group: Group) -> None:
    victim = attempt_of(group, NodeId("ends", 1))
    await bench.breaks.break_host(victim.host, "lose")
    await bench.breaks.break_host(victim.host, "restore")
    await server.until(group.id, lambda now: again(now, victim))
    await cancelled(server, group)


async def nobody_touches_it(bench: SshBench, server: Server, group: Group) -> None:
    return


End = Callable[[SshBench, Server, Group], Awaitable[None]]


@pytest.mark.parametrize(
    ("last", "end", "phase"),
    [
        ("sleep 1", nobody_touches_it, Phase.SUCCEEDED),
        ("sleep 1; exit 3", nobody_touches_it, Phase.FAILED),
        ("sleep 1000", cancelled_kindly, Phase.CANCELLED),
        ("trap '' TERM; sleep 1000", cancelled_now, Phase.CANCELLED),
        ("sleep 1000", cancelled_with_dead_agents, Phase.CANCELLED),
        ("sleep 1000", cancelled_after_a_loss, Phase.CANCELLED),
    ],
    ids=("success", "failure", "cancel", "cancel-now", "dead-agents", "lost-host"),
)
def test_nothing_is_left(on_rig, tmp_path: Path, last: str, end: End, phase: Phase):
    async def story() -> None:
        async with ssh_bench(tmp_path / "home", on_rig) as bench, Server.open(bench) as server:
            program = Program()
            (tmp_path / "code").mkdir()
            (tmp_path / "code" / "file").write_text("contents\n")
            group = await server.launch(text(program, last), tmp_path)
            if end is not nobody_touches_it:
                running = await server.running(group)
                await program.pids(NODES * Program.PROCESSES)
                await end(bench, server, running)
            ended = await server.ended(group)
            assert ended.phase is phase, ended.text
            assert not ended.unreachable
            assert await program.pids(0) == []
            assert {one.outcome for one in ended.attempts} - {None} <= set(Outcome)
            await server.control.remove(group)
            left = left_on_hosts(on_rig)
            assert not left, "\n".join(left)

    asyncio.run(story())

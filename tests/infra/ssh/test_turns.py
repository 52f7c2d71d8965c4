"""Groups that do not fit together take turns on real SSH hosts: of one server, and of two."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from argosy.model.group import Group, Phase
from argosy.testing.infra_stories import CLOCKS_MAY_DIFFER, Server
from tests.infra.ssh.left import left_on_hosts
from tests.infra.ssh.ssh_bench import SshBench, ssh_bench

pytestmark = pytest.mark.ssh

ROUNDS = 20
# Three quarters of the cards of each of the three hosts: with a part of it neither can go on.
TEXT = """name: {name}
num_nodes: 3
grace: 1s
resources: {{infra: ssh/lab, accelerators: 'H100:6'}}
run: sleep 0.2
"""


def span(group: Group) -> tuple[float, float]:
    """From its first program's start to its last one's end."""
    ran = [attempt for attempt in group.attempts if attempt.started_at]
    return min(one.started_at for one in ran), max(one.ended_at for one in ran)


async def both(servers: tuple[Server, Server], number: int, base: Path) -> None:
    """One round: both are launched at once, both succeed, and never ran at the same time."""
    names = (f"one-{number}", f"two-{number}")
    ids = await asyncio.gather(
        *(
            server.launch(TEXT.format(name=name), base)
            for server, name in zip(servers, names, strict=True)
        )
    )
    ended = [await server.ended(group) for server, group in zip(servers, ids, strict=True)]
    assert [group.phase for group in ended] == [Phase.SUCCEEDED] * 2, [one.text for one in ended]
    for server, group in zip(servers, ids, strict=True):
        await server.control.remove(group)  # its logs and working directories were kept till now
    first, second = sorted(map(span, ended))
    assert first[1] <= second[0] + CLOCKS_MAY_DIFFER, (first, second)


def test_two_groups_of_one_server_take_turns(on_rig, tmp_path):
    """Twenty times of twenty, and nothing of any is left on the hosts."""

    async def whole() -> None:
        async with ssh_bench(tmp_path / "home", on_rig) as bench, Server.open(bench) as server:
            for number in range(ROUNDS):
                await both((server, server), number, tmp_path)
            left = left_on_hosts(on_rig)
            assert not left, "\n".join(left)

    asyncio.run(whole())


def test_groups_of_two_servers_take_turns(on_rig, tmp_path):
    """Neither knows of the other but by what is taken on the hosts."""

    async def whole() -> None:
        async with AsyncExitStack() as stack:
            homes = [tmp_path / "one", tmp_path / "two"]
            benches: list[SshBench] = [
                await stack.enter_async_context(ssh_bench(home, on_rig)) for home in homes
            ]
            servers = [await stack.enter_async_context(Server.open(one)) for one in benches]
            first, second = servers
            for number in range(ROUNDS):
                await both((first, second), number, tmp_path)
            left = left_on_hosts(on_rig)
            assert not left, "\n".join(left)

    asyncio.run(whole())

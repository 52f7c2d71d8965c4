"""What people change under a server: the agent's files on a host, and the pool itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from argosy.errors import Unreachable
from argosy.infra.api import HostRef
from argosy.model.observed import SeenState
from argosy.testing.infra_bench import held, let_go, refusal, until
from tests.infra.ssh.rig import Rig
from tests.infra.ssh.ssh_bench import HOSTS, NAME, POOL, configure, end_agents, ssh_bench

pytestmark = pytest.mark.ssh

OTHER_HOME = (
    f"ssh: {{pools: {{lab: {{agent_home: ~/.argosy-agent/other, hosts: [{HOSTS[0]}]}}}}}}\n"
)


def test_an_agent_whose_file_was_removed_comes_again(on_rig: Rig, tmp_path: Path) -> None:
    """The desk of the host lives all the while."""

    async def story() -> None:
        async with ssh_bench(tmp_path / "home", on_rig) as bench:
            await until(bench.infra.hosts, lambda hosts: hosts[0].state == "up")
            on_rig.on_host("host-1", "rm /root/.argosy-agent/bin/*")
            ref = HostRef(NAME, "host-1")
            assert isinstance(await refusal(bench.infra.attach(ref)), Unreachable)
            stream = await bench.infra.attach(ref)
            await stream.write(b'{"op": "status"}\n')
            assert (await stream.readline()).startswith(b"{")
            await stream.close()

    asyncio.run(story())


def test_a_host_that_was_taken_out_of_the_pool_is_no_evidence(on_rig: Rig, tmp_path: Path) -> None:
    """What is there cannot be seen, nor ended, until the host is back in the pool."""

    async def story() -> None:
        async with ssh_bench(tmp_path / "home", on_rig) as bench:
            mine = await held(bench.infra, 1, bench.placement(0))
            configure(bench.home, f"ssh: {{pools: {{lab: {{hosts: [{HOSTS[1]}]}}}}}}\n")
            later = await bench.again()
            assert mine.lease in (await later.sightings()).blind
            assert isinstance(await refusal(later.release(mine.lease)), Unreachable)
            health = await later.check()
            assert health.works
            assert any("no host 'host-1' any more" in problem for problem in health.problems)
            assert isinstance(await refusal(later.attach(HostRef(NAME, HOSTS[0]))), Unreachable)
            await later.forget_host(HOSTS[0])
            assert not (await later.sightings()).blind
            configure(bench.home, POOL)
            back = await bench.again()
            (one,) = [one for one in (await back.sightings()).leases if one.lease == mine.lease]
            assert one.state is SeenState.UP
            await let_go(bench.infra)

    asyncio.run(story())


def test_another_folder_for_agents_hides_nothing(on_rig: Rig, tmp_path: Path) -> None:
    """What runs in the old one is neither lost nor begun again; it is used when nothing does."""

    async def story() -> None:
        async with ssh_bench(tmp_path / "home", on_rig) as bench:
            mine = await held(bench.infra, 1, bench.placement(0))
            configure(bench.home, OTHER_HOME)
            later = await bench.again()
            assert mine.lease in (await later.sightings()).blind
            error = await refusal(later.attach(HostRef(NAME, HOSTS[0])))
            assert isinstance(error, Unreachable)
            assert "another agent than the pool leads to" in error.text
            assert any("agent_home" in hint for hint in error.hints)
            await let_go(bench.infra)
            await until(bench.infra.sightings, lambda look: not look.leases)
            need = bench.placement(0).need
            await until(lambda: later.offers(need), lambda offers: not offers[0].silent)
            await held(later, 2, bench.placement(0))
            await let_go(later)

    try:
        asyncio.run(story())
    finally:
        end_agents(on_rig)

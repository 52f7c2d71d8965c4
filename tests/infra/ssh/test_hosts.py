"""Hosts as they are: old Pythons, none, start files that print, other servers, unknown keys."""

from __future__ import annotations

import asyncio

import pytest

from argosy.errors import CapacityError
from argosy.infra.api import HostRef
from argosy.model.observed import SeenState
from argosy.testing.infra_bench import held, let_go, refusal, request, seen, until
from tests.infra.ssh.rig import a_rig
from tests.infra.ssh.ssh_bench import NAME, an_infra, configure, end_agents, ssh_bench

pytestmark = pytest.mark.ssh


def test_an_old_python_does_and_none_is_told(on_rig, tmp_path):
    """The check says which host lacks what; the others are offered."""

    async def story():
        async with ssh_bench(tmp_path / "home", on_rig) as bench:
            health = await bench.infra.check()
            assert health.works
            assert any("3.8" in value or "3.9" in value for _, value in health.facts)
            (problem,) = health.problems
            assert "host-3 has no Python 3.8 or newer" in problem
            assert any("install python3" in hint for hint in health.hints)
            mine = await held(bench.infra, 1, bench.placement(1))
            stream = await bench.infra.attach(HostRef(NAME, mine.host))
            await stream.close()
            await let_go(bench.infra)

    on_rig.verb("oldpython", "host-2")
    on_rig.verb("nopython", "host-3")
    try:
        asyncio.run(story())
    finally:
        for host in ("host-2", "host-3"):
            on_rig.verb("ownpython", host)


def test_a_host_learns_the_address_for_the_others(on_rig, tmp_path):
    """The one at which ssh came in, or the one of the pool, which an agent then knows too."""
    said = "cat /root/.argosy-agent/*/lab/host-1/address"

    async def story(host: str) -> str:
        configure(tmp_path / "home", f"ssh: {{pools: {{lab: {{hosts: [{host}]}}}}}}\n")
        infra = an_infra(tmp_path / "home")
        try:
            assert (await infra.check()).works
        finally:
            await infra.close()
        return on_rig.on_host("host-1", said).strip()

    try:
        assert asyncio.run(story("host-1")) == "172.31.88.11"
        assert asyncio.run(story("{host: host-1, address: 10.9.8.7}")) == "10.9.8.7"
    finally:
        end_agents(on_rig)


def test_start_files_that_print_do_no_harm(on_rig, tmp_path):
    """bash reads them where there is no terminal, too."""

    async def story():
        async with ssh_bench(tmp_path / "home", on_rig) as bench:
            assert len(await bench.infra.offers(bench.placement(0).need)) == 3
            mine = await held(bench.infra, 1, bench.placement(0))
            stream = await bench.infra.attach(HostRef(NAME, mine.host))
            await stream.write(b'{"op": "status"}\n')
            assert (await stream.readline()).startswith(b"{")
            await stream.close()
            await let_go(bench.infra)

    on_rig.on_host("host-1", "echo 'echo welcome; echo again' > /root/.bashrc")
    try:
        asyncio.run(story())
    finally:
        on_rig.on_host("host-1", "rm /root/.bashrc")


def test_two_servers_honour_what_the_other_holds(on_rig, tmp_path):
    """Neither sees the other's lease as its own, and no GPU is given twice."""

    async def story():
        async with ssh_bench(tmp_path / "home", on_rig) as bench:
            configure(tmp_path / "other")
            other = an_infra(tmp_path / "other", server="another")
            bench.opened.append(other)
            mine = await held(bench.infra, 1, bench.full())
            assert bench.infra.gpu_indices(mine.lease) == tuple(range(8))
            assert not (await other.sightings()).leases
            (offer,) = [one for one in await other.offers(bench.full().need)
                        if one.host == mine.host]  # fmt: skip
            assert offer.free.count_of("H100") == 0
            error = await refusal(other.acquire(request(2, bench.full())))
            assert isinstance(error, CapacityError)
            await other.release(mine.lease)
            assert mine.lease in await seen(bench.infra)
            await let_go(bench.infra)
            await held(other, 3, bench.full())
            await let_go(other)

    asyncio.run(story())


def test_a_host_that_cannot_be_reached_is_no_evidence(on_rig, tmp_path):
    """Its leases are shown as they were, marked as not seen; a later life does not miss them."""

    async def story():
        async with ssh_bench(tmp_path / "home", on_rig) as bench:
            mine = await held(bench.infra, 1, bench.placement(0))
            on_rig.verb("cut", mine.host)
            try:
                look = await until(bench.infra.sightings, lambda look: mine.lease in look.blind)
                assert mine.lease in {one.lease for one in look.leases}
                later = await bench.again()
                assert mine.lease in (await later.sightings()).blind
            finally:
                on_rig.verb("heal", mine.host)
            again = await until(bench.infra.sightings, lambda look: not look.blind)
            assert SeenState.GONE not in {one.state for one in again.leases}
            await let_go(bench.infra)

    asyncio.run(story())


def test_an_unknown_host_key_is_told_and_can_be_accepted(tmp_path, monkeypatch):
    """With the command; `accept_new: true` in the pool takes it."""
    with a_rig("--hosts", "1", "--no-known-hosts") as rig:
        for name, value in rig.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HOME", str(rig.user_home))

        async def story(pool: str) -> object:
            configure(tmp_path / "home", f"ssh: {{pools: {{lab: {pool}}}}}\n")
            infra = an_infra(tmp_path / "home")
            try:
                return await infra.check()
            finally:
                await infra.close()

        refused = asyncio.run(story("{hosts: [host-1]}"))
        assert not refused.works
        assert "the host key of host-1 is not known here" in refused.problems[0]
        assert any("accept-new host-1 true" in hint for hint in refused.hints)
        assert asyncio.run(story("{hosts: [host-1], accept_new: true}")).works
        end_agents(rig, ("host-1",))

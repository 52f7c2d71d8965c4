"""This machine as an infra: the laws, and what is its own: elastic cores, cards that all share."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from argosy.agent.facts import gpus
from argosy.agent.leases.book import Book
from argosy.agent.net import network, trial
from argosy.errors import (
    AccessError,
    CapacityError,
    InfraError,
    InputError,
    InputErrors,
    Unreachable,
)
from argosy.infra.api import Breaks, Checks, HostRef, Watches
from argosy.infra.local.agent import (
    CRASHES_MANY,
    LOG_MAX,
    Launch,
    LocalAgent,
    clean_environment,
)
from argosy.infra.local.cards import CardBook, boot_id, identity
from argosy.infra.local.hosts import Cards, LocalHost, card_name, cards_of, this_machine
from argosy.infra.local.infra import LOCK_TRIES, Local, Pool, _sizes
from argosy.infra.local.trial import network_found
from argosy.infra.registry import InfraSettings, open_infras
from argosy.model.ids import NodeId, ServerId
from argosy.model.needs import Accelerator, Need
from argosy.model.plan import Placement
from argosy.testing.infra_bench import DEADLINE, GROUP, held, let_go, request, seen
from argosy.testing.infra_stories import InfraStories
from argosy.testing.infra_suite import InfraSuite
from tests.infra.local_bench import configure, local_bench

ACQUIRE = """
import asyncio, sys
from pathlib import Path
from tests.infra.local_bench import an_infra
from argosy.model.ids import GroupId, NodeId
from argosy.model.needs import Need
from argosy.model.plan import Placement
from argosy.testing.infra_bench import request

async def acquire():
    infra = an_infra(Path(sys.argv[1]), "local/rack")
    print("ready", flush=True)
    sys.stdin.readline()
    place = Placement(NodeId("t", 0), "local/rack", "rack-0", Need(cpus=4.0), None)
    await infra.acquire(request(1, place, GroupId(sys.argv[2])))

asyncio.run(acquire())
"""


class TestLocal(InfraSuite, InfraStories):
    """The suite on `local`."""

    def opened(self, home):
        return local_bench(home / "home", "local")

    # Cores and memory are not counted there, so nothing is ever full.
    test_what_does_not_fit_now_is_refused_or_pending_at_once = None
    test_two_gangs_that_do_not_fit_together_run_one_after_the_other = None


def a_machine(home, server: str, *, file=None, cards: int = 4, python="/bin/false") -> Local:
    """This machine, if it had cards."""
    host = LocalHost(
        "localhost", 2.0, 8.0, (Cards("H100", tuple(range(cards)), 80.0),), elastic=True, real=True
    )
    launch = Launch(python, home / "no-agent", server)
    leases = home / "leases.json"
    book = CardBook(server, file or home / "gpus.json", home / "agents.json", leases)
    return Local(Pool("local", home / "machine", (host,), launch, book), time.time)


def wants(serial: int, count: int):
    need = Need(cpus=64.0, accelerators=(Accelerator("H100", count),))
    where = Placement(NodeId("t", 0), "local", "localhost", need, Accelerator("H100", count))
    return request(serial, where)


def test_a_mixed_pool_is_not_told_as_one_size():
    small, large = LocalHost("a", 2.0, 8.0), LocalHost("b", 8.0, 64.0)
    assert _sizes((small, replace(small, name="c"))) == ("each", "2 cpus, 8 GiB")
    told = _sizes((small, large, replace(small, name="c")))
    assert told == ("sizes", "2 x 2 cpus, 8 GiB; 1 x 8 cpus, 64 GiB")


def test_cards_are_held_exclusively(tmp_path):
    async def story():
        infra = a_machine(tmp_path, "one")
        await infra.acquire(wants(1, 2))
        await infra.acquire(wants(2, 2))
        assert infra.gpu_indices(wants(1, 2).lease) == (0, 1)
        assert infra.gpu_indices(wants(2, 2).lease) == (2, 3)
        (offer,) = await infra.offers(Need())
        assert offer.free.count_of("h100") == 0
        assert offer.total.count_of("H100") == 4
        with pytest.raises(CapacityError) as caught:
            await infra.acquire(wants(3, 1))
        assert "localhost has 2 cpus, 8 GiB, 0 H100 free" in caught.value.text
        await infra.close()

    asyncio.run(story())


def test_two_servers_of_one_machine_never_share_a_card(tmp_path):
    async def story():
        file = tmp_path / "gpus.json"
        mine = a_machine(tmp_path / "a", "one", file=file)
        theirs = a_machine(tmp_path / "b", "two", file=file)
        await mine.acquire(wants(1, 3))
        (offer,) = await theirs.offers(Need())
        assert offer.free.count_of("H100") == 1
        with pytest.raises(CapacityError):
            await theirs.acquire(wants(1, 2))
        await theirs.acquire(wants(2, 1))
        assert theirs.gpu_indices(wants(2, 1).lease) == (3,)
        await mine.close()
        await theirs.close()

    asyncio.run(story())


def test_what_is_leased_by_ssh_on_the_same_machine_is_not_given_again(tmp_path):
    """Once its machine was started anew it holds nothing; a file that says nothing sure is told."""

    async def story():
        infra, leases = a_machine(tmp_path, "one"), tmp_path / "leases.json"
        book = Book(str(leases), boot_id())
        entry = {"home": "/h", "boot": boot_id(), "cpus": 1.0, "memory_gib": 0.0}
        with book.changed() as entries:
            entries["g.1"] = {**entry, "indices": [0, 2]}
            entries["g.2"] = {**entry, "indices": [3], "boot": "before"}
        (offer,) = await infra.offers(Need())
        assert offer.free.count_of("H100") == 2
        with pytest.raises(CapacityError):
            await infra.acquire(wants(1, 3))
        await infra.acquire(wants(2, 2))
        assert infra.gpu_indices(wants(2, 2).lease) == (1, 3)
        leases.write_text("broken")
        with pytest.raises(AccessError) as caught:
            await infra.acquire(wants(3, 1))
        assert str(leases) in caught.value.text
        await infra.close()

    asyncio.run(story())


def test_a_dead_server_holds_no_card_and_a_later_life_of_it_does(tmp_path):
    """What it had leased is written down again as soon as it looks."""

    async def story():
        file = tmp_path / "gpus.json"
        mine = a_machine(tmp_path / "a", "one", file=file)
        await mine.acquire(wants(1, 3))
        entries = json.loads(file.read_text())
        dead = {i: {**entry, "started": entry["started"] - 1} for i, entry in entries.items()}
        file.write_text(json.dumps(dead))
        theirs = a_machine(tmp_path / "b", "two", file=file)
        (offer,) = await theirs.offers(Need())
        assert offer.free.count_of("H100") == 4
        await a_machine(tmp_path / "a", "one", file=file).sightings()
        (offer,) = await theirs.offers(Need())
        assert offer.free.count_of("H100") == 1

    asyncio.run(story())


def test_what_another_users_programs_use_is_not_free(tmp_path):
    async def story():
        infra = a_machine(tmp_path, "one")
        entry = {"mark": "x", **identity(os.getpid())}
        used = {"0": entry, "2": {**entry, "pid": 1 << 30}}
        (tmp_path / "agents.json").write_text(json.dumps(used))
        await infra.acquire(wants(1, 3))
        assert infra.gpu_indices(wants(1, 3).lease) == (1, 2, 3)

    asyncio.run(story())


def test_a_locked_reservation_file_holds_up_no_loop(tmp_path):
    """Another user may hold the lock for ever: what needs it is refused, the rest goes on."""

    async def story():
        infra = a_machine(tmp_path, "one")
        await infra.acquire(wants(1, 1))
        rounds = 0

        async def count() -> None:
            nonlocal rounds
            while True:
                rounds += 1
                await asyncio.sleep(0.001)

        counting = asyncio.create_task(count())
        theirs = os.open(tmp_path / "gpus.json", os.O_RDWR)
        fcntl.flock(theirs, fcntl.LOCK_EX)
        for verb in (infra.offers(Need()), infra.hosts(), infra.acquire(wants(2, 1))):
            before = rounds
            with pytest.raises(InfraError) as caught:
                await asyncio.wait_for(verb, 30.0)
            assert caught.value.code == "local/reservations-locked"
            assert rounds > before + LOCK_TRIES
        look = await a_machine(tmp_path, "one").sightings()
        assert {one.lease for one in look.leases} >= {wants(1, 1).lease}
        waiting = asyncio.create_task(infra.acquire(wants(2, 1)))
        await asyncio.sleep(0)
        os.close(theirs)
        await waiting  # it was locked for a moment only
        assert infra.gpu_indices(wants(2, 1).lease) == (1,)
        counting.cancel()
        await infra.close()

    asyncio.run(story())


def test_a_damaged_reservation_file_is_begun_anew(tmp_path):
    async def story():
        (tmp_path / "gpus.json").write_text('{"0": 7, "x": {}, "1": {"pid": "?"}')
        infra = a_machine(tmp_path, "one")
        await infra.acquire(wants(1, 4))
        assert sorted(json.loads((tmp_path / "gpus.json").read_text())) == ["0", "1", "2", "3"]
        assert (tmp_path / "gpus.json").stat().st_mode & 0o666

    asyncio.run(story())


def test_cores_of_this_machine_are_not_counted(tmp_path):
    async def story():
        async with local_bench(tmp_path / "home", "local") as bench:
            where = Placement(NodeId("t", 0), "local", "localhost", Need(cpus=1e6), None)
            await held(bench.infra, 1, where)
            (offer,) = await bench.infra.offers(Need())
            assert offer.elastic_cpus
            assert offer.free == offer.total
            await let_go(bench.infra)

    asyncio.run(story())


def test_an_agent_that_does_not_start_is_unreachable_with_its_last_words(tmp_path):
    async def story():
        infra = a_machine(tmp_path, "one")
        with pytest.raises(Unreachable) as caught:
            await infra.attach(HostRef("local", "localhost"))
        assert "ends as soon as it is started" in caught.value.text
        await infra.close()

    asyncio.run(story())


def test_an_agent_that_ends_again_and_again_is_told_by_the_check(tmp_path):
    """Whoever asks what works here hears of it, with what it said last."""
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho $1 $2 $3 $4: no module named agent >&2\nexit 1\n")
    broken.chmod(0o755)

    async def story():
        infra = a_machine(tmp_path, "one", python=str(broken))
        with pytest.raises(Unreachable, match="ends as soon as it is started"):
            await infra.attach(HostRef("local", "localhost"))
        health = await infra.check()
        assert not health.works
        told = health.problems[-1]
        assert "ended 3 times within" in told
        assert "no module named agent" in told
        assert health.hints
        await infra.close()

    asyncio.run(story())


def test_an_agent_that_was_killed_thrice_is_told_while_the_pool_works(tmp_path):
    async def story():
        async with local_bench(tmp_path / "home", "local/rack") as bench:
            host = HostRef("local/rack", "rack-0")
            for told in (False, False, True):
                await (await bench.infra.attach(host)).close()
                await bench.infra.break_host("rack-0", "kill-agent")
                await (await bench.infra.attach(host)).close()
                health = await bench.infra.check()
                assert health.works  # two hosts of three are sound at least
                assert any("ended 3 times" in one for one in health.problems) == told

    asyncio.run(story())


def test_a_full_log_of_an_agent_that_never_lives_is_put_aside(tmp_path):
    async def story():
        infra = a_machine(tmp_path, "one")
        log = tmp_path / "machine" / "hosts" / "localhost" / "agent.log"
        log.parent.mkdir(parents=True)
        log.write_bytes(b"x" * LOG_MAX + b"the last words")
        with pytest.raises(Unreachable, match="the last words"):
            await infra.attach(HostRef("local", "localhost"))
        assert log.stat().st_size < 1000
        assert log.with_name("agent.log.1").stat().st_size > LOG_MAX
        await infra.close()

    asyncio.run(story())


def test_where_no_agent_can_be_started_nothing_is_acquired(tmp_path):
    async def story():
        infra = a_machine(tmp_path, "one", python="/nowhere/python")
        with pytest.raises(InfraError) as caught:
            await infra.acquire(wants(1, 1))
        assert "/nowhere/python: No such file" in caught.value.text
        assert caught.value.hints
        assert not await seen(infra)

    asyncio.run(story())


def test_unknown_hosts_and_deeds_are_input_errors(tmp_path):
    async def story():
        infra = a_machine(tmp_path, "one")
        with pytest.raises(InputError):
            await infra.break_host("nowhere", "lose")
        with pytest.raises(InputError) as caught:
            await infra.break_host("localhost", "burn")
        assert "kill-agent" in caught.value.hints[0]

    asyncio.run(story())


def test_check_says_which_network_is_in_force(tmp_path):
    async def story():
        async with local_bench(tmp_path / "home", "local/rack") as bench:
            health = await bench.infra.check()
            facts = dict(health.facts)
            assert health.works, health
            assert facts["network"] in ("isolated", "host")
            assert facts["hosts"] == "3"
            assert (facts["network"] == "isolated") == (not health.problems)
            views = await bench.infra.hosts()
            assert [view.state for view in views] == ["up"] * 3

    asyncio.run(story())


def test_changes_wake_who_waits_for_them(tmp_path):
    async def story():
        async with local_bench(tmp_path / "home", "local/rack") as bench:
            waiting = asyncio.create_task(bench.infra.changed())
            await asyncio.sleep(0)
            assert not waiting.done()
            await bench.infra.acquire(request(1, bench.placement(0)))
            await asyncio.wait_for(waiting, 30)
            await let_go(bench.infra)

    asyncio.run(story())


@pytest.mark.parametrize("moment", [0.0, 0.0005, 0.001, 0.002, 0.004, 0.008])
def test_a_process_that_is_killed_while_it_acquires_leaves_what_is_seen(tmp_path, moment):
    """Either the lease was never made, or another process sees it and lets go of it."""
    home = tmp_path / "home"
    configure(home)
    child = subprocess.Popen(
        [sys.executable, "-c", ACQUIRE, str(home), GROUP],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{os.getcwd()}:{os.getcwd()}/src"},
    )
    with child:
        assert child.stdout.readline() == b"ready\n"
        child.stdin.write(b"\n")
        child.stdin.flush()
        time.sleep(moment)
        child.kill()

    async def story():
        async with local_bench(home, "local/rack") as bench:
            assert set(await seen(bench.infra)) <= {request(1, bench.placement(0)).lease}
            await let_go(bench.infra)
            offers = await bench.infra.offers(Need())
            assert all(offer.free == offer.total for offer in offers)

    asyncio.run(story())


def test_offers_say_which_network_the_agents_found(tmp_path):
    """After a first agent has tried it; a trial of another boot says nothing."""
    found = tmp_path / "trial.json"
    assert network_found(tmp_path) == ""
    trial.trial(str(tmp_path), "host", False)  # somebody asked for it: says nothing of the usual
    assert network_found(tmp_path) == ""
    answer = trial.trial(str(tmp_path), "auto", False)
    assert network_found(tmp_path) == answer["mode"]
    found.write_text(found.read_text().replace(network.boot_id(), "another"))
    assert network_found(tmp_path) == ""
    found.write_text("{")
    assert network_found(tmp_path) == ""


def test_the_registry_knows_the_machine_and_its_pools(tmp_path):
    configure(tmp_path)
    infras = open_infras(InfraSettings(tmp_path, ServerId("s"), time.time))
    assert {"local", "local/rack"} <= set(infras)
    assert isinstance(infras["local/rack"], Breaks)
    assert isinstance(infras["local"], Checks)
    assert isinstance(infras["local"], Watches)


def test_a_wrong_configuration_is_an_error_of_the_registry(tmp_path):
    (tmp_path / "config.yaml").write_text("local: {pools: {rack: {hosts: none}}}\n")
    with pytest.raises(InputErrors):
        open_infras(InfraSettings(tmp_path, ServerId("s"), time.time))


def test_products_have_short_names():
    products = {
        ("NVIDIA H100 80GB HBM3", 79.6): "H100",
        ("NVIDIA H200", 140.0): "H200",
        ("NVIDIA A100-SXM4-80GB", 80.0): "A100-80GB",
        ("NVIDIA A100-SXM4-40GB", 40.0): "A100",
        ("Tesla V100-SXM2-16GB", 16.0): "V100",
        ("NVIDIA GeForce RTX 4090", 24.0): "RTX4090",
        ("NVIDIA L4", 22.5): "L4",
        ("NVIDIA A10G", 22.5): "A10G",
        ("Tesla T4", 15.0): "T4",
        ("Voodoo", 1.0): "Voodoo",
    }
    assert {one: card_name(*one) for one in products} == products


def test_a_listing_of_cards_is_read():
    listing = (
        "0, NVIDIA H100 80GB HBM3, 81559\n1, NVIDIA H100 80GB HBM3, 81559\n2, NVIDIA L4, 23034\n"
    )
    assert cards_of(listing) == (Cards("H100", (0, 1), 79.6), Cards("L4", (2,), 22.5))
    assert cards_of("No devices were found\n") == ()


def test_the_agent_reads_the_same_cards_in_the_same_way(tmp_path, monkeypatch):
    """Neither may import the other, so each asks `nvidia-smi` itself."""
    lines = "0, NVIDIA H100 80GB HBM3, 81920\n3, NVIDIA L4, 23034\n"
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\necho \"$*\" >> {tmp_path}/asked\nprintf '{lines}'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    mine = [(index, one.memory_gib) for one in this_machine().cards for index in one.indices]
    theirs = [(one["index"], round(one["memory_gib"], 1)) for one in gpus()]
    assert sorted(mine) == theirs == [(0, 80.0), (3, 22.5)]
    first, second = (tmp_path / "asked").read_text().splitlines()
    assert first == second


def test_this_machine_has_cores_and_memory():
    host = this_machine()
    assert host.cpus >= 1
    assert host.memory_gib > 0


def test_agents_get_a_clean_environment(monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", "/somewhere")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    env = clean_environment()
    assert "VIRTUAL_ENV" not in env
    assert env["TZ"] == "Asia/Tokyo"
    assert env["PATH"].startswith("/usr/local/sbin")


@pytest.mark.parametrize(
    ("ends", "told"), [("kill -9 $$", "by SIGKILL"), ("echo no; exit 3", "with exit code 3")]
)
def test_an_agent_that_ends_again_and_again_is_told_with_how(tmp_path, ends, told):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{ends}\n")
    python.chmod(0o755)

    async def story():
        launch = Launch(str(python), tmp_path / "agent.pyz", "s")
        agent = LocalAgent(tmp_path / "home", tmp_path / "shared", launch)
        for _ in range(CRASHES_MANY):
            assert agent.ailing() == ""
            agent.start()
            async with asyncio.timeout(DEADLINE):
                while agent.pid():
                    await asyncio.sleep(0.01)
        assert f"the last time {told};" in agent.ailing()
        agent.forget()

    asyncio.run(story())

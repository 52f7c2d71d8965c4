"""The suite that every infra must pass: the seven laws, and what hosts must do under programs.

A test module subclasses `InfraSuite` as a `Test...` class and says in `opened` how its infra is
made, on the real thing. Nothing here knows which infra it is.

    class TestLocal(InfraSuite):
        def opened(self, home): return local_bench(home)      # an async context manager
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from argosy.errors import AccessError, CapacityError, InfraError
from argosy.infra.api import Breaks
from argosy.model.action import LeaseRequest
from argosy.model.ids import group_lease
from argosy.model.observed import SeenState
from argosy.testing.infra_bench import (
    DEADLINE,
    GROUP,
    ROUNDS,
    Bench,
    Conversation,
    free,
    held,
    let_go,
    log_lines,
    refusal,
    released,
    request,
    running,
    seen,
    unreachable,
    up,
)  # fmt: skip


class InfraSuite:
    """The laws. Subclass it, and say in `opened` how a bench is made; its end lets go of all."""

    hosts_break = True  # its hosts can be frozen and lost on purpose

    def opened(self, home: Path) -> AbstractAsyncContextManager[Bench]:
        """A fresh bench with its state under `home`."""
        raise NotImplementedError

    def check(self, home: Path, story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        """Tell a story on a fresh bench; afterwards nothing with our mark is left."""

        async def whole() -> None:
            async with self.opened(home) as bench:
                try:
                    await story(bench)
                finally:
                    await let_go(bench.infra)

        asyncio.run(whole())

    def _breaks(self, bench: Bench) -> Breaks | None:
        infra = bench.infra
        assert isinstance(infra, Breaks) == self.hosts_break
        return infra if isinstance(infra, Breaks) else None

    # --- law 1: acquire twice with one id is once ------------------------------------------------

    def test_acquire_twice_is_once(self, tmp_path: Path) -> None:
        """One after the other, at once, and by another life."""

        async def story(bench: Bench) -> None:
            asked = request(1, bench.placement(0))
            before = await free(bench.infra, asked.placement)
            await bench.infra.acquire(asked)
            once = await free(bench.infra, asked.placement)
            other = await bench.again()
            await asyncio.gather(
                *(bench.infra.acquire(asked) for _ in range(4)), other.acquire(asked)
            )
            assert list(await seen(bench.infra)) == [asked.lease]
            assert await free(bench.infra, asked.placement) == once
            assert once != before or not asked.placement.need.cpus

        self.check(tmp_path, story)

    # --- law 2: what acquire began is seen, or was never made ------------------------------------

    def test_what_was_acquired_is_seen(self, tmp_path: Path) -> None:
        """All of a gang, each with its host."""

        async def story(bench: Bench) -> None:
            asked = [request(index + 1, bench.placement(index)) for index in range(3)]
            await asyncio.gather(*(bench.infra.acquire(one) for one in asked))
            for one in asked:
                assert (await up(bench.infra, one.lease)).host
            look = await bench.infra.sightings()
            assert {one.lease for one in look.leases} >= {one.lease for one in asked}

        self.check(tmp_path, story)

    def test_an_interrupted_acquire_is_seen_or_was_never_made(self, tmp_path: Path) -> None:
        """Cancelled at different moments; a later life sees the same, and can release it."""

        async def story(bench: Bench) -> None:
            for moment in range(ROUNDS):
                asked = request(100 + moment, bench.placement(0))
                task = asyncio.create_task(bench.infra.acquire(asked))
                for _ in range(moment):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                later = await bench.again()
                await later.acquire(asked)
                await up(later, asked.lease)
                await let_go(later)
                assert not await seen(bench.infra)

        self.check(tmp_path, story)

    # --- law 3: release before, during and long after acquire ------------------------------------

    def test_release_of_the_unknown_is_silent(self, tmp_path: Path) -> None:
        """Before it was acquired, and again after it is gone."""

        async def story(bench: Bench) -> None:
            asked = request(1, bench.placement(0))
            await bench.infra.release(asked.lease)
            await bench.infra.release(group_lease(GROUP))
            assert not await seen(bench.infra)
            await let_go(bench.infra)
            await bench.infra.release(asked.lease)

        self.check(tmp_path, story)

    def test_release_during_acquire_leaves_nothing(self, tmp_path: Path) -> None:
        """Whichever comes first, releasing what is seen ends it."""

        async def story(bench: Bench) -> None:
            for moment in range(ROUNDS):
                asked = request(200 + moment, bench.placement(0))

                async def later(asked: LeaseRequest = asked, moment: int = moment) -> None:
                    for _ in range(moment):
                        await asyncio.sleep(0)
                    await bench.infra.release(asked.lease)

                await asyncio.gather(bench.infra.acquire(asked), later())
                await let_go(bench.infra)

        self.check(tmp_path, story)

    def test_release_gives_everything_back(self, tmp_path: Path) -> None:
        """Afterwards there is as much as before, and somebody else may have it."""

        async def story(bench: Bench) -> None:
            full = bench.full()
            before = await free(bench.infra, full)
            first = await held(bench.infra, 1, full)
            await released(bench.infra, first.lease)
            assert await free(bench.infra, full) == before
            await held(bench.infra, 2, full)

        self.check(tmp_path, story)

    # --- law 4: what another process or an earlier life made -------------------------------------

    def test_a_later_life_sees_and_releases_what_an_earlier_one_made(self, tmp_path: Path) -> None:
        """With the same host, and it can attach to it."""

        async def story(bench: Bench) -> None:
            mine = await held(bench.infra, 1, bench.placement(0))
            later = await bench.again()
            assert await seen(later) == {mine.lease: mine}
            talk = await Conversation.open(later, mine.host)
            await talk.close()
            await let_go(later)
            assert not await seen(bench.infra)

        self.check(tmp_path, story)

    # --- laws 5 and 6: no verb waits, and a refusal says what to do ------------------------------

    def test_what_does_not_fit_now_is_refused_or_pending_at_once(self, tmp_path: Path) -> None:
        """Nothing is freed meanwhile, so a verb that waited would never return."""

        async def story(bench: Bench) -> None:
            await held(bench.infra, 1, bench.full())
            asked = request(2, bench.full())
            async with asyncio.timeout(DEADLINE):
                error = await refusal(bench.infra.acquire(asked))
            if error is None:
                assert (await seen(bench.infra))[asked.lease].state is SeenState.PENDING
                return
            assert isinstance(error, CapacityError)
            assert error.hints
            assert 0 < error.retry < float("inf")
            assert asked.lease not in await seen(bench.infra)

        self.check(tmp_path, story)

    def test_what_never_fits_is_refused_for_good(self, tmp_path: Path) -> None:
        """With a hint, a retry time of never, and nothing left behind."""

        async def story(bench: Bench) -> None:
            asked = request(1, bench.never())
            error = await refusal(bench.infra.acquire(asked))
            assert isinstance(error, CapacityError | AccessError | InfraError), error
            assert error.hints
            assert error.retry == float("inf")
            assert not await seen(bench.infra)

        self.check(tmp_path, story)

    # --- law 7: the mark is on the thing from its creation ---------------------------------------

    def test_the_marks_are_the_ids_that_were_asked_for(self, tmp_path: Path) -> None:
        """And nothing else of ours is there."""

        async def story(bench: Bench) -> None:
            leases = {(await held(bench.infra, n + 1, bench.placement(n))).lease for n in range(2)}
            look = await bench.infra.sightings()
            assert {one.lease for one in look.leases} - {group_lease(GROUP)} == leases
            assert not look.blind
            assert not look.blind_all

        self.check(tmp_path, story)

    # --- programs --------------------------------------------------------------------------------

    def test_a_program_runs_and_its_exit_code_is_heard(self, tmp_path: Path) -> None:
        """The agent is there as soon as the lease is up."""

        async def story(bench: Bench) -> None:
            where = bench.placement(0)
            mine = await held(bench.infra, 1, where)
            talk = await Conversation.open(bench.infra, mine.host, bench.network)
            attempt = await talk.run(mine.lease, where.node, "exit 7")
            ended = await talk.stage(attempt, 50)
            assert (ended["outcome"], ended["exit_code"]) == ("failed", 7)
            await talk.close()

        self.check(tmp_path, story)

    def test_who_stops_waiting_for_a_line_loses_nothing(self, tmp_path: Path) -> None:
        """Of lines that come in parts; the next call goes on."""

        async def story(bench: Bench) -> None:
            where = bench.placement(0)
            mine = await held(bench.infra, 1, where)
            talk = await Conversation.open(bench.infra, mine.host, bench.network)
            attempt = await talk.run(mine.lease, where.node, "seq 60000")
            await talk.stage(attempt, 50)
            await talk.close()
            whole, _ = await log_lines(bench.infra, mine.host, attempt, None)
            parts, cancelled = await log_lines(bench.infra, mine.host, attempt, 0.0)
            assert parts == whole
            assert len(whole) > 2
            assert cancelled

        self.check(tmp_path, story)

    def test_release_ends_all_processes_of_the_lease(self, tmp_path: Path) -> None:
        """A daemon that it started and that ignores SIGTERM, too; the lease is seen until then."""

        async def story(bench: Bench) -> None:
            async with running(bench) as (mine, program, pids):
                await released(bench.infra, mine.lease)
                assert not [pid for pid in pids if program.state(pid)]

        self.check(tmp_path, story)

    def test_release_by_a_later_life_with_a_dead_agent(self, tmp_path: Path) -> None:
        """The agent is revived for it."""

        async def story(bench: Bench) -> None:
            breaks = self._breaks(bench)
            if breaks is None:
                return
            async with running(bench) as (mine, program, pids):
                await breaks.break_host(mine.host, "kill-agent")
                later = await bench.again()
                await released(later, mine.lease)
                assert not [pid for pid in pids if program.state(pid)]

        self.check(tmp_path, story)

    def test_a_killed_agent_is_revived_and_adopts_what_runs(self, tmp_path: Path) -> None:
        """The program never notices."""

        async def story(bench: Bench) -> None:
            breaks = self._breaks(bench)
            if breaks is None:
                return
            async with running(bench) as (mine, program, pids):
                await breaks.break_host(mine.host, "kill-agent")
                talk = await Conversation.open(bench.infra, mine.host)
                found = await talk.stage(f"{mine.lease}-run", 30)
                assert found["stage"] == 30
                assert all(program.state(pid) for pid in pids)
                await talk.close()

        self.check(tmp_path, story)

    # --- hosts that break ------------------------------------------------------------------------

    def test_a_frozen_host_stands_still_and_goes_on(self, tmp_path: Path) -> None:
        """It is unreachable meanwhile, and its lease is not gone: that is no evidence."""

        async def story(bench: Bench) -> None:
            breaks = self._breaks(bench)
            if breaks is None:
                return
            async with running(bench) as (mine, program, pids):
                await breaks.break_host(mine.host, "freeze")
                assert {program.state(pid) for pid in pids} == {"T"}
                assert (await seen(bench.infra))[mine.lease].state is SeenState.UP
                await unreachable(bench.infra, mine.host)
                await breaks.break_host(mine.host, "thaw")
                talk = await Conversation.open(bench.infra, mine.host)
                await talk.close()
                assert "T" not in {program.state(pid) for pid in pids}

        self.check(tmp_path, story)

    def test_a_lost_host_takes_everything_with_it(self, tmp_path: Path) -> None:
        """Its leases are gone until they are released, and its capacity until it is restored."""

        async def story(bench: Bench) -> None:
            breaks = self._breaks(bench)
            if breaks is None:
                return
            async with running(bench) as (mine, program, pids):
                await breaks.break_host(mine.host, "lose")
                assert not [pid for pid in pids if program.state(pid)]
                gone = (await seen(bench.infra))[mine.lease]
                assert gone.state is SeenState.GONE
                assert gone.text
                assert (await seen(await bench.again()))[mine.lease] == gone
                await unreachable(bench.infra, mine.host)
                await self._refused_there(bench, mine.host)
                await breaks.break_host(mine.host, "restore")
                assert (await seen(bench.infra))[mine.lease].state is SeenState.GONE
                await released(bench.infra, mine.lease)
                await held(bench.infra, 2, bench.placement(0))

        self.check(tmp_path, story)

    async def _refused_there(self, bench: Bench, host: str) -> None:
        offers = await bench.infra.offers(bench.placement(0).need)
        assert not [offer for offer in offers if offer.host == host and offer.count]
        error = await refusal(bench.infra.acquire(request(9, bench.placement(0))))
        assert isinstance(error, CapacityError), error
        assert error.retry < float("inf")

    def test_release_while_the_host_is_lost(self, tmp_path: Path) -> None:
        """Nothing can run there, so the lease is gone at once; the host forgets it later."""

        async def story(bench: Bench) -> None:
            breaks = self._breaks(bench)
            if breaks is None:
                return
            async with running(bench) as (mine, _, _):
                await breaks.break_host(mine.host, "lose")
                await released(bench.infra, mine.lease)
                await breaks.break_host(mine.host, "restore")
                talk = await Conversation.open(bench.infra, mine.host)
                await talk.close()

        self.check(tmp_path, story)

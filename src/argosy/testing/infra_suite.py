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

from argosy.errors import AccessError, ArgosyError, CapacityError, InfraError, Unreachable
from argosy.infra.api import Infra
from argosy.model.action import LeaseRequest
from argosy.model.ids import LeaseId, group_lease
from argosy.model.observed import SeenLease, SeenState
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
    mend,
    refusal,
    released,
    request,
    running,
    seen,
    unreachable,
    until,
    up,
)  # fmt: skip


class InfraSuite:
    """The laws. Subclass it, and say in `opened` how a bench is made; its end lets go of all."""

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
                    await mend(bench)
                    await let_go(bench.infra)

        asyncio.run(whole())

    # --- law 1: acquire twice with one id is once ------------------------------------------------

    def test_acquire_twice_is_once(self, tmp_path: Path) -> None:
        """One after the other, at once, and by another life."""

        async def story(bench: Bench) -> None:
            asked = request(1, bench.placement(0))
            before = await free(bench.infra, asked.placement)
            await bench.infra.acquire(asked)
            await up(bench.infra, asked.lease)
            once = await until(  # where a scheduler places, what is taken is seen a little later
                lambda: free(bench.infra, asked.placement),
                lambda now: now != before or not asked.placement.need.cpus,
            )
            other = await bench.again()
            await asyncio.gather(
                *(bench.infra.acquire(asked) for _ in range(4)), other.acquire(asked)
            )
            assert list(await seen(bench.infra)) == [asked.lease]
            assert await free(bench.infra, asked.placement) == once

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
            await until(lambda: free(bench.infra, full), lambda now: now == before)
            await held(bench.infra, 2, full)

        self.check(tmp_path, story)

    # --- law 4: what another process or an earlier life made -------------------------------------

    def test_a_later_life_sees_and_releases_what_an_earlier_one_made(self, tmp_path: Path) -> None:
        """With the same host, and it can attach to it."""

        async def story(bench: Bench) -> None:
            mine = await held(bench.infra, 1, bench.placement(0))
            later = await bench.again()
            there = await seen(later)
            assert set(there) == {mine.lease}
            assert there[mine.lease] == mine or not bench.shared_sight
            assert await up(later, mine.lease) == mine
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
            async with running(bench) as (mine, program, pids):
                await bench.breaks.break_host(mine.host, "kill-agent")
                later = await bench.again()
                await released(later, mine.lease)
                assert not [pid for pid in pids if program.state(pid)]

        self.check(tmp_path, story)

    def test_a_killed_agent_is_revived_and_adopts_what_runs(self, tmp_path: Path) -> None:
        """The program never notices."""

        async def story(bench: Bench) -> None:
            async with running(bench) as (mine, program, pids):
                await bench.breaks.break_host(mine.host, "kill-agent")
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
            async with running(bench) as (mine, program, pids):
                await bench.breaks.break_host(mine.host, "freeze")
                assert {program.state(pid) for pid in pids} == {"T"}
                assert (await seen(bench.infra))[mine.lease].state is SeenState.UP
                await unreachable(bench.infra, mine.host)
                await bench.breaks.break_host(mine.host, "thaw")
                talk = await Conversation.open(bench.infra, mine.host)
                await talk.close()
                assert "T" not in {program.state(pid) for pid in pids}

        self.check(tmp_path, story)

    def test_a_lost_host_takes_everything_with_it(self, tmp_path: Path) -> None:
        """Its capacity is gone until it is restored, and its leases until they are released: as
        soon as there is evidence, and till then they are shown as they were, and as not seen.
        """

        async def story(bench: Bench) -> None:
            async with running(bench) as (mine, program, pids):
                await bench.breaks.break_host(mine.host, "lose")
                assert not [pid for pid in pids if program.state(pid)]
                await self._lost_or_not_seen(bench, mine.lease)
                await unreachable(bench.infra, mine.host)
                await self._nothing_there(bench, mine.host)
                await bench.breaks.break_host(mine.host, "restore")
                if bench.lost_stay:
                    gone = await self._gone(bench.infra, mine.lease)
                    assert await self._gone(await bench.again(), mine.lease) == gone
                await released(bench.infra, mine.lease)
                await self._accepted(bench, request(2, bench.placement(0)))

        self.check(tmp_path, story)

    async def _lost_or_not_seen(self, bench: Bench, lease: LeaseId) -> None:
        """As far as this infra can know it now; a later life knows the same."""
        if bench.lost_at_once:
            gone = await self._gone(bench.infra, lease)
            assert (await seen(await bench.again()))[lease] == gone
            return
        look = await until(bench.infra.sightings, lambda look: lease in look.blind)
        (shown,) = [one for one in look.leases if one.lease == lease]
        assert shown.state is SeenState.UP
        assert lease in (await (await bench.again()).sightings()).blind

    async def _gone(self, infra: Infra, lease: LeaseId) -> SeenLease:
        """What is seen of a lease once it is gone."""
        found = await until(
            lambda: seen(infra), lambda all: lease in all and all[lease].state is SeenState.GONE
        )
        assert found[lease].text
        return found[lease]

    async def _nothing_there(self, bench: Bench, host: str) -> None:
        """It offers nothing, and what asks for it is refused, or given by the infra elsewhere."""
        where = bench.placement(0)
        offers = await bench.infra.offers(where.need)
        assert not [offer for offer in offers if offer.host == where.host and offer.count]
        asked = request(9, where)
        error = await refusal(bench.infra.acquire(asked))
        if error is None:
            assert (await up(bench.infra, asked.lease)).host != host
            await released(bench.infra, asked.lease)
            return
        assert isinstance(error, CapacityError | InfraError), error
        assert error.hints
        assert 0 < error.retry < float("inf")

    def test_release_while_the_host_is_lost(self, tmp_path: Path) -> None:
        """Where the loss is known nothing can run there: the lease is gone at once, and the host
        forgets it later. Where it is not, the release fails until the host can be asked.
        """

        async def story(bench: Bench) -> None:
            async with running(bench) as (mine, _, _):
                await bench.breaks.break_host(mine.host, "lose")
                if bench.lost_at_once and bench.lost_stay:
                    await released(bench.infra, mine.lease)
                elif bench.lost_at_once:  # its end is known when its host can say it
                    await bench.infra.release(mine.lease)
                else:
                    error = await refusal(bench.infra.release(mine.lease))
                    assert isinstance(error, Unreachable), error
                    assert mine.lease in await seen(bench.infra)
                await bench.breaks.break_host(mine.host, "restore")
                await self._reachable_again(bench)
                await until(lambda: self._let_go_of(bench, mine.lease), lambda there: not there)

        self.check(tmp_path, story)

    async def _reachable_again(self, bench: Bench) -> None:
        """An agent can be started there by a lease."""
        again = await self._accepted(bench, request(3, bench.placement(0)))
        talk = await Conversation.open(bench.infra, again.host)
        await talk.close()

    async def _accepted(self, bench: Bench, asked: LeaseRequest) -> SeenLease:
        """Acquired, if need be after some refusals: a host is not asked again at once."""

        async def ask() -> ArgosyError | None:
            return await refusal(bench.infra.acquire(asked))

        await until(ask, lambda error: error is None)
        return await up(bench.infra, asked.lease)

    async def _let_go_of(self, bench: Bench, lease: LeaseId) -> bool:
        """Release it; whether it is seen all the same."""
        await refusal(bench.infra.release(lease))
        return lease in await seen(bench.infra)

"""Agents that answer before the cluster says that their pods run.

The word of that is kept back here, by a proxy.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from argosy.infra.kubernetes import marks
from argosy.model.action import BalancedName, LeaseRequest
from argosy.model.observed import SeenState
from argosy.testing.infra_bench import (
    Conversation,
    held,
    let_go,
    log_lines,
    released,
    request,
    seen,
    up,
)
from argosy.testing.infra_bench import until as eventually
from tests.infra.kubernetes.kube_bench import KubeBench, kube_bench

pytestmark = pytest.mark.kubernetes

RUNS = '"running":{'  # in the status of a pod
USER_IMAGE = "localhost/python-user:3.11"
HELLO = "echo hello"


@asynccontextmanager
async def a_bench(tmp_path, space, **more) -> AsyncIterator[KubeBench]:
    async with kube_bench(tmp_path / "home", space, **more) as bench:
        yield bench
        await let_go(bench.infra)


def streams(proxy, pod: str) -> int:
    """How many streams of exec there were to that pod."""
    return len(proxy.asked("exec", f"/pods/{pod}/"))


async def tried(infra, proxy, asked: LeaseRequest) -> int:
    """How many streams to it were opened so far, while it is looked at as a server does."""
    await seen(infra)
    return streams(proxy, marks.pod_name(asked.lease))


async def started(space) -> int:
    """How many containers of ours the cluster's kubelets have told to have started."""
    events = (await asyncio.to_thread(space.get, "events"))["items"]
    ours = [one for one in events if one["reason"] == "Started"]
    return len(ours)


def test_an_agent_that_answers_is_up_and_its_stream_is_the_one_that_is_used(space, proxy, tmp_path):
    async def story():
        async with a_bench(tmp_path, space) as bench:
            infra = bench.infra
            with proxy.withhold(RUNS):
                mine = await held(infra, 1, bench.placement(0))
                talk = await Conversation.open(infra, mine.host)
                attempt = await talk.run(mine.lease, bench.placement(0).node, HELLO)
                assert (await talk.stage(attempt, 50))["exit_code"] == 0
                await talk.close()
                assert streams(proxy, mine.host) == 1
                # Its logs are kept, though nobody has heard that it runs.
                await infra.release(mine.lease)
                lines, _ = await log_lines(infra, mine.host, attempt, None)
                assert json.loads(lines[0])["data"] == b64encode(b"hello\n").decode()

    asyncio.run(story())


def test_a_lease_stays_up_when_the_cluster_has_said_it_too(space, proxy, tmp_path):
    async def story():
        async with a_bench(tmp_path, space) as bench:
            with proxy.withhold(RUNS):
                mine = await held(bench.infra, 1, bench.placement(0))

            async def still() -> int:
                assert (await seen(bench.infra))[mine.lease].state is SeenState.UP
                pods = bench.infra._sight.known("pods")
                return sum("running" in str(one["status"]) for one in pods)

            await eventually(still, lambda running: running == 1)
            assert (await seen(bench.infra))[mine.lease] == mine

    asyncio.run(story())


def test_a_program_that_needs_the_address_of_a_service_waits_for_the_cluster(
    space, proxy, tmp_path
):
    """Connections to a balanced task go to addresses that the cluster knows."""

    async def story():
        async with a_bench(tmp_path, space) as bench:
            infra = bench.infra
            names = (BalancedName("t", "t.suite", (8000,)),)
            asked = replace(request(1, bench.placement(0)), balanced=names)
            with proxy.withhold(RUNS):
                await infra.acquire(asked)
                await eventually(lambda: started(space), lambda count: count == 1)
                assert (await seen(infra))[asked.lease].state is SeenState.PENDING
            mine = await up(infra, asked.lease)
            assert streams(proxy, mine.host) == 0

    asyncio.run(story())


def test_where_names_need_the_cluster_it_is_waited_for(space, proxy, tmp_path):
    """An agent that may not write the hosts file: peers are found by DNS alone."""

    async def story():
        more = {"restricted": True, "image": USER_IMAGE}
        async with a_bench(tmp_path, space, **more) as bench:
            infra = bench.infra
            asked = request(1, bench.placement(0))
            with proxy.withhold(RUNS):
                await infra.acquire(asked)
                await eventually(lambda: tried(infra, proxy, asked), lambda count: count == 1)
                assert (await seen(infra))[asked.lease].state is SeenState.PENDING
            await up(infra, asked.lease)
            await released(infra, asked.lease)

    asyncio.run(story())

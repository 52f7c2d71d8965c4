"""An API server that is busy, or has forgotten: through a proxy before the real one.

Nothing is lost, nothing is made twice, nothing is given up, and nobody asks in a circle.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from argosy.infra.kubernetes.cluster import watch
from argosy.testing.infra_bench import until as eventually
from tests.infra.kubernetes.between import Asked, Between
from tests.infra.kubernetes.kube_bench import kube_bench
from tests.infra.kubernetes.person import Person
from tests.infra.kubernetes.rig import until

pytestmark = pytest.mark.kubernetes

EVERY = ("list", "watch", "get", "create", "patch", "delete", "exec")
OURS, NODES = "/namespaces/{}/pods", "/api/v1/nodes"  # what is watched while a group runs
TRIES = 4  # of one and the same request: three gaps
LINES = 150
PAIR = f"""name: pair
num_nodes: 2
resources: {{cpus: 0.1}}
restart: {{on: [lost]}}
run: |
  for i in $(seq {LINES}); do echo "line $i"; sleep 0.1; done
"""
QUIET = """name: quiet
num_nodes: 2
resources: {cpus: 0.1}
restart: {on: [lost], scope: node}
grace: 1s
run: sleep 1000
"""


def patient(asked: Sequence[Asked], least: float = 0.0) -> None:
    """The gaps are no less than was asked for, grow, and no two are the same."""
    gaps = [later.at - one.at for one, later in itertools.pairwise(asked)]
    assert len(gaps) >= TRIES - 1, gaps
    assert min(gaps) >= least, gaps
    # A pause is between a half and all of its measure, which doubles: two tries on it is longer.
    assert all(later > one for one, later in zip(gaps, gaps[2:], strict=False)), gaps
    assert len(set(gaps)) == len(gaps), gaps


def tried(
    proxy: Between, verb: str, status: int, within: str = "", *, once: int = 0
) -> list[Asked]:
    """The tries of one request, once there are enough of them; without the first, of which `once`
    is made by somebody who does not try again.
    """

    def most() -> list[Asked]:
        by_path: dict[str, list[Asked]] = {}
        for one in proxy.asked(verb, within, status):
            by_path.setdefault(one.path, []).append(one)
        return max(by_path.values(), key=len, default=[])

    enough = TRIES + once
    until(lambda: len(most()) >= enough, lambda: f"{verb} {within} is not tried again: {most()}")
    return most()[once:]


def watched(person: Person) -> tuple[str, str]:
    """The paths of what a server watches while a group of that person runs."""
    return OURS.format(person.space.name), NODES


def events(person: Person, group: str) -> list[str]:
    """The codes of its events, in their order."""
    return [one.code for one in person.client.events(group)]


def test_a_busy_server_is_asked_again_and_the_group_goes_on(beyond, proxy):
    """Each kind of request, with and without a word on when to come back."""
    with proxy.fault(429, "create", retry_after=1):
        beyond.launched(PAIR)
        patient(tried(proxy, "create", 429), 1.0)
    with proxy.fault(503, "exec"):
        patient(tried(proxy, "exec", 503, once=1))
    beyond.phase("pair", "RUNNING")
    with proxy.fault(500, *EVERY):
        proxy.hang_up()
        for path in watched(beyond):
            patient(tried(proxy, "list", 500, path))
        assert beyond.group("pair")["phase"] == "RUNNING"
    with proxy.fault(429, "delete", retry_after=1):
        patient(tried(proxy, "delete", 429), 1.0)
    beyond.phase("pair", "SUCCEEDED")
    for name, node in beyond.nodes("pair").items():
        assert (node["attempt"], node["exit_code"]) == (1, 0), name
        lines = beyond.logs(f"pair/pair/{name[-1]}", "--no-prefix")
        assert lines == [f"line {number + 1}" for number in range(LINES)], name
    assert len(proxy.asked("create", "/pods", status=0)) == 2
    assert "placing-given-up" not in events(beyond, "pair")


def test_a_server_that_has_forgotten_is_asked_for_all_of_it(beyond, proxy):
    """The real 410, at every watch: no change is missed meanwhile, and nobody asks in a circle."""
    for verb in ("stop", "start"):  # a server knows nothing from before it was started
        beyond.space.rig.verb("api", verb)
    beyond.launched(QUIET)
    beyond.phase("quiet", "RUNNING")
    before = beyond.nodes("quiet")
    begun = {path: len(proxy.asked("list", path)) for path in watched(beyond)}
    with proxy.fault(410, "watch"):
        proxy.hang_up()
        pod = beyond.space.pods()["quiet-1"]["metadata"]["name"]
        beyond.space.kubectl("delete", "pod", pod, "--wait=false")
        until(lambda: _again(beyond, before, "quiet-1"), lambda: beyond.explained("quiet"))
        patient(tried(proxy, "watch", 410, NODES))
    until(lambda: all(_stands(proxy, path) for path in begun), "no watch stands again")
    for path, lists in begun.items():
        refused = proxy.asked("watch", path, 410)
        assert len(proxy.asked("list", path)) - lists == len(refused) > 0, path
    assert beyond.nodes("quiet")["quiet-0"]["attempt"] == before["quiet-0"]["attempt"]
    beyond.did("cancel", "quiet", "--now", "--wait")


def _again(person: Person, before: dict, node: str) -> bool:
    now = person.nodes("quiet")[node]
    return now["attempt"] > before[node]["attempt"] and now["phase"] == "RUNNING"


def _stands(proxy: Between, path: str) -> bool:
    return proxy.asked("watch", path)[-1].status == 0


def test_bookmarks_move_a_watch_on(space, proxy, tmp_path, monkeypatch):
    """Of a kind of which nothing of ours changes: the next watch begins where the bookmark was."""
    monkeypatch.setattr(watch, "WATCH_SECONDS", "6")  # a bookmark comes 2 s before the end

    async def watched() -> None:
        async with kube_bench(tmp_path / "home", space) as bench:
            look = await bench.infra.sightings()
            assert not look.blind_all
            await asyncio.to_thread(space.kubectl, "create", "configmap", "not-ours")
            other = await asyncio.to_thread(space.get, "configmap", "not-ours")
            passed = int(other["metadata"]["resourceVersion"])

            async def version() -> int:
                return int(proxy.asked("watch", "/configmaps")[-1].version)

            await eventually(version, lambda at: at >= passed)
            assert len(proxy.asked("list", "/configmaps")) == 1

    asyncio.run(watched())

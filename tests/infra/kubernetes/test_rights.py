"""deploy/kubernetes-role.yaml has the least rights: without any of its rules something fails."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from argosy.errors import ArgosyError
from argosy.infra.kubernetes.infra import Kubernetes
from argosy.model.plan import Offer
from argosy.model.volumes import Volume, VolumeKind, VolumeSpec
from argosy.testing.infra_bench import Conversation, held, let_go, released
from tests.infra.kubernetes.kube_bench import KubeBench, kube_bench
from tests.infra.kubernetes.rig import ACCOUNT, KUBERIG, ROLE, Namespace, Rules, as_shipped, until

pytestmark = pytest.mark.kubernetes

RULES = [
    (thing["kind"], index)
    for thing in yaml.safe_load_all(ROLE.read_text())
    if thing["kind"] in ("Role", "ClusterRole")
    for index in range(len(thing["rules"]))
]


class Blind(Exception):
    """What the cluster has, or what is taken of it, is not to be seen."""


async def everything(bench: KubeBench) -> None:
    """What a server asks of a cluster."""
    infra, where = bench.infra, bench.placement(0)
    before = await infra.offers(where.need)
    if sum(one.count > 0 for one in before) < NODES:
        raise Blind(before)
    mine = await held(infra, 1, where)
    talk = await Conversation.open(infra, mine.host)
    await talk.close()
    if _free(await infra.offers(where.need)) >= _free(before):
        raise Blind(before)
    await infra.ensure_volume(VOLUME)
    await infra.delete_volume(VOLUME)
    await released(infra, mine.lease)
    await let_go(infra)


NODES = 3
VOLUME = Volume("v-1", VolumeSpec("v", VolumeKind.PVC, size_gib=1.0))


def _free(offers: Sequence[Offer]) -> float:
    return sum(one.free.cpus for one in offers)


async def attempted(home: Path, space: Namespace) -> None:
    """All of it, by a life of its own."""
    async with kube_bench(home, space) as bench:
        await everything(bench)


def test_with_all_rights_everything_works(space, tmp_path):
    asyncio.run(attempted(tmp_path / "home", space))


@pytest.mark.parametrize(("kind", "index"), RULES)
def test_without_one_rule_something_fails(space, tmp_path, kind, index):
    """And with it everything works, so nothing else was missing."""

    def without(here: str, rules: Rules) -> Rules:
        return [rule for place, rule in enumerate(rules) if (here, place) != (kind, index)]

    taken = _rule(kind, index)
    space.grant(without)
    until(lambda: not _may(space, taken), "the right is still there")
    with pytest.raises((ArgosyError, Blind)):
        asyncio.run(attempted(tmp_path / "home", space))
    space.grant(as_shipped)
    until(lambda: _may(space, taken), "the right does not come back")
    asyncio.run(tidy(tmp_path / "home", space))


async def tidy(home: Path, space: Namespace) -> None:
    """Let go of what was begun."""
    async with kube_bench(home, space) as bench:
        assert isinstance(bench.infra, Kubernetes)
        await let_go(bench.infra)


def _rule(kind: str, index: int) -> dict:
    things = yaml.safe_load_all(ROLE.read_text())
    return next(one for one in things if one["kind"] == kind)["rules"][index]


def _may(space: Namespace, rule: dict) -> bool:
    """Whether the account may do it: in its namespace, or everywhere."""
    account = f"system:serviceaccount:{space.name}:{ACCOUNT}"
    where = "--all-namespaces" if set(rule["verbs"]) == {"list", "watch"} else f"-n={space.name}"
    resource, _, inside = rule["resources"][0].partition("/")
    words = [rule["verbs"][0], resource, f"--subresource={inside}", where, f"--as={account}"]
    done = subprocess.run(
        [str(KUBERIG), "kubectl", "auth", "can-i", *words], env=space.rig.environment,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() == "yes"

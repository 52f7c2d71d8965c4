"""deploy/kubernetes-role.yaml has the least rights: each verb is used, and missed when it is not
there.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from argosy.errors import AccessError, ArgosyError
from argosy.infra.api import Health
from argosy.infra.kubernetes.cluster.client import Cluster
from argosy.infra.kubernetes.cluster.failures import Refused
from argosy.infra.kubernetes.cluster.objects import Objects
from argosy.infra.kubernetes.cluster.rights import RIGHTS, Right
from argosy.infra.kubernetes.cluster.sight import Sight
from argosy.infra.kubernetes.config import ContextConfig
from argosy.infra.kubernetes.infra import Kubernetes
from argosy.infra.kubernetes.marks import Owner
from argosy.infra.registry import InfraSettings, open_infras
from argosy.model.ids import ServerId
from argosy.model.plan import Offer
from argosy.model.volumes import Volume, VolumeKind, VolumeSpec
from argosy.testing.infra_bench import Conversation, held, let_go, released, request
from argosy.testing.infra_bench import until as eventually
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
    """What the cluster has, what is taken of it, or what it begins, is not to be seen."""


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
    assert await infra.volumes() == (VOLUME.id,)
    await infra.delete_volume(VOLUME)
    again = await bench.again()
    await again.acquire(request(1, where))  # all is there already, and is looked at
    await released(infra, mine.lease)
    await let_go(infra)
    if (await infra.check()).problems:
        raise Blind("some of what is going on is not told")


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

    taken = _rules(kind)[index]
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


def _rules(kind: str) -> list[dict]:
    things = yaml.safe_load_all(ROLE.read_text())
    return next(one for one in things if one["kind"] == kind)["rules"]


def _may(space: Namespace, rule: dict) -> bool:
    """Whether the account may do it: in its namespace, or everywhere."""
    account = f"system:serviceaccount:{space.name}:{ACCOUNT}"
    wide = rule in _rules("ClusterRole")
    where = "--all-namespaces" if wide else f"-n={space.name}"
    resource, _, inside = rule["resources"][0].partition("/")
    words = [rule["verbs"][0], resource, f"--subresource={inside}", where, f"--as={account}"]
    done = subprocess.run(
        [str(KUBERIG), "kubectl", "auth", "can-i", *words], env=space.rig.environment,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() == "yes"


# --- verb by verb --------------------------------------------------------------------------------

VERBS = ("create", "get", "list", "watch", "patch", "delete")


def of_the_role() -> set[Right]:
    """What deploy/kubernetes-role.yaml allows."""
    return {
        Right(verb, resource, thing["kind"] == "ClusterRole")
        for thing in yaml.safe_load_all(ROLE.read_text())
        if thing["kind"] in ("Role", "ClusterRole")
        for rule in thing["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }


def test_every_right_of_the_role_is_used_and_no_other(space, proxy, tmp_path):
    """By what the API server was asked; for `exec` it wants one verb or the other, by version."""
    assert set(RIGHTS) == of_the_role()
    asyncio.run(attempted(tmp_path / "home", space))
    used = {
        Right(one.verb, one.resource, "/namespaces/" not in one.path)
        for one in proxy.log
        if one.resource and one.verb != "exec"
    }
    assert any(one.verb == "exec" for one in proxy.log)
    assert used == {one for one in of_the_role() if one.resource != "pods/exec"}


def test_a_verb_that_is_missing_is_named(space, tmp_path):
    """Each in turn: by `infra check`, for each kind of object; and by what fails without it."""
    for verb in VERBS:

        def without(_kind: str, rules: Rules, verb: str = verb) -> Rules:
            less = ({**one, "verbs": [x for x in one["verbs"] if x != verb]} for one in rules)
            return [one for one in less if one["verbs"]]

        space.grant(without)
        lost = {one for one in RIGHTS if one.verb == verb}
        asyncio.run(named(tmp_path / verb, space, lost))


async def named(home: Path, space: Namespace, lost: set[Right]) -> None:
    """All of these are told, and no other; and what needs them says so."""
    wanted = {f"we may not {one}" for one in lost}
    async with kube_bench(home, space) as bench:

        async def told() -> set[str]:
            problems = (await bench.infra.check()).problems
            return {one for one in problems if one.startswith("we may not")}

        await eventually(told, lambda found: found == wanted)
        assert not (await bench.infra.check()).works  # each verb is vital for some kind
    await refused(space, lost - {EITHER})


def test_a_namespace_that_is_not_there_is_told(rig, tmp_path):
    async def story():
        context = {"context": "kuberig", "kubeconfig": str(rig.kubeconfig)}
        said = {"kubernetes": {"contexts": {"rig": {**context, "namespace": "not-there"}}}}
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(said))
        settings = InfraSettings(tmp_path, ServerId("0123456789ab"), time.time)
        infra = open_infras(settings)["kubernetes/rig"]
        assert isinstance(infra, Kubernetes)
        try:
            health = await infra.check()
        finally:
            await infra.close()
        assert (health.works, health.problems) == (False, ("there is no namespace 'not-there'",))
        assert "`kubectl create namespace not-there`" in health.hints[0]

    asyncio.run(story())


def test_without_the_sight_of_the_cluster_it_works_all_the_same(space, tmp_path):
    space.grant(lambda kind, rules: [] if kind == "ClusterRole" else rules)

    async def story():
        async with kube_bench(tmp_path / "home", space) as bench:

            async def health() -> Health:
                return await bench.infra.check()

            def blind(told: Health) -> bool:
                return "we may not list nodes of the whole cluster" in told.problems

            assert (await eventually(health, blind)).works

    asyncio.run(story())


EITHER = Right("create", "pods/exec")  # the other is what this version asks for


async def refused(space: Namespace, lost: set[Right]) -> None:
    """What needs these rights fails, and says which one is missing."""
    config = ContextConfig(
        "rig", context="kuberig", kubeconfig=str(space.kubeconfig), namespace=space.name
    )
    cluster = Cluster("kubernetes/rig", config)
    sight = Sight(cluster, Owner(ServerId("suite"), "0123456789abcdef"), lambda: None)
    objects = Objects(cluster, sight, Owner(ServerId("suite"), "0123456789abcdef"))
    try:
        for right in sorted(lost, key=str):
            error = await trouble(right, cluster, sight, objects)
            resource = right.resource
            assert isinstance(error, AccessError), (right, error)
            assert error.code == "kubernetes/forbidden", (right, error)
            assert right.verb in error.text, error.text
            assert f'resource "{resource}"' in error.text, error.text
            assert "deploy/kubernetes-role.yaml" in error.hints[0]
    finally:
        await sight.close()
        await cluster.close()


async def trouble(
    right: Right, cluster: Cluster, sight: Sight, objects: Objects
) -> ArgosyError | None:
    """How the one thing fails that the right is for."""
    kind, nobody = right.resource, "nobody"
    try:
        match right.verb:
            case _ if kind == "pods/exec":
                await cluster.exec(nobody, ["true"])
            case "create":
                await objects.ensure(kind, {"metadata": {"name": nobody, "labels": {}}})
            case "get":
                await objects.find(kind, nobody)
            case "list" if kind == "persistentvolumeclaims":  # these are not watched
                await cluster.get(cluster.in_namespace(kind))
            case "list" | "watch":
                return await unseen(right, sight)
            case "patch":
                await objects.label(nobody, {"a": "b"})
            case "delete":
                await objects.delete(kind, nobody)
    except Refused as error:
        return cluster.translated(error, f"{right}")
    return None


async def unseen(right: Right, sight: Sight) -> ArgosyError | None:
    """Why a watch does not show what is there."""
    if not right.wide:
        watched = await sight.mine(right.resource)
    else:
        watched = await (sight.nodes() if right.resource == "nodes" else sight.pods_of_all())

    async def why() -> ArgosyError | None:
        return watched.trouble

    return await eventually(why, lambda found: found is not None)

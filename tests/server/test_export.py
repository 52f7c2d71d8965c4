"""What a cluster would be sent, over the API; the cluster itself is away."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from argosy.errors import InputError, NotFound
from argosy.infra.registry import InfraSettings, open_infras
from tests.server.rig import Rig, a_server

pytestmark = pytest.mark.anyio

FILE = """\
name: rl
execution: parallel
---
name: trainer
secrets: {TOKEN: hunter22hunter22}
envs: {MODEL: tiny}
resources: {cpus: 2, accelerators: "H100:8", image_id: "docker:trainer:2"}
run: echo $TOKEN
---
name: rollout
num_nodes: 2
balance: 8000
resources: {cpus: 1, ports: 8000}
run: python serve.py
"""
NOWHERE = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "away",
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [{"name": "away", "context": {"cluster": "c", "user": "u"}}],
}


@asynccontextmanager
async def a_server_with(folder: Path, *contexts: str) -> AsyncIterator[Rig]:
    """A server that knows clusters of those names, at an address where nobody answers."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(NOWHERE))
    one = {"context": "away", "kubeconfig": str(kubeconfig), "namespace": "ml"}
    config = {"kubernetes": {"contexts": dict.fromkeys(contexts, one)}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    async with a_server(folder) as rig:
        server, infras = rig.control.store.server_id, dict(rig.control.infras)
        opened = open_infras(InfraSettings(folder, server, rig.control.clock.now))
        found = {name: infra for name, infra in opened.items() if name.startswith("kubernetes/")}
        rig.control.infras = infras | found
        yield rig


async def exported(rig: Rig, **more: Any) -> dict[str, Any]:
    body = {"file": "rl.yaml", "text": FILE, "base": str(rig.folder), **more}
    found: dict[str, Any] = await rig.post("export", body)
    return found


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


async def test_a_file_becomes_manifests_though_the_cluster_is_away(folder: Path) -> None:
    async with a_server_with(folder, "prod") as rig:
        told = await exported(rig, context="prod")
        found = documents(told["text"])
        kinds = [one["kind"] for one in found]
        assert kinds == ["ConfigMap", "Service", "Service", "Secret", "Pod", "Pod", "Pod"]
        assert {one["metadata"]["namespace"] for one in found} == {"ml"}
        assert found[1]["metadata"]["name"] == "rl"
        trainer, first, second = (one["spec"] for one in found[4:])
        assert [one["hostname"] for one in (trainer, first, second)] == [
            "trainer-0", "rollout-0", "rollout-1",
        ]  # fmt: skip
        (container,) = trainer["containers"]
        assert container["image"] == "trainer:2"
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}
        assert any("does not answer" in note for note in told["notes"]), told["notes"]
        assert (await rig.get("groups"))["groups"] == []


async def test_nothing_of_the_user_s_is_in_it(folder: Path) -> None:
    async with a_server_with(folder, "prod") as rig:
        text = (await exported(rig, context="prod"))["text"]
        for word in ("hunter22", "TOKEN", "MODEL", "serve.py"):
            assert word not in text


async def test_the_agent_can_be_left_out(folder: Path) -> None:
    async with a_server_with(folder, "prod") as rig:
        whole = documents((await exported(rig, context="prod"))["text"])[3]
        assert len(whole["data"]["agent.pyz"]) > 100_000
        bare = documents((await exported(rig, context="prod", whole=False))["text"])[3]
        assert "data" not in bare
        assert bare["stringData"] == whole["stringData"]


async def test_the_only_context_is_meant_without_its_name(folder: Path) -> None:
    async with a_server_with(folder, "prod") as rig:
        assert (await exported(rig))["text"].startswith("# What Argosy would make on kubernetes/")
    async with a_server_with(folder, "prod", "test") as rig:
        with pytest.raises(InputError) as caught:
            await exported(rig)
        assert "`--context` chooses one of prod, test" in caught.value.hints


async def test_a_context_that_is_not_here_is_told_with_the_near_ones(folder: Path) -> None:
    async with a_server_with(folder, "prod") as rig:
        with pytest.raises(NotFound) as caught:
            await exported(rig, context="prdo")
        assert "did you mean kubernetes/prod?" in caught.value.text
        with pytest.raises(InputError) as other:
            await exported(rig, infra="local")
        assert other.value.hints == ("choose kubernetes",)
    async with a_server(folder) as rig:
        with pytest.raises(InputError) as nobody:
            await exported(rig)
        assert "docs/kubernetes.md" in nobody.value.hints[0]

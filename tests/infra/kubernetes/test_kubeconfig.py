"""The contexts that are there without a word in config.yaml."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from argosy.errors import AccessError, ArgosyError, InfraError
from argosy.infra.api import Infra, Volumes
from argosy.infra.kubernetes.config import IN_CLUSTER, ContextConfig
from argosy.infra.kubernetes.infra import Kubernetes
from argosy.infra.kubernetes.kubeconfig import found_contexts
from argosy.infra.registry import InfraSettings, open_infras
from argosy.model.ids import ServerId
from argosy.model.volumes import Volume, VolumeKind, VolumeSpec

TWO = """
apiVersion: v1
kind: Config
current-context: prod
contexts:
- {name: test, context: {cluster: t, user: me}}
- {name: prod, context: {cluster: p, user: me}}
clusters: []
"""
OTHER = """
current-context: lab
contexts:
- {name: lab, context: {cluster: l}}
- {name: test, context: {cluster: another}}
"""
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


def found(environment: Mapping[str, str], home: Path) -> tuple[list[str], str]:
    """(names, the current one)."""
    contexts, current = found_contexts(environment, home)
    assert all(one == ContextConfig(one.name, context=one.name) for one in contexts)
    return [one.name for one in contexts], current


def written(home: Path, text: str) -> Path:
    """The file where kubectl has it."""
    path = home / ".kube" / "config"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_those_of_the_file_in_the_users_home(tmp_path: Path) -> None:
    written(tmp_path, TWO)
    assert found({}, tmp_path) == (["test", "prod"], "prod")


def test_without_a_file_there_are_none(tmp_path: Path) -> None:
    assert found({}, tmp_path) == ([], "")


def test_the_variable_names_files_and_the_first_that_says_something_counts(
    tmp_path: Path,
) -> None:
    written(tmp_path, "current-context: never\ncontexts: [{name: never}]\n")
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text(TWO)
    two.write_text(OTHER)
    paths = os.pathsep.join([str(tmp_path / "is-not-there"), str(two), "", str(one)])
    assert found({"KUBECONFIG": paths}, tmp_path) == (["lab", "test", "prod"], "lab")


def test_an_empty_variable_names_nothing(tmp_path: Path) -> None:
    written(tmp_path, TWO)
    assert found({"KUBECONFIG": ""}, tmp_path) == (["test", "prod"], "prod")


def test_a_file_without_a_current_context_leaves_it_to_the_next(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("contexts: [{name: a}]\n")
    two.write_text(OTHER)
    assert found({"KUBECONFIG": f"{one}{os.pathsep}{two}"}, tmp_path)[1] == "lab"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "just words",
        "[1, 2]",
        "contexts: 5",
        "contexts: {name: a}",
        "contexts: [a, {name: ''}, {context: {}}, null]",
        "contexts: [{name: a",
        "\t- not yaml",
        "at: 2001-99-99",
    ],
)
def test_a_file_that_says_nothing_of_use_has_none(tmp_path: Path, text: str) -> None:
    written(tmp_path, text)
    assert found({}, tmp_path)[0] == []


def test_a_file_that_cannot_be_read_has_none(tmp_path: Path) -> None:
    written(tmp_path, TWO).write_bytes(b"\xff\xfe\x00contexts")
    assert found({}, tmp_path) == ([], "")
    (tmp_path / "folder").mkdir()
    assert found({"KUBECONFIG": str(tmp_path / "folder")}, tmp_path) == ([], "")


def test_a_server_in_a_cluster_has_that_cluster(tmp_path: Path) -> None:
    contexts, current = found_contexts(POD, tmp_path)
    assert [(one.name, one.context) for one in contexts] == [(IN_CLUSTER, IN_CLUSTER)]
    assert current == IN_CLUSTER


def test_a_kubeconfig_comes_before_the_cluster_around(tmp_path: Path) -> None:
    written(tmp_path, TWO)
    assert found(POD, tmp_path) == (["test", "prod"], "prod")


def test_a_name_may_hold_any_sign(tmp_path: Path) -> None:
    name = "arn:aws:eks:eu-west-1:123:cluster/prod"
    written(tmp_path, f"current-context: {name}\ncontexts: [{{name: '{name}'}}]\n")
    assert found({}, tmp_path) == ([name], name)


def opened(home: Path) -> Mapping[str, Infra]:
    """The infras of a server with that home."""
    return open_infras(InfraSettings(home, ServerId("0123456789ab"), lambda: 0.0))


def test_a_context_that_nobody_used_is_asked_by_a_check_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(TWO)
    monkeypatch.setenv("KUBECONFIG", str(path))

    async def story() -> None:
        infras = opened(tmp_path)
        test, prod = infras["kubernetes/test"], infras["kubernetes/prod"]
        assert isinstance(test, Kubernetes)
        assert isinstance(prod, Kubernetes)
        health = await test.check()
        assert health.works
        assert "`argosy infra check kubernetes/test` asks it" in dict(health.facts)["state"]
        assert await test.named_check("kubernetes") == (health, ())  # that means the current one
        for one, name in ((test, "kubernetes/test"), (prod, "kubernetes")):
            with pytest.raises(AccessError) as caught:  # the file has no such cluster
                await one.named_check(name)
            assert caught.value.code == "kubernetes/no-sign-in"
        assert await test.check() == health  # it is left alone again

    asyncio.run(story())
    assert not list(tmp_path.glob("infra/kubernetes/*/used"))


def test_what_a_context_lacks_on_this_machine_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file, by its path; and the package."""
    path, away = tmp_path / "kubeconfig", tmp_path / "away"
    path.write_text(TWO)
    monkeypatch.setenv("KUBECONFIG", str(path))
    (tmp_path / "config.yaml").write_text(
        f"kubernetes: {{contexts: {{lab: {{kubeconfig: {away}}}}}}}\n"
    )

    async def story() -> None:
        infras = opened(tmp_path)
        lab, test = infras["kubernetes/lab"], infras["kubernetes/test"]
        assert isinstance(lab, Kubernetes)
        assert isinstance(test, Kubernetes)
        with pytest.raises(AccessError) as caught:
            await lab.check()
        assert caught.value.text == f"kubernetes/lab: there is no kubeconfig {away}"
        assert "`kubeconfig` of 'lab'" in caught.value.hints[0]
        monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)  # as if it were not there
        with pytest.raises(InfraError) as lacking:
            await test.named_check("kubernetes/test")
        assert lacking.value.code == "kubernetes/not-installed"
        assert "`pip install '.[kubernetes]'`" in lacking.value.hints[0]

    asyncio.run(story())


def test_a_volume_of_no_context_wakes_only_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(TWO)
    monkeypatch.setenv("KUBECONFIG", str(path))
    infras = opened(tmp_path)
    volume = Volume("d-1", VolumeSpec("d", VolumeKind.PVC, "kubernetes", 1.0))

    def woken() -> int:
        return len(list(tmp_path.glob("infra/kubernetes/*/used")))

    async def story() -> None:
        other, current = infras["kubernetes/test"], infras["kubernetes/prod"]
        assert isinstance(other, Volumes)
        assert isinstance(current, Volumes)
        await other.ensure_volume(volume)  # it is left alone
        assert not woken()
        with pytest.raises(ArgosyError):  # there is no such cluster
            await current.ensure_volume(volume)
        assert woken() == 1

    asyncio.run(story())

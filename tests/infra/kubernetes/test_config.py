"""The contexts of config.yaml: what is read, and where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.errors import InputError, InputErrors
from argosy.infra.kubernetes.config import (
    DEFAULT_IMAGE,
    ContextConfig,
    parse_contexts,
    read_contexts,
)
from tests.infra.kubernetes.requests import a_context


def errors(text: str) -> list[tuple[str, str, str]]:
    with pytest.raises(InputErrors) as caught:
        parse_contexts(text, "config.yaml")
    return [(str(e.place), e.text, " ".join(e.hints)) for e in caught.value.errors]


def in_context(text: str) -> tuple[str, str]:
    """The only error of a context that says this; its place is counted within the context."""
    ((place, words, hint),) = errors(f"kubernetes:\n  contexts:\n    prod:\n      {text}\n")
    assert hint != InputError.default_hint  # it says what is expected
    return place.removeprefix("config.yaml:"), words


def test_a_name_is_enough():
    assert a_context() == ContextConfig("prod", context="prod")
    assert a_context().image == DEFAULT_IMAGE
    assert a_context("").context == "prod"


def test_everything_is_read():
    found = a_context(
        "{context: gke_acme_eu, kubeconfig: /etc/kube, namespace: ml, image: a:1,"
        " service_account: trainer, image_pull_secrets: [r, s], priority_class: batch,"
        " node_selector: {pool: gpu}, tolerations: [{key: a, value: b, tolerationSeconds: 5}],"
        " tolerate_seconds: 5, restricted: true, autoscaling: true,"
        " pod_config: {spec: {runtimeClassName: nvidia}}}"
    )
    assert found == ContextConfig(
        "prod",
        context="gke_acme_eu",
        kubeconfig="/etc/kube",
        namespace="ml",
        image="a:1",
        service_account="trainer",
        image_pull_secrets=("r", "s"),
        priority_class="batch",
        node_selector=(("pool", "gpu"),),
        tolerations=({"key": "a", "value": "b", "tolerationSeconds": 5},),
        tolerate_seconds=5,
        restricted=True,
        autoscaling=True,
        pod_config={"spec": {"runtimeClassName": "nvidia"}},
    )


def test_a_user_of_pods_implies_restricted_pods():
    found = a_context("{run_as_user: 1234}")
    assert (found.restricted, found.run_as_user) == (True, 1234)


def test_the_home_of_the_user_is_put_in():
    assert a_context("{kubeconfig: ~/k}").kubeconfig == str(Path("~/k").expanduser())


def test_names_of_clouds_are_fine_in_the_kubeconfig():
    arn = "arn:aws:eks:eu-west-1:123456789012:cluster/ml"
    assert a_context(f"{{context: '{arn}'}}").context == arn


@pytest.mark.parametrize("text", ["", "kubernetes:\n", "ssh: {}\n", "kubernetes: {contexts: {}}\n"])
def test_no_contexts_are_no_error(text: str):
    assert parse_contexts(text, "f") == ()


def test_a_missing_file_is_no_error(tmp_path: Path):
    assert read_contexts(tmp_path / "config.yaml") == ()


def test_all_errors_come_at_once_with_their_places():
    text = """kubernetes:
  contexts:
    prod:
      namespace: Research
      imaeg: a:1
      tolerate_seconds: soon
      tolerations:
        - {effect: NoShedule, operator: Exists}
        - {value: x}
      pod_config:
        spec:
          restartPolicy: Always
          containers:
            - image: mine
    "no name":
"""
    assert [(place.partition(":")[2], words) for place, words, _ in errors(text)] == [
        ("5:7", "`imaeg` is unknown in context `prod`"),
        ("4:18", "`namespace` must be a name"),
        ("8:20", "`effect` must be one of NoSchedule, PreferNoSchedule, NoExecute"),
        ("9:11", "a toleration needs `key`, or `operator: Exists`"),
        ("6:25", "`tolerate_seconds` must be a whole number, 0 or more"),
        ("12:11", "`restartPolicy` of `pod_config.spec` is set by Argosy"),
        ("14:15", "`image` of `pod_config.spec.containers[0]` is set by Argosy"),
        ("15:5", "`no name` is no name for a context"),
    ]
    hints = [hint for _, _, hint in errors(text)]
    assert hints[0] == "did you mean `image`?"
    assert "`image:` of the context" in hints[6]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("image: -x", "4:14", "`image` must be one word that does not begin with `-`"),
        ("kubeconfig: kube", "4:19", "`kubeconfig` must be a path"),
        ("run_as_user: 0", "4:20", "`run_as_user` must be a whole number, 1 or more"),
        ("restricted: maybe", "4:19", "`restricted` must be true or false"),
        ("image_pull_secrets: {a: b}", "4:27", "`image_pull_secrets` must be a list"),
        ("image_pull_secrets: [A_B]", "4:28", "`image_pull_secrets` must be a name"),
        ("node_selector: {a b: c}", "4:23", "`a b` is no key of a label"),
        ("node_selector: {a: b c}", "4:26", "the value of `a` is none that a label may have"),
        ("tolerations: {a: b}", "4:20", "`tolerations` must be a list"),
        ("tolerations: [x]", "4:21", "a toleration must be a map"),
        ("pod_config: {sepc: {}}", "4:20", "`sepc` is unknown in `pod_config`"),
        ("pod_config: [x]", "4:19", "`pod_config` must be a map"),
        ("pod_config: {spec: {hostname: x}}", "4:27", "`hostname` of `pod_config.spec` is set by "
         "Argosy"),
        ("pod_config: {metadata: {labels: {argosy.dev/live: x}}}", "4:40",
         "labels under `argosy.dev/` are Argosy's own"),
        ("pod_config: {spec: {containers: [{name: b}, {image: c}]}}", "4:51",
         "a container beside ours needs a `name`"),
        ("pod_config: {spec: {containers: x}}", "4:39", "`pod_config.spec.containers` must be a "
         "list"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(text: str, place: str, words: str):
    assert in_context(text) == (place, words)


def test_plain_values_are_kept_as_json_has_them():
    found = a_context(
        "{pod_config: {spec: {hostNetwork: true, priority: 3, x: 1.5, day: 2026-01-01, "
        "empty: null, list: [a, {b: c}]}}}"
    )
    assert found.pod_config["spec"] == {
        "hostNetwork": True,
        "priority": 3,
        "x": 1.5,
        "day": "2026-01-01",
        "empty": None,
        "list": ["a", {"b": "c"}],
    }


def test_a_tree_without_end_is_refused():
    deep = "{spec: " + "{a: " * 30 + "1" + "}" * 30 + "}"
    assert in_context(f"pod_config: {deep}")[1] == "more than 20 levels of maps and lists"

"""How the user's part of a pod is merged into ours."""

from __future__ import annotations

import copy
from typing import Any

from argosy.infra.kubernetes.manifests.merge import merge_pod_config

POD: dict[str, Any] = {
    "metadata": {"name": "a", "labels": {"one": "1"}},
    "spec": {
        "restartPolicy": "Never",
        "tolerations": [{"key": "a"}],
        "containers": [
            {
                "name": "argosy",
                "image": "ours",
                "env": [{"name": "A", "value": "1"}],
                "volumeMounts": [{"name": "home", "mountPath": "/var/argosy"}],
            }
        ],
    },
}


def merged(**spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = merge_pod_config(POD, {"spec": spec})["spec"]
    return found


def test_nothing_changes_nothing():
    assert merge_pod_config(POD, {}) == POD


def test_maps_join_and_lists_append():
    found = merge_pod_config(
        POD, {"metadata": {"labels": {"two": "2"}}, "spec": {"tolerations": [{"key": "b"}]}}
    )
    assert found["metadata"] == {"name": "a", "labels": {"one": "1", "two": "2"}}
    assert found["spec"]["tolerations"] == [{"key": "a"}, {"key": "b"}]


def test_named_things_meet_by_their_name():
    (ours, other) = merged(
        containers=[
            {"name": "argosy", "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]},
            {"name": "other", "image": "theirs"},
        ]
    )["containers"]
    assert ours["image"] == "ours"
    assert ours["env"] == [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]
    assert other == {"name": "other", "image": "theirs"}


def test_the_first_container_without_a_name_is_ours():
    (ours,) = merged(containers=[{"volumeMounts": [{"name": "data", "mountPath": "/data"}]}])[
        "containers"
    ]
    assert [one["name"] for one in ours["volumeMounts"]] == ["home", "data"]


def test_what_was_given_stays_as_it_was():
    before = copy.deepcopy(POD)
    config = {"spec": {"containers": [{"env": [{"name": "A", "value": "2"}]}]}}
    wanted = copy.deepcopy(config)
    merge_pod_config(POD, config)
    assert (before, wanted) == (POD, config)

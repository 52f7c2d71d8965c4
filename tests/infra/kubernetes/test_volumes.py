"""What volumes become on a cluster, as text."""

from __future__ import annotations

from typing import Any

from argosy.infra.kubernetes import marks
from argosy.infra.kubernetes.manifests.volumes import VOLUME, claim, claim_name, mounted
from argosy.model.volumes import Volume, VolumeKind, VolumeSpec, VolumeUse
from tests.infra.kubernetes.requests import GROUP, OWNER, a_request

CLAIM = VolumeSpec(
    "data", VolumeKind.PVC, "kubernetes", 100.0, storage_class="fast", access_mode="ReadWriteMany",
    labels=(("team", "ml"), ("note", "two words"), ("argosy.dev/group", "mine")), namespace="ml",
)  # fmt: skip


def uses(*found: VolumeUse) -> Any:
    return mounted(a_request(volumes=found), OWNER, "uid-1")


def test_a_claim_of_a_volume() -> None:
    made = claim(Volume("data-00000001", CLAIM), OWNER)
    assert made == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "argosy-data-00000001",
            "namespace": "ml",
            "labels": {"team": "ml", **OWNER.labels, VOLUME: "data-00000001"},
            "annotations": {"note": "two words"},
        },
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "100Gi"}},
            "storageClassName": "fast",
        },
    }


def test_a_claim_that_was_there_has_its_own_name() -> None:
    there = VolumeSpec("data", VolumeKind.PVC, "kubernetes", use_existing=True)
    assert claim_name(Volume("data-00000001", there)) == "data"
    found = uses(VolumeUse("/data", "data-00000001", there, read_only=True, sub_path="a/b"))
    assert found.volumes == (
        {"name": "volume-0", "persistentVolumeClaim": {"claimName": "data"}},
    )  # fmt: skip
    assert found.mounts == (
        {"name": "volume-0", "mountPath": "/data", "subPath": "a/b", "readOnly": True},
    )
    assert found.claims == ()


def test_a_volume_that_is_mounted_twice_is_one_in_the_pod() -> None:
    found = uses(
        VolumeUse("/data", "data-00000001", CLAIM), VolumeUse("in", "data-00000001", CLAIM)
    )
    assert [one["name"] for one in found.volumes] == ["volume-0"]
    assert [one["mountPath"] for one in found.mounts] == ["/data", "/argosy-volumes/in"]


def test_folders_of_the_cluster_hosts() -> None:
    path = VolumeSpec("", VolumeKind.HOSTPATH, host_path="/mnt/x")
    named = VolumeSpec("x", VolumeKind.HOSTPATH, "kubernetes", host_path="/mnt/y")
    found = uses(VolumeUse("/a", "task-t-0", path), VolumeUse("~/b", "x-1", named))
    assert [one["hostPath"] for one in found.volumes] == [
        {"path": "/mnt/x", "type": "Directory"}, {"path": "/mnt/y", "type": "DirectoryOrCreate"},
    ]  # fmt: skip
    assert found.mounts[1]["mountPath"] == "/argosy-volumes/home_b"


def test_one_that_lives_as_long_as_the_group_is_owned_by_its_anchor() -> None:
    own = VolumeSpec("", VolumeKind.ANY, size_gib=2.5)
    shared = VolumeSpec("scratch", VolumeKind.PVC, size_gib=1.0)
    found = uses(
        VolumeUse("/a", "task-trainer-0", own, ephemeral=True),
        VolumeUse("/b", "name-scratch", shared, ephemeral=True),
        VolumeUse("/c", "task-trainer-2", VolumeSpec("", VolumeKind.LOCAL, size_gib=1.0), True),
    )
    first, second = found.claims
    assert first["metadata"]["name"] == f"argosy-{GROUP}-task-trainer-0-0"  # of this node
    assert second["metadata"]["name"] == f"argosy-{GROUP}-name-scratch"
    assert first["metadata"]["labels"] == marks.group_labels(OWNER, GROUP)
    (owner,) = first["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("ConfigMap", "uid-1")
    assert first["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert first["spec"]["resources"]["requests"]["storage"] == "2560Mi"
    assert "storageClassName" not in first["spec"]
    assert found.volumes[2] == {"name": "volume-2", "emptyDir": {"sizeLimit": "1Gi"}}


def test_a_long_name_stays_one_that_a_cluster_takes() -> None:
    long = VolumeUse("/a", f"task-{'x' * 53}-0", VolumeSpec("", size_gib=1.0), ephemeral=True)
    other = VolumeUse("/b", f"task-{'x' * 53}-1", VolumeSpec("", size_gib=1.0), ephemeral=True)
    names = [one["metadata"]["name"] for one in uses(long, other).claims]
    assert all(len(name) <= 63 for name in names)
    assert len(set(names)) == 2

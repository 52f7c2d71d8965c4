"""Volume files and flags: what they mean, and everything that is wrong with them at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from argosy.errors import InputErrors
from argosy.model.volumes import VolumeKind, VolumeSpec
from argosy.spec.keys import model
from argosy.spec.volumes import parse_volumes, volume_of_flags

CLAIM = "name: a\ntype: k8s-pvc\nsize: 1Gi\n"
KEYS: dict[str, tuple[str, Callable[[VolumeSpec], bool], str]] = {
    "name": ("name: my-data", lambda v: v.name == "my-data", "name: My_Data"),
    "type": ("type: NFS\nconfig: {host_path: /x}", lambda v: v.kind is VolumeKind.NFS, "type: nf"),
    "infra": ("infra: ssh/lab", lambda v: v.infra == "ssh/lab", "infra: sssh/lab"),
    "size": ("size: 100Gi", lambda v: v.size_gib == 100.0, "size: big"),
    "use_existing": ("use_existing: true\nconfig: {host_path: /x}", lambda v: v.use_existing,
                     "use_existing: true"),
    "labels": ("labels: {a: b}", lambda v: v.labels == (("a", "b"),), "labels: 1"),
    "config": ("config: {}", lambda v: v.host_path == "", "config: {hostpath: /x}"),
}  # fmt: skip
CONFIG: dict[str, tuple[str, Callable[[VolumeSpec], bool], str]] = {
    "storage_class_name": (f"{CLAIM}config: {{storage_class_name: fast}}",
                           lambda v: v.storage_class == "fast",
                           "name: a\nconfig: {storage_class_name: fast}"),
    "access_mode": (f"{CLAIM}config: {{access_mode: readwritemany}}",
                    lambda v: v.access_mode == "ReadWriteMany",
                    f"{CLAIM}config: {{access_mode: ReadWrite}}"),
    "namespace": (f"{CLAIM}config: {{namespace: ml}}", lambda v: v.namespace == "ml",
                  "name: a\nconfig: {namespace: ml}"),
    "host_path": ("name: a\nconfig: {host_path: /srv/a/../b}", lambda v: v.host_path == "/srv/b",
                  f"{CLAIM}config: {{host_path: /x}}"),
    "host": ("name: a\ninfra: ssh/lab\nconfig: {host: h1}", lambda v: v.host == "h1",
             "name: a\nconfig: {host: h1}"),
}  # fmt: skip


def wrong(text: str) -> list[str]:
    """`line:column code` of every error."""
    with pytest.raises(InputErrors) as caught:
        parse_volumes(text, "v.yaml")
    assert all(one.hints for one in caught.value.errors)
    return [
        f"{one.place.line}:{one.place.column} {one.code.removeprefix('spec/')}"
        for one in caught.value.errors
        if one.place is not None
    ]


def test_every_key_is_tested() -> None:
    assert {key.name for key in model.VOLUME_FILE.keys} == set(KEYS)
    assert {key.name for key in model.VOLUME_CONFIG.keys} == set(CONFIG)


@pytest.mark.parametrize("key", KEYS)
def test_key(key: str) -> None:
    good, holds, bad = KEYS[key]
    head = "" if key == "name" else "name: a\n"
    assert holds(*parse_volumes(head + good, "v.yaml"))
    assert wrong(head + bad)


@pytest.mark.parametrize("key", CONFIG)
def test_key_of_config(key: str) -> None:
    good, holds, bad = CONFIG[key]
    assert holds(*parse_volumes(good, "v.yaml"))
    assert wrong(bad)


def test_what_is_not_said_has_a_default() -> None:
    (here,) = parse_volumes("name: a\n", "v.yaml")
    assert here == VolumeSpec("a", VolumeKind.LOCAL, "local")
    (claim,) = parse_volumes("name: a\ninfra: kubernetes/prod\nsize: 5\n", "v.yaml")
    assert (claim.kind, claim.infra, claim.access_mode) == (
        VolumeKind.PVC, "kubernetes/prod", "ReadWriteOnce",
    )  # fmt: skip
    (share,) = parse_volumes("name: a\ntype: nfs\nconfig: {host_path: /m}\n", "v.yaml")
    assert (share.infra, share.ours) == ("", False)
    (path,) = parse_volumes("name: a\ntype: k8s-hostpath\nconfig: {host_path: /m}\n", "v.yaml")
    assert path.infra == "kubernetes"


def test_one_document_is_one_volume() -> None:
    found = parse_volumes("name: a\n---\nname: b\nsize: 1\n", "v.yaml")
    assert [one.name for one in found] == ["a", "b"]
    assert wrong("name: a\n---\nname: a\n") == ["3:1 name-twice"]
    assert wrong("# nothing\n") == ["1:1 no-volume"]


def test_all_errors_come_at_once_with_their_places() -> None:
    text = "nam: a\ntype: nfs\ninfra: kubernetes\nsize: -1\nconfig:\n  access_mode: x\n"
    assert wrong(text) == [
        "1:1 unknown-key", "1:1 no-name", "3:8 volume-infra", "4:7 wrong-value", "6:3 volume-path",
        "6:16 wrong-value",
    ]  # fmt: skip


def test_a_new_claim_needs_a_size() -> None:
    assert wrong("name: a\ntype: k8s-pvc\n") == ["1:1 volume-size"]
    (there,) = parse_volumes("name: a\ntype: k8s-pvc\nuse_existing: true\n", "v.yaml")
    assert not there.ours


def test_flags_mean_the_same_as_a_file() -> None:
    flags = {"name": "a", "size": "10Gi", "config.host_path": "/srv/a", "use_existing": "true"}
    text = "name: a\nsize: 10Gi\nuse_existing: true\nconfig: {host_path: /srv/a}\n"
    assert (volume_of_flags(flags),) == parse_volumes(text, "v.yaml")
    with pytest.raises(InputErrors) as caught:
        volume_of_flags({"name": "A", "type": "nf", "config.storage_class_name": "a b"})
    places = [one.place.file for one in caught.value.errors if one.place]
    assert places == ["NAME A", "--type nf", "--storage-class a b"]


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        ({"type": "nfs"}, "say `--host-path /mnt/data`"),
        ({"type": "k8s-pvc"}, "say `--size 100Gi`, or `--use-existing` for one that is there"),
        ({"use_existing": "true"}, "say `--host-path /srv/data`"),
    ],
)
def test_what_flags_lack_is_told_in_flags(flags: dict[str, str], hint: str) -> None:
    with pytest.raises(InputErrors) as caught:
        volume_of_flags({"name": "a", **flags})
    assert [one.hints for one in caught.value.errors] == [(hint,)]


def test_a_document_that_is_no_map_is_told() -> None:
    assert wrong("[]\n") == ["1:1 no-map"]
    assert wrong("name: a\n---\ndata\n") == ["3:1 no-map"]

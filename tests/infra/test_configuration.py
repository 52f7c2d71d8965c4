"""config.yaml as a whole: every error at once, each section with its defaults, one schema."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from argosy.errors import InputErrors
from argosy.infra import configuration
from argosy.infra.kubernetes import config as kubernetes
from argosy.infra.kubernetes import schema as kubernetes_schema
from argosy.infra.local import pools as local
from argosy.infra.registry import InfraSettings, open_infras
from argosy.infra.ssh import config as ssh
from argosy.model.ids import ServerId

RIGHT = """\
x-note: anything
server: {advertise: "10.0.0.5:7443"}
local:
  pools:
    rack: {hosts: 4, cpus: 8, memory: 32GB, accelerators: {H100: 8}}
    mixed: [{hosts: 2, cpus: 8}, {cpus: 1, price: 2}]
ssh:
  pools:
    lab: {hosts: [a, {host: b, port: 3}]}
kubernetes:
  contexts:
    prod: {namespace: research}
"""
WRONG = """\
locl: 1
server: {advertise: nowhere, advertize: "a:1"}
local:
  pools: {rack: {hosts: 0, prize: 3}}
  pool: {}
ssh:
  pools:
    lab: {hosts: []}
kubernetes:
  contexts:
    x: {imag: q}
"""


def wrong(text: str) -> list[tuple[str, str]]:
    with pytest.raises(InputErrors) as caught:
        configuration.parse(text, "c.yaml")
    return [(str(one.place), one.text) for one in caught.value.errors]


def test_everything_that_is_wrong_is_told_at_once_in_its_order() -> None:
    assert wrong(WRONG) == [
        ("c.yaml:1:1", "`locl` is no section of this file"),
        ("c.yaml:2:21", "`advertise` must be HOST:PORT"),
        ("c.yaml:2:30", "`advertize` is unknown in `server`"),
        ("c.yaml:4:25", "`hosts` must be a whole number above 0"),
        ("c.yaml:4:28", "`prize` is unknown in a pool"),
        ("c.yaml:5:3", "`pool` is unknown in `local`"),
        ("c.yaml:8:18", "a pool needs `hosts`, a list"),
        ("c.yaml:11:9", "`imag` is unknown in context `x`"),
    ]


def test_a_text_that_is_no_map_is_told_once() -> None:
    assert wrong("- a\n") == [("c.yaml:1:1", "the file must be a map")]
    assert [place for place, _ in wrong("a: [\n")] == ["c.yaml:2:1"]
    assert wrong("local: {}\nlocal: {}\n") == [
        ("c.yaml:2:1", "`local` is given twice, first in line 1")
    ]


@pytest.mark.parametrize("text", ["", "{}", "local:\n", "# nothing\n", "ssh: {pools: {}}"])
def test_a_file_that_says_nothing_is_right(text: str) -> None:
    assert configuration.parse(text, "c.yaml") == {}


def test_sections_are_shown_with_their_defaults() -> None:
    found = configuration.parse(RIGHT, "c.yaml")
    assert found["server"] == {"advertise": "10.0.0.5:7443"}
    assert found["local"]["pools"] == {
        "rack": {"hosts": 4, "cpus": 8.0, "memory": 32.0, "accelerators": {"H100": 8},
                 "price": 0.0},
        "mixed": [
            {"hosts": 2, "cpus": 8.0, "memory": 16.0, "accelerators": {}, "price": 0.0},
            {"hosts": 1, "cpus": 1.0, "memory": 16.0, "accelerators": {}, "price": 2.0},
        ],
    }  # fmt: skip
    lab = found["ssh"]["pools"]["lab"]
    assert lab["agent_home"] == ssh.AGENT_HOME
    assert [(host["host"], host["port"]) for host in lab["hosts"]] == [("a", ""), ("b", 3)]
    prod = found["kubernetes"]["contexts"]["prod"]
    assert (prod["context"], prod["image"]) == ("prod", kubernetes.DEFAULT_IMAGE)


def test_places_say_where_each_pool_stands() -> None:
    assert configuration.places(RIGHT, "c.yaml") == {
        ("local", "rack"): "c.yaml:5",
        ("local", "mixed"): "c.yaml:6",
        ("ssh", "lab"): "c.yaml:9",
        ("kubernetes", "prod"): "c.yaml:12",
    }


def test_pools_of_skypilots_file_are_shown_with_their_place(tmp_path: Path) -> None:
    file = tmp_path / ssh.SKY_FILE
    file.parent.mkdir()
    file.write_text("\ncluster:\n  hosts: [h1]\n")
    found = configuration.sky_pools(tmp_path)
    assert [(name, place) for name, (place, _) in found.items()] == [("cluster", f"{file}:2")]
    assert configuration.sky_pools(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("schema", "keys"),
    [
        (local.HOSTS, local.KEYS),
        (ssh.POOL, ssh.POOL_KEYS),
        (ssh.HOST, ssh.HOST_KEYS),
        (kubernetes_schema.CONTEXT, kubernetes.CONTEXT_KEYS),
        (kubernetes_schema.TOLERATION, kubernetes.TOLERATION_KEYS),
    ],
)
def test_schema_and_reader_know_the_same_keys(schema: Any, keys: tuple[str, ...]) -> None:
    assert sorted(schema["properties"]) == sorted(keys)
    assert schema["additionalProperties"] is False


def test_the_schema_has_every_section() -> None:
    found = configuration.schema()
    assert list(found["properties"]) == ["server", "local", "ssh", "kubernetes"]
    assert found["additionalProperties"] is False
    for one in configuration.sections():
        if one.inside:
            assert list(one.schema["properties"]) == [one.inside]


def test_a_server_refuses_a_file_with_an_unknown_section(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("locl: {}\n")
    with pytest.raises(InputErrors) as caught:
        open_infras(InfraSettings(tmp_path, ServerId("5eed01"), lambda: 0.0))
    [error] = caught.value.errors
    assert (error.code, error.hints) == ("config/unknown-section", ("did you mean `local`?",))


@pytest.mark.parametrize(
    "text",
    [
        "x-deep: " + "[" * 3000 + "]" * 3000,
        "x-own: &own [*own]",
        "x-a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n"
        + "".join(f"x-{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in pairwise("abcdef")),
    ],
)
def test_what_is_too_deep_or_too_large_is_told_and_not_written_out(text: str) -> None:
    ((_, told),) = wrong(text)
    assert "too deep" in told or "100,000 values" in told

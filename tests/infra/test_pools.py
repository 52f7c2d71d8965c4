"""The configuration of virtual pools: what is read, and where it is wrong."""

from __future__ import annotations

import pytest

from argosy.errors import InputErrors
from argosy.infra.local.pools import parse_pools, read_pools


def errors(text: str) -> list[tuple[str, str, str]]:
    with pytest.raises(InputErrors) as caught:
        parse_pools(text, "config.yaml")
    return [(str(e.place), e.text, " ".join(e.hints)) for e in caught.value.errors]


def test_a_pool_of_equal_hosts():
    text = (
        "local: {pools: {rack: {hosts: 2, cpus: 8, memory: 32, accelerators: H100:8, price: 2.5}}}"
    )
    (pool,) = parse_pools(text, "f")
    assert pool.name == "rack"
    assert [host.name for host in pool.hosts] == ["rack-0", "rack-1"]
    host = pool.hosts[1]
    assert (host.cpus, host.memory_gib, host.price_per_hour_usd) == (8.0, 32.0, 2.5)
    assert host.total.count_of("h100") == 8
    assert host.indices_of("H100") == tuple(range(8))
    assert not host.elastic


def test_a_list_of_groups_is_numbered_through():
    text = """
local:
  pools:
    mixed:
    - {hosts: 1, accelerators: {H100: 2, L4: 1}, accelerator_memory: 80GB}
    - {hosts: 2, cpus: 0.5, memory: 512MB}
other: {anything: goes}
"""
    (pool,) = parse_pools(text, "f")
    assert [host.name for host in pool.hosts] == ["mixed-0", "mixed-1", "mixed-2"]
    assert pool.hosts[0].indices_of("L4") == (2,)
    assert pool.hosts[0].total.accelerators[0].memory_gib == 80.0
    assert (pool.hosts[2].cpus, pool.hosts[2].memory_gib) == (0.5, 0.5)


@pytest.mark.parametrize("text", ["", "local:\n", "server: {x: 1}\n", "local: {pools: {}}\n"])
def test_no_pools_are_no_error(text):
    assert parse_pools(text, "f") == ()


def test_a_missing_file_is_no_error(tmp_path):
    assert read_pools(tmp_path / "config.yaml") == ()


def test_all_errors_come_at_once_with_their_places():
    text = """local:
  pools:
    Rack: {hosts: 2}
    b:
      hosts: 1.5
      cpu: 4
      memory: lots
      accelerators: H100:many
      price: -1
"""
    assert errors(text) == [
        (
            "config.yaml:3:5",
            "`Rack` is no name for a pool: lower case letters, digits and `-`",
            "begin with a letter; 32 characters at most",
        ),
        ("config.yaml:6:7", "`cpu` is unknown in a pool", "did you mean `cpus`?"),
        ("config.yaml:5:14", "`hosts` must be a whole number above 0", DIGITS + "`hosts: 2`"),
        ("config.yaml:7:15", "memory must be an amount above 0", "`32`, `32GB` or `1500MB`"),
        ("config.yaml:8:21", "`H100:many` is no number of cards from 1 to 64", "`H100:8`"),
        ("config.yaml:9:14", "`price` must be a number from 0 on", DIGITS + "`price: 2`"),
    ]


DIGITS = "write it in digits: "
WHATEVER = "correct the value and try again"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("local: [1]\n", "config.yaml:1:8", "`local` must be a map"),
        ("local: {pools: [rack]}\n", "config.yaml:1:16", "`pools` must be a map"),
        (
            "local:\n  pools:\n    a: {hosts: 1}\n    a: {hosts: 2}\n",
            "config.yaml:4:5",
            "given twice",
        ),
        ("local: {pools: {a: {hosts: 5000}}}\n", "config.yaml:1:20", "1000 hosts at most"),
        ("local: {pools: {a: {hosts: 1\n", "config.yaml:2:1", "this is not YAML"),
        ("- 1\n", "config.yaml:1:1", "the file must be a map"),
        ("local: {pools: {a: {cpus: .nan}}}\n", "config.yaml:1:27", "`cpus` must be a number"),
    ],
)
def test_each_mistake_has_its_place(text, place, words):
    (error,) = errors(text)
    assert error[0] == place
    assert words in error[1]
    assert error[2] != WHATEVER


@pytest.mark.parametrize(
    "value",
    ["hosts: nan", "hosts: " + "1" * 400, "cpus: .inf", "memory: " + "1" * 400,
     "accelerators: 'H100:\u00b2'", "accelerators: {H100: " + "1" * 5000 + "}", "price: nan"],
)  # fmt: skip
def test_numbers_that_are_none_are_told_with_their_place(value):
    ((place, _, _),) = errors("local: {pools: {rack: {" + value + "}}}")
    assert place.startswith("config.yaml:1:")


def test_a_pool_without_hosts_is_told():
    assert errors("local: {pools: {rack: []}}") == [
        ("config.yaml:1:23", "pool `rack` has no hosts", "write `{hosts: 2}`")
    ]

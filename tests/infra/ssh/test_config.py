"""Pools are read from two files, and every mistake is told with its place."""

from __future__ import annotations

import pytest

from argosy.errors import InputError, InputErrors
from argosy.infra.ssh.config import AGENT_HOME, HostConfig, parse_pools, read_pools

FILE = """\
local: {pools: {rack: {hosts: 2}}}
ssh:
  pools:
    lab:
      user: ada
      identity_file: /keys/lab
      accept_new: true
      fence_after: 10m
      hosts:
        - gpu-1
        - root@gpu-2
        - {host: 10.0.0.2, user: eve, port: 2222, identity_file: /keys/eve, name: gpu-3}
"""
SKY = """\
lab: {hosts: [elsewhere]}
my_cluster:
  user: ubuntu
  identity_file: /keys/sky
  password: secret
  hosts:
    - 1.2.3.4
    - {ip: 1.2.3.5, user: admin}
"""


def test_hosts_take_what_the_pool_says_unless_they_say_otherwise():
    (pool,) = parse_pools(FILE, "config.yaml")
    assert (pool.name, pool.fence_after, pool.agent_home) == ("lab", 600.0, AGENT_HOME)
    assert pool.hosts == (
        HostConfig("gpu-1", "gpu-1", "ada", 0, "/keys/lab", True),
        HostConfig("gpu-2", "gpu-2", "root", 0, "/keys/lab", True),
        HostConfig("gpu-3", "10.0.0.2", "eve", 2222, "/keys/eve", True),
    )


def test_the_file_of_skypilot_is_read_and_ours_comes_first(tmp_path):
    (tmp_path / "config.yaml").write_text(FILE)
    (tmp_path / ".sky").mkdir()
    (tmp_path / ".sky" / "ssh_node_pools.yaml").write_text(SKY)
    lab, cluster = read_pools(tmp_path / "config.yaml", tmp_path)
    assert lab.hosts[0].name == "gpu-1"
    assert cluster.hosts == (
        HostConfig("1.2.3.4", "1.2.3.4", "ubuntu", 0, "/keys/sky"),
        HostConfig("1.2.3.5", "1.2.3.5", "admin", 0, "/keys/sky"),
    )


def test_no_file_is_no_pool(tmp_path):
    assert read_pools(tmp_path / "config.yaml", tmp_path) == ()


@pytest.mark.parametrize(
    ("pools", "place", "words"),
    [
        ("lab: {hosts: [a], usr: x}", "3:23", "did you mean `user`?"),
        ("lab: {hosts: []}", "3:18", "a pool needs `hosts`"),
        ("lab: {user: x}", "3:10", "a pool needs `hosts`"),
        ("lab: {hosts: [a, a]}", "3:22", "is given twice"),
        ("lab: {hosts: [-oProxyCommand=x]}", "3:19", "does not begin with `-`"),
        ("lab: {hosts: [{host: a, port: 0}]}", "3:35", "from 1 to 65535"),
        ("lab: {hosts: [{hots: a}]}", "3:20", "did you mean `host`?"),
        ("lab: {hosts: [a], fence_after: soon}", "3:36", "`90s`"),
        ("lab: {hosts: [a], fence_after: 2s}", "3:36", "5 s or more"),
        ("lab: {hosts: [a], accept_new: maybe}", "3:35", "true or false"),
        ("lab: {hosts: [a], agent_home: here}", "3:35", "begin with `/`"),
        ("'a b': {hosts: [a]}", "3:5", "no name for a pool"),
        ("lab: {hosts: [a/../b]}", "3:19", "no name of a host"),
        ("lab: {hosts: [{host: a, address: b}]}", "3:38", "an IPv4 address"),
        ("lab: {hosts: [{host: a, address: 127.0.0.1}]}", "3:38", "such as `10.0.0.2`"),
    ],
)
def test_a_mistake_has_its_place_and_a_hint(pools, place, words):
    with pytest.raises(InputErrors) as caught:
        parse_pools(f"ssh:\n  pools:\n    {pools}\n", "config.yaml")
    told = [(str(one.place), " ".join((one.text, *one.hints))) for one in caught.value.errors]
    found = [text for where, text in told if where == f"config.yaml:{place}"]
    assert any(words in text for text in found), told
    assert not any(InputError.default_hint in text for _, text in told)


def test_a_pool_that_is_a_list_is_one_mistake():
    with pytest.raises(InputErrors) as caught:
        parse_pools("ssh: {pools: {lab: [host-1]}}\n", "config.yaml")
    (error,) = caught.value.errors
    assert error.text == "pool `lab` must be a map"
    assert error.hints == ("write `lab: {hosts: [gpu-1, gpu-2]}`",)


def test_all_mistakes_are_told_at_once():
    with pytest.raises(InputErrors) as caught:
        parse_pools("ssh: {pools: {a: {hosts: x}, b: {hosts: [c], port: 1}}, x: 1}", "f")
    assert len(caught.value.errors) == 3


def test_a_host_may_have_an_address_for_the_others():
    (pool,) = parse_pools("ssh: {pools: {a: {hosts: [{host: b, address: 10.0.0.2}, c]}}}", "f")
    assert [host.address for host in pool.hosts] == ["10.0.0.2", ""]

"""Volumes on this machine, as a person uses them: made, mounted, sealed, in use, deleted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.whole.home import COMMAND_SECONDS, LOOK, Home

pytestmark = pytest.mark.whole

FIRST = """name: first
execution: parallel
---
name: writer
volumes:
  data: {name: data, sub_path: runs}
  scratch: {name: scratch, size: 1Gi}
run: |
  echo kept > data/file; echo gone > scratch/file
  while [ ! -e scratch/read ]; do sleep 0.05; done
---
name: reader
num_nodes: 2
volumes:
  POINT: {name: data, read_only: true}
  scratch: {name: scratch, size: 1Gi}
  host: {host_path: /usr/share, read_only: true}
run: |
  until [ -s POINT/runs/file ] && [ -s scratch/file ]; do sleep 0.05; done
  cat POINT/runs/file scratch/file; echo x > POINT/x || echo refused
  ls host > /dev/null && echo seen
  while [ ! -e scratch/go ]; do sleep 0.05; done
  touch scratch/read
"""
SERIAL = """name: chain
execution: serial
---
name: one
volumes: {scratch: {name: scratch, size: 1Gi}}
run: echo handed on > scratch/file
---
name: two
volumes: {scratch: {name: scratch, size: 1Gi}}
run: cat scratch/file
"""
POOL = "local: {pools: {rack: {hosts: 2, cpus: 2, memory: 8}}}\n"


def volumes(home: Home) -> dict[str, dict]:
    shown = json.loads(home.argosy("volumes", "list", "-o", "json").good().out)
    return {one["name"]: one for one in shown}


def until(holds: Callable[[], object], what: str) -> None:
    """Wait for what follows the end of a group."""
    deadline = time.monotonic() + COMMAND_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(LOOK)


def test_a_volume_outlives_groups_and_one_of_the_group_does_not(home: Home, tmp_path: Path) -> None:
    point = tmp_path / "made" / "point"
    file = tmp_path / "first.yaml"
    file.write_text(FIRST.replace("POINT", str(point)))
    assert "there is none of that name" in home.launch(str(file)).ended().err
    home.argosy("volumes", "create", "data", "--size", "10Gi").good()
    running = home.launch(str(file))
    running.until("it is read", lambda: running.so_far().out.count("seen") == 2)
    assert volumes(home)["data"]["used_by"] == ["first"]
    refused = home.argosy("volumes", "delete", "data", "-y")
    assert refused.code == 7
    assert "in use by first" in refused.err
    home.argosy("exec", "first/reader/0", "--", "touch", "scratch/go").good()
    ended = running.ended().good()
    assert ended.out.count("kept") == ended.out.count("gone") == ended.out.count("refused") == 2

    shared = home.path / "infra/local/machine/shared"
    (kept,) = (shared / "volumes").iterdir()
    assert (kept / "runs" / "file").read_text() == "kept\n"
    until(lambda: not list((shared / "groups").glob("*/volumes")), "the group's own stays")
    assert not point.parent.exists()
    until(lambda: not volumes(home)["data"]["used_by"], "it is used for ever")
    asked = home.argosy("volumes", "delete", "data")
    assert asked.code == 2
    assert "what is in it is removed" in asked.err
    home.argosy("volumes", "delete", "data", "-y").good()
    assert not kept.exists()
    assert volumes(home) == {}


def test_tasks_that_run_one_after_another_hand_a_volume_on(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "chain.yaml"
    file.write_text(SERIAL)
    assert "handed on" in home.launch(str(file)).ended().good().out
    groups = home.path / "infra/local/machine/shared/groups"
    until(lambda: not list(groups.glob("*/volumes")), "the group's own stays")


def test_a_file_makes_volumes_and_says_all_that_is_wrong(home: Home, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "file").write_text("mine\n")
    file = tmp_path / "volumes.yaml"
    file.write_text(
        "name: here\nsize: 1Gi\n---\nname: mine\nuse_existing: true\n"
        f"config: {{host_path: {there}}}\n"
    )
    home.argosy("volumes", "apply", str(file)).good()
    assert "here is unchanged" in home.argosy("volumes", "apply", str(file)).good().err
    file.write_text(file.read_text().replace("1Gi", "2Gi"))
    assert "here is changed" in home.argosy("volumes", "apply", str(file)).good().err
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("name: No\ntype: nsf\nsiz: 1\n")
    told = home.argosy("volumes", "apply", str(wrong))
    assert told.code == 2
    assert [f"{wrong}:{place}" in told.err for place in ("1:7", "2:7", "3:1")] == [True] * 3
    again = home.argosy("volumes", "create", "here", "--size", "2Gi").good()
    assert "here is there already" in again.err
    other = home.argosy("volumes", "create", "here", "--type", "nfs", "--host-path", "/mnt")
    assert other.code == 7
    assert "cannot change its type" in other.err
    home.argosy("volumes", "delete", "here", "mine", "-y").good()
    assert (there / "file").read_text() == "mine\n"


def test_hosts_of_a_pool_share_a_volume_of_it(home: Home, tmp_path: Path) -> None:
    home.path.mkdir(exist_ok=True)
    (home.path / "config.yaml").write_text(POOL)
    home.argosy("volumes", "create", "data", "--infra", "local/rack").good()
    file = tmp_path / "pool.yaml"
    file.write_text(
        "name: pool\nnum_nodes: 2\nresources: {cpus: 2, infra: local/rack}\nvolumes: {d: data}\n"
        "run: |\n  touch d/$ARGOSY_NODE; until [ $(ls d | wc -l) = 2 ]; do sleep 0.05; done\n"
    )
    home.launch(str(file)).ended().good()
    assert len({node["host"] for node in home.nodes("pool").values()}) == 2
    file.write_text("name: here\nvolumes: {d: data}\nresources: {infra: local}\nrun: true\n")
    refused = home.launch(str(file)).ended()
    assert refused.code == 4
    assert "cannot be mounted on local" in refused.err
    until(lambda: not volumes(home)["data"]["used_by"], "it is used for ever")
    home.argosy("volumes", "delete", "data", "-y").good()
    assert not list((home.path / "infra/local/pools/rack/shared/volumes").iterdir())

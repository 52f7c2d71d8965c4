"""The peers file as programs read it: who is there, where, and what changed since."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from argosy.runtime import peers


def a_node(task: str, index: int, address: str, **more: Any) -> dict[str, Any]:
    return {
        "task": task,
        "index": index,
        "name": f"{task}-{index}.rl",
        "address": address,
        "ports": [],
        "attempt": f"{task}-{index}-a1",
        "live": True,
        "healthy": True,
        **more,
    }


def a_book(*nodes: dict[str, Any], version: int = 1) -> dict[str, Any]:
    return {
        "version": version,
        "group": "rl",
        "incarnation": 1,
        "self": {"task": "trainer", "index": 0, "name": "trainer-0.rl", "address": "10.0.0.1"},
        "nodes": list(nodes),
        "balanced": [
            {"task": "rollout", "name": "rollout.rl", "address": "10.0.0.9", "ports": [8000]}
        ],
    }


def replace(path: Path, content: dict[str, Any]) -> None:
    """As the agent does it: written aside and renamed."""
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps(content), encoding="utf-8")
    aside.replace(path)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    where = tmp_path / "peers.json"
    replace(
        where,
        a_book(
            a_node("trainer", 0, "10.0.0.1"),
            a_node("rollout", 0, "10.0.0.2"),
            a_node("rollout", 1, "10.0.0.3", healthy=False),
            a_node("reward", 0, "", live=False, healthy=False),
        ),
    )
    monkeypatch.setenv("ARGOSY_PEERS", str(where))
    return where


@pytest.mark.usefixtures("path")
def test_peers_lists_the_nodes_of_a_task() -> None:
    assert [peer.name for peer in peers.peers("rollout")] == ["rollout-0.rl", "rollout-1.rl"]
    assert [peer.healthy for peer in peers.peers("rollout")] == [True, False]
    assert len(peers.peers()) == 4


@pytest.mark.usefixtures("path")
def test_address_and_balanced_address() -> None:
    assert peers.address("rollout", 1) == "10.0.0.3"
    assert peers.address("trainer") == "10.0.0.1"
    assert peers.balanced("rollout") == "10.0.0.9"


@pytest.mark.usefixtures("path")
def test_book_knows_its_own_node() -> None:
    own = peers.book().own
    assert own is not None
    assert (own.task, own.index, own.address) == ("trainer", 0, "10.0.0.1")


@pytest.mark.usefixtures("path")
def test_unknown_peer_names_those_that_are_known() -> None:
    with pytest.raises(peers.UnknownPeer, match="no address of rollout-2; known are: trainer-0, "):
        peers.address("rollout", 2)


@pytest.mark.usefixtures("path")
def test_a_node_without_address_is_unknown() -> None:
    with pytest.raises(peers.UnknownPeer, match="no address of reward-0"):
        peers.address("reward")


@pytest.mark.usefixtures("path")
def test_a_task_that_is_not_balanced_is_told_what_to_add() -> None:
    with pytest.raises(peers.UnknownPeer, match="balance: PORT"):
        peers.balanced("trainer")


def test_a_replaced_file_is_seen_at_once(path: Path) -> None:
    assert peers.address("rollout") == "10.0.0.2"
    for version in range(2, 50):
        # Same size each time, and often within one tick of the file system's clock.
        replace(path, a_book(a_node("rollout", 0, f"10.0.1.{version:02}"), version=version))
        assert peers.address("rollout") == f"10.0.1.{version:02}"
        assert peers.book().version == version


@pytest.mark.usefixtures("path")
def test_an_unchanged_file_is_parsed_once() -> None:
    assert peers.book() is peers.book()


def test_two_paths_do_not_mix(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    replace(other, a_book(a_node("solo", 0, "10.9.9.9")))
    assert [peer.task for peer in peers.book(str(other)).nodes] == ["solo"]
    assert peers.address("trainer") == "10.0.0.1"
    assert path.exists()


def test_outside_a_group_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ARGOSY_PEERS", raising=False)
    with pytest.raises(peers.NotInGroup, match="ARGOSY_PEERS is not set"):
        peers.peers()
    monkeypatch.setenv("ARGOSY_PEERS", os.fspath(tmp_path / "gone.json"))
    with pytest.raises(peers.NotInGroup, match="is not there"):
        peers.peers()

"""The isolated network as root and as an ordinary user; it needs namespaces, nft and pasta."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.net import stage


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="stage-"))
    yield stage.set_stage(place)
    left = [path for name in stage.PLACES for path in (place / name).iterdir()]
    shutil.rmtree(place)
    assert [path.name for path in left] in ([], ["resolv.conf"])


@pytest.mark.parametrize("who", stage.who_can_play())
@pytest.mark.parametrize("scene", stage.scenes("attempts"))
def test_attempts(folder: Path, scene: str, who: str) -> None:
    stage.play(folder, who, "attempts", scene)


@pytest.mark.parametrize("who", stage.who_can_play())
@pytest.mark.parametrize("scene", stage.scenes("networks"))
def test_networks(folder: Path, scene: str, who: str) -> None:
    stage.play(folder, who, "networks", scene)


@pytest.mark.parametrize("who", stage.who_can_play())
@pytest.mark.parametrize("scene", stage.scenes("others"))
def test_others(folder: Path, scene: str, who: str) -> None:
    stage.play(folder, who, "others", scene)


CONTAINED = [
    ("attempts", "two_nodes_bind_one_port_and_find_each_other_by_name"),
    ("attempts", "what_escapes_stays_in_sight_and_ends_with_the_wrapper"),
    ("attempts", "exec_runs_beside_the_program"),
    ("networks", "isolated_works_here"),
    ("networks", "the_way_out_leads_to_the_host_and_comes_back_when_killed"),
    ("networks", "there_is_one_proxy_and_it_comes_back_when_killed"),
    ("networks", "probes_see_each_node_from_within"),
    ("others", "host_mode_programs_see_their_names"),
    ("others", "host_mode_exec_runs_beside_the_program"),
]


@pytest.mark.parametrize(("module", "scene"), CONTAINED)
@pytest.mark.parametrize("who", stage.contained())
def test_root_of_a_container(folder: Path, module: str, scene: str, who: str) -> None:
    stage.play(folder, who, module, scene)

"""A host that the user says is gone: replaced at once, and what comes back of it is ended."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.whole.home import LOOK, Home

pytestmark = pytest.mark.whole

POOL = "local:\n  pools:\n    rack: {hosts: 2, cpus: 4, memory: 8}\n"
FILE = """\
name: alone
resources: {infra: local/rack}
run: |
  while sleep 0.1; do
    echo "$ARGOSY_ATTEMPT $(date +%s.%N)" >> "$WRITTEN/$ARGOSY_ATTEMPT"
  done
"""
PATIENCE = 90.0


def until(holds: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(LOOK)


def events(home: Home) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        home.argosy("events", "alone", "-o", "json").good().out
    )
    return found


def lines(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


def only(writes: Path, rests: Path) -> bool:
    """Whether the one writes ten lines, and the other none meanwhile."""
    first, other = lines(writes), lines(rests)
    until(lambda: lines(writes) >= first + 10, f"{writes} grows")
    return lines(rests) == other


def begun(home: Home) -> tuple[str, Path]:
    """A group whose one node writes; the host of that node, and the folder that it writes to."""
    written = home.path.parent / "written"
    written.mkdir()
    home.path.mkdir()
    (home.path / "config.yaml").write_text(POOL)
    file = home.path.parent / "alone.yaml"
    file.write_text(FILE)
    home.argosy("launch", str(file), "-d", "-y", "--env", f"WRITTEN={written}").good()
    until(lambda: lines(written / "1") > 3, "it writes")
    return home.nodes("alone")["alone-0"]["host"], written


def test_a_frozen_host_is_replaced_on_the_users_word(home: Home) -> None:
    host, written = begun(home)
    refused = home.argosy("infra", "lost", host)
    assert (refused.code, f"{host} of local/rack answers" in refused.err) == (7, True)

    home.argosy("chaos", "freeze-host", "alone/alone/0").good()
    said = home.argosy("infra", "lost", host).good()
    assert f"{host} of local/rack counts as gone; nodes of alone are replaced" in said.err
    until(lambda: lines(written / "2") > 3, "the second attempt writes")
    now = home.nodes("alone")["alone-0"]
    assert (now["attempt"], now["host"] != host) == (2, True)
    assert f"{host} lost" in home.argosy("infra", "list").good().out

    home.argosy("server", "stop").good()  # the word is kept
    assert f"{host} lost" in home.argosy("infra", "list").good().out

    home.argosy("chaos", "restore-host", "alone/alone/0").good()  # it is thawed
    until(lambda: f"{host} lost" not in home.argosy("infra", "list").good().out, "seen again")
    until(lambda: only(written / "2", written / "1"), "what ran there is ended")
    assert home.nodes("alone")["alone-0"]["attempt"] == 2
    codes = [one["code"] for one in events(home)]
    assert {"host-lost", "host-back"} <= set(codes)
    assert sum(one["code"] == "attempt-ended" for one in events(home)) == 1
    home.argosy("cancel", "alone", "--now", "--wait").good()


def test_a_forgotten_host_keeps_no_group_in_the_loop(home: Home) -> None:
    host, written = begun(home)
    home.argosy("chaos", "freeze-host", "alone/alone/0").good()
    in_use = home.argosy("infra", "forget", host)
    assert (in_use.code, f"`argosy infra lost {host}` first" in in_use.err) == (7, True)
    home.argosy("infra", "lost", host).good()
    until(lambda: lines(written / "2") > 3, "the second attempt writes")
    said = home.argosy("infra", "forget", host).good()
    assert f"{host} of local/rack is forgotten, with 1 lease" in said.err
    home.argosy("chaos", "restore-host", "alone/alone/0").good()
    until(lambda: only(written / "2", written / "1"), "what ran there is ended")
    home.argosy("chaos", "freeze-host", "alone/alone/0").good()
    ended = home.argosy("cancel", "alone", "--now", "--wait")
    other = home.nodes("alone")["alone-0"]["host"]
    assert home.group("alone")["unreachable"] == [other], ended.told()
    home.argosy("infra", "forget", other).good()
    until(lambda: not _held(home), "nothing counts there any more")
    home.argosy("chaos", "thaw-host", "alone/alone/0").good()


def _held(home: Home) -> list[Any]:
    """Who holds something of the pool."""
    infras = json.loads(home.argosy("infra", "list", "-o", "json").good().out)
    (pool,) = (one for one in infras if one["name"] == "local/rack")
    return [one for host in pool["hosts"] for one in host["holders"]]

"""`argosy infra`: tables for people, what is asked of the server, exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from argosy.cli.main import run
from argosy.sdk import wire
from tests.sdk.answering import Answering, answering

ROOM = {"cpus": 8.0, "memory_gib": 32.0, "accelerators": [{"name": "H100", "count": 8}]}
FREE = {"cpus": 2.0, "memory_gib": 16.0, "accelerators": [{"name": "H100", "count": 4}]}
NONE = {"cpus": 0.0, "memory_gib": 0.0, "accelerators": []}
HOLDERS = [{"group": "g1", "name": "rl", "own": True, "nodes": 2},
           {"group": "g2", "name": "", "own": False, "nodes": 1}]  # fmt: skip
HOSTS = [
    {"host": "gpu-1", "state": "up", "total": ROOM, "free": FREE, "holders": HOLDERS},
    {"host": "gpu-2", "state": "lost", "total": ROOM, "free": NONE, "holders": []},
]
STRANGER = {
    "lease": "g9-1-1.1-4", "group": "g9-1-1", "host": "gpu-1", "state": "up", "text": "",
    "since": 1.7e9, "own_home": False,
}  # fmt: skip


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    monkeypatch.setenv("ARGOSY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    with answering(tmp_path / "home") as running:
        running.answers["GET /v1/server"] = {"pid": 1}
        yield running


def typed(*words: str) -> int:
    return run(["infra", *words])


def test_list_sums_up_each_infra(server: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    lab = {"name": "ssh/lab", "problem": "", "hints": [], "hosts": HOSTS,
           "lost": [{"host": "gpu-2", "at": 1.0, "by": "ada"}]}  # fmt: skip
    away = {"name": "ssh/away", "problem": "no answer", "hints": ["look"], "hosts": [], "lost": []}
    server.answers["GET /v1/infra/hosts"] = {"infras": [lab, away]}
    assert typed("list") == 0
    header, first, second, hint = capsys.readouterr().out.splitlines()
    assert header.split() == ["INFRA", "HOSTS", "CPUS", "MEMORY", "ACCELERATORS", "HELD", "BY"]
    assert first.split("  ") == [
        "ssh/lab ", "1/2", " 2/16", "16/64 GiB", "H100:4/16", "  ",
        "rl (2 nodes), another server (1 node)", "gpu-2 lost",
    ] or "rl (2 nodes), another server (1 node)  gpu-2 lost" in first  # fmt: skip
    assert second.endswith("no answer")
    assert hint == "hint: look"
    assert typed("list", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == [lab, away]


def test_offers_ask_for_any_of_the_cards(
    server: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    one: dict[str, Any] = {
        "name": "ssh/lab", "verdict": "now", "text": ["1 of 2 hosts"], "hints": [],
        "price_per_hour_usd": 2.0, "fitting": ["gpu-1"], "hosts": HOSTS,
    }  # fmt: skip
    never = {**one, "name": "local", "verdict": "never", "text": ["local has no accelerators"],
             "hints": ["buy some"], "price_per_hour_usd": 0.0}  # fmt: skip
    found = {"need": "H100:4 or A100:8", "infras": [one, never]}
    server.answers["GET /v1/infra/offers"] = found
    assert typed("offers", "--need", "H100:4, A100:8", "--need", "80GB+", "--cpus", "4+") == 0
    query, _ = server.asked("GET /v1/infra/offers")
    assert (query["need"], query["cpus"]) == ("H100:4", "4+")  # the recorder keeps the first
    assert wire.path_of("x", query={"need": ["a", "b"]}) == "/v1/x?need=a&need=b"
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["need: H100:4 or A100:8",
                         "ssh/lab: now: 1 of 2 hosts, $2.00 per hour and node"]  # fmt: skip
    assert "rl (2 nodes), another server (1 node)" in lines[3]
    assert not any("gpu-2" in line for line in lines)
    assert lines[4:] == ["local: never: local has no accelerators", "  hint: buy some"]
    server.answers["GET /v1/infra/offers"] = {**found, "infras": [never]}
    assert typed("offers", "--need", "H100:4") == 4


def test_clean_shows_first_and_ends_with_y(
    server: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers["GET /v1/infra/strangers"] = {
        "infra": "ssh/lab", "blind": True, "leases": [STRANGER],
    }  # fmt: skip
    assert typed("clean", "ssh/lab") == 0
    said = capsys.readouterr()
    assert "g9-1-1.1-4  gpu-1  up     2023-11-14" in said.out
    assert "did not answer" in said.err
    assert "shown only; `-y` ends it" in said.err
    assert not any(what.startswith("POST") for what, _, _ in server.requests)
    server.answers["POST /v1/infra/clean"] = {
        "infra": "ssh/lab", "released": ["g9-1-1.1-4"], "left": {},
    }  # fmt: skip
    assert typed("clean", "ssh/lab", "-y") == 0
    assert server.asked("POST /v1/infra/clean")[1] == {
        "infra": "ssh/lab", "leases": ["g9-1-1.1-4"],
    }  # fmt: skip
    assert "ended 1 lease on ssh/lab" in capsys.readouterr().err
    server.answers["POST /v1/infra/clean"] = {
        "infra": "ssh/lab", "released": [], "left": {"g9-1-1.1-4": "it is still ending"},
    }  # fmt: skip
    assert typed("clean", "ssh/lab", "-y", "-o", "json") == 6
    assert json.loads(capsys.readouterr().out)["left"]
    server.answers["GET /v1/infra/strangers"] = {"infra": "ssh/lab", "blind": False, "leases": []}
    assert typed("clean", "ssh/lab", "-y") == 0
    assert capsys.readouterr().out == "nothing on ssh/lab belongs to no group\n"


def test_lost_and_forget_say_what_follows(
    server: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers["POST /v1/infra/lost"] = {
        "infra": "ssh/lab", "host": "gpu-2", "groups": ["rl"],
    }  # fmt: skip
    server.answers["POST /v1/infra/forget"] = {
        "infra": "ssh/lab", "host": "gpu-2", "leases": ["a", "b"],
    }  # fmt: skip
    assert typed("lost", "gpu-2", "--infra", "ssh/lab", "--force") == 0
    _, body = server.asked("POST /v1/infra/lost")
    assert (body["host"], body["infra"], body["force"]) == ("gpu-2", "ssh/lab", True)
    assert body["by"]
    assert "gpu-2 of ssh/lab counts as gone; nodes of rl are replaced" in capsys.readouterr().err
    assert typed("forget", "gpu-2") == 0
    assert "gpu-2 of ssh/lab is forgotten, with 2 leases" in capsys.readouterr().err


def test_check_asks_for_what_it_names_and_leaves_out_what_is_unknown(
    server: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    away = {"host": "gpu-3", "state": "unreachable", "total": NONE, "free": NONE, "holders": []}
    lab = {"name": "ssh/lab", "works": True, "facts": [["hosts", "2 of 3 answer"]],
           "problems": [], "hints": [], "hosts": [*HOSTS, away]}  # fmt: skip
    asleep = {"name": "kubernetes/prod", "works": True, "facts": [["state", "not asked yet"]],
              "problems": [], "hints": [], "hosts": []}  # fmt: skip
    server.answers["GET /v1/infra"] = {"infras": [lab, asleep]}
    assert typed("check", "ssh/lab") == 0
    assert server.asked("GET /v1/infra")[0] == {"name": "ssh/lab"}
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["ssh/lab: works", "  hosts: 2 of 3 answer"]
    assert lines[3].endswith("rl (2 nodes), another server (1 node)")
    assert "  gpu-2  lost  " in lines[4]
    assert lines[5].split() == ["gpu-3", "unreachable"]
    assert lines[6] == "kubernetes/prod: not asked yet"


def test_clean_as_json_is_json_when_there_is_nothing(
    server: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers["GET /v1/infra/strangers"] = {"infra": "local", "blind": False, "leases": []}
    assert typed("clean", "local", "-y", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["released"] == []

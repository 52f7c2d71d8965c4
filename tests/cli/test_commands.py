"""Commands as a user types them, each a process, against a server with recorded answers."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from argosy.cli.commands.launch import question
from argosy.errors import Conflict, InputError, InputErrors, NotFound
from argosy.views.near import unknown_infra
from argosy.views.shapes import (
    Explanation,
    GroupRow,
    NodeView,
    Overview,
    PlannedNode,
    PlannedTask,
    PlanView,
    ReasonView,
    TaskView,
)
from tests.cli.typed import ARGOSY, TIMEOUT, argosy
from tests.sdk.answering import Answering, Refused, Stream, answering

FILE = "name: demo\nrun: echo hi\n"


def a_view(phase: str = "RUNNING", exit_code: int | None = None, **changes: Any) -> Overview:
    nodes = (NodeView("trainer-0", 0, phase=phase), NodeView("trainer-1", 1, phase=phase))
    view = Overview(
        id="g1", name="demo", phase=phase, age=5.0, exit_code=exit_code,
        tasks=(TaskView("trainer", phase=phase, up=2, nodes=nodes),),
    )  # fmt: skip
    return replace(view, **changes)


def a_chunk(text: bytes, **changes: object) -> dict[str, object]:
    data = base64.b64encode(text).decode()
    chunk = {"task": "trainer", "index": 0, "attempt": 1, "at": 1.0, "offset": 0, "data": data}
    return {**chunk, **changes}


def a_plan() -> PlanView:
    node = PlannedNode("trainer-0", "trainer-0.demo", "local", "h1")
    return PlanView("demo", tasks=(PlannedTask("trainer", nodes=(node,)),), warnings=("mind",))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    monkeypatch.setenv("ARGOSY_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.yaml").write_text(FILE)
    with answering(tmp_path / "home") as running:
        running.answers.update(
            {
                "GET /v1/server": {"pid": os.getpid(), "version": "0.1.0", "groups": 1},
                "GET /v1/groups/demo": asdict(a_view()),
                "GET /v1/groups/g1": asdict(a_view()),
                "POST /v1/plan": {"plan": asdict(a_plan())},
                "POST /v1/groups": {"id": "g1", "name": "demo", "warnings": ["mind", "new"]},
            }
        )
        yield running


# --- reads ---------------------------------------------------------------------------------------


def test_status_lists_groups(server: Answering) -> None:
    rows = [asdict(GroupRow("g1", "demo", "RUNNING", tasks="trainer 2/2", age=3.0, infra="local"))]
    server.answers["GET /v1/groups"] = {"groups": rows}
    assert "demo  RUNNING  trainer 2/2  3.0 s  local  g1" in argosy("status").stdout
    assert json.loads(argosy("status", "-o", "json").stdout) == rows
    assert json.loads(argosy("status", "-o", "jsonl").stdout) == rows[0]
    assert argosy("status", "-a", "-o", "name").stdout == "demo\n"
    assert server.asked("GET /v1/groups")[0] == {"all": "1"}


def test_status_without_groups_says_what_to_do_on_standard_error(server: Answering) -> None:
    server.answers["GET /v1/groups"] = {"groups": []}
    done = argosy("status")
    assert (done.returncode, done.stdout) == (0, "")
    assert "argosy init" in done.stderr


def test_status_of_a_group_in_every_form(server: Answering) -> None:
    assert "trainer-1" in argosy("status", "demo").stdout
    assert json.loads(argosy("status", "demo", "-o", "json").stdout) == json.loads(
        json.dumps(asdict(a_view()))
    )
    assert argosy("status", "demo", "-o", "name").stdout == "demo/trainer/0\ndemo/trainer/1\n"


def test_status_watch_without_a_terminal_tells_changes_and_no_ages(server: Answering) -> None:
    views = [a_view(), replace(a_view(), age=7.0, now=9e9), a_view("SUCCEEDED", 0)]
    server.answers["GET /v1/groups/demo/watch"] = Stream([asdict(view) for view in views])
    lines = argosy("status", "demo", "-w", "-o", "json").stdout.splitlines()
    assert [json.loads(line)["phase"] for line in lines] == ["RUNNING", "SUCCEEDED"]


def test_status_watch_without_a_terminal_ends_with_the_groups_code(server: Answering) -> None:
    end = a_view("FAILED", 100)
    server.answers["GET /v1/groups/demo/watch"] = Stream([asdict(a_view()), asdict(end)])
    done = argosy("status", "demo", "-w", "-o", "json")
    assert [json.loads(line)["phase"] for line in done.stdout.splitlines()] == ["RUNNING", "FAILED"]
    assert done.returncode == 100


def test_unknown_group_exits_3_with_the_hint_of_the_server(server: Answering) -> None:
    missing = NotFound("there is no group 'nope'", hint="did you mean `demo`?")
    server.answers["GET /v1/groups/nope"] = Refused(404, missing.fields())
    done = argosy("status", "nope")
    assert done.returncode == 3
    assert done.stderr == "error: there is no group 'nope'\nhint: did you mean `demo`?\n"


def test_events_as_lines_and_as_json(server: Answering) -> None:
    event = {"seq": 4, "at": 10.0, "code": "node-failed", "about": "trainer-0", "attempt": 2,
             "text": "exit 3"}  # fmt: skip
    server.answers["GET /v1/groups/demo/events"] = Stream([event])
    assert "trainer-0@2" in argosy("events", "demo").stdout
    assert json.loads(argosy("events", "demo", "-o", "json").stdout)[0] == event


def test_explain_shows_reasons_and_hints_once(server: Answering) -> None:
    reason = ReasonView("queue", "", "behind other", age=5.0, hint="wait")
    told = Explanation("PENDING", "demo waits", (reason,), hints=("wait", "or cancel"))
    server.answers["GET /v1/groups/demo/explain"] = asdict(told)
    assert argosy("explain", "demo").stdout == (
        "demo waits\nthe group waits 5.0 s: behind other [queue]\n  hint: wait\nhint: or cancel\n"
    )


def test_logs_are_data_on_standard_output_and_gaps_are_not(server: Answering) -> None:
    gap = {"task": "trainer", "index": 0, "attempt": 1, "gap": [0, 5000]}
    server.answers["GET /v1/groups/g1/logs"] = Stream([gap, a_chunk(b"a\nb\n")])
    done = argosy("logs", "demo", "--tail", "2", "--since", "1m30s", "--grep", "x")
    assert done.stdout == "[trainer-0] a\n[trainer-0] b\n"
    assert "5,000 bytes" in done.stderr
    assert server.asked("GET /v1/groups/g1/logs")[0] == {"tail": "2", "since": "90.0", "grep": "x"}


def test_why_a_log_cannot_be_read_is_told(server: Answering) -> None:
    note = {"task": "trainer", "index": 0, "attempt": 1, "note": "its host is away"}
    server.answers["GET /v1/groups/g1/logs"] = Stream([note, a_chunk(b"a\n")])
    done = argosy("logs", "demo")
    assert (done.stdout, done.stderr) == ("[trainer-0] a\n", "argosy: its host is away\n")


def test_logs_that_cannot_be_read_at_all_exit_8(server: Answering) -> None:
    note = {"task": "trainer", "index": 0, "attempt": 1, "note": "its host is away"}
    server.answers["GET /v1/groups/g1/logs"] = Stream([note])
    done = argosy("logs", "demo")
    assert (done.returncode, done.stdout, done.stderr) == (8, "", "argosy: its host is away\n")
    assert argosy("logs", "demo", "-o", "jsonl").returncode == 8


def test_logs_of_one_node_have_no_prefix(server: Answering) -> None:
    server.answers["GET /v1/groups/g1/logs"] = Stream([a_chunk(b"a\n")])
    assert argosy("logs", "demo/trainer/0@2").stdout == "a\n"
    query, _ = server.asked("GET /v1/groups/g1/logs")
    assert query == {"task": "trainer", "index": "0", "attempt": "2"}
    assert argosy("logs", "demo/trainer-0", "--previous", "--prefix").stdout == "[trainer-0] a\n"


def test_followed_logs_exit_with_the_groups_code(server: Answering) -> None:
    server.answers["GET /v1/groups/g1/logs"] = Stream([a_chunk(b"a\n")])
    end = a_view("FAILED", 100, root_text="trainer-1 exited with 3", root="trainer-1")
    server.answers["GET /v1/groups/g1/wait"] = asdict(end)
    done = argosy("logs", "-f", "demo")
    assert (done.returncode, done.stdout) == (100, "[trainer-0] a\n")
    assert "trainer-1 exited with 3" in done.stderr


def test_reader_that_goes_away_is_no_error(server: Answering) -> None:
    server.answers["GET /v1/groups/g1/logs"] = Stream([a_chunk(b"line\n" * 20_000)] * 20)
    words = " ".join(ARGOSY)
    done = subprocess.run(
        ["bash", "-c", f"{words} logs demo | head -n 1"],
        capture_output=True, text=True, timeout=TIMEOUT,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("[trainer-0] line\n", "")


def test_infra_check_lists_facts_problems_and_hosts(server: Answering) -> None:
    half = {"name": "local", "works": False, "facts": [["network", "host"]], "problems": ["no nft"],
            "hints": ["install nftables"], "hosts": [
                {"host": "h1", "state": "up", "holders": [
                    {"group": "g1", "name": "rl", "own": True, "nodes": 1}],
                 "total": {"cpus": 8, "memory_gib": 32, "accelerators": [
                     {"name": "H100", "count": 8}]},
                 "free": {"cpus": 6, "memory_gib": 30, "accelerators": [
                     {"name": "H100", "count": 2}]}}]}  # fmt: skip
    server.answers["GET /v1/infra"] = {"infras": [half]}
    done = argosy("infra", "check")
    assert done.returncode == 6
    for text in ("network: host", "problem: no nft", "hint: install nftables", "6/8", "H100:2/8"):
        assert text in done.stdout
    assert "rl (1 node)" in done.stdout


# --- launch --------------------------------------------------------------------------------------


def test_infra_that_is_not_here_is_answered_with_the_near_one(server: Answering) -> None:
    text, hints = unknown_infra("rack", ("local", "local/rack"))
    wrong = NotFound(text, code="infra/unknown", hint=hints)
    server.answers["GET /v1/infra"] = Refused(404, wrong.fields())
    done = argosy("infra", "check", "rack")
    assert (done.returncode, "did you mean local/rack?" in done.stderr) == (3, True)
    assert "docs/infra.md" in done.stderr
    assert server.asked("GET /v1/infra")[0] == {"name": "rack"}


def test_plan_is_data(server: Answering) -> None:
    done = argosy("plan", "g.yaml", "--set", "demo.resources.cpus=1", "--no-accelerators")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("demo: 1 task, 1 node")
    _, body = server.asked("POST /v1/plan")
    assert (body["set"], body["no_accelerators"]) == (["demo.resources.cpus=1"], True)
    assert json.loads(argosy("plan", "g.yaml", "-o", "json").stdout)["name"] == "demo"


def test_plan_that_does_not_fit_exits_4(server: Answering) -> None:
    server.answers["POST /v1/plan"] = {"plan": asdict(replace(a_plan(), fits=False))}
    assert argosy("plan", "g.yaml").returncode == 4


def test_launch_follows_to_the_end(server: Answering) -> None:
    views = [a_view("STARTING"), a_view(), a_view("SUCCEEDED", 0)]
    server.answers["GET /v1/groups/g1/watch"] = Stream([asdict(view) for view in views])
    server.answers["GET /v1/groups/g1/logs"] = Stream([a_chunk(b"hi\n")])
    done = argosy("launch", "g.yaml")
    assert (done.returncode, done.stdout) == (0, "[trainer-0] hi\n")
    assert "demo: 1 task" in done.stderr
    assert "demo STARTING\n" in done.stderr
    assert "demo SUCCEEDED after 5.0 s" in done.stderr
    assert done.stderr.count("mind") == 1
    assert "warning: new" in done.stderr


def test_an_interrupt_while_the_server_has_the_launch_says_that_it_may_start(
    server: Answering,
) -> None:
    taken, over = threading.Event(), threading.Event()

    def slow(query: dict[str, str]) -> dict[str, str]:
        taken.set()
        over.wait(60.0)
        return {"id": "g1", "name": "demo"}

    server.answers["POST /v1/groups"] = slow
    process = subprocess.Popen([*ARGOSY, "launch", "g.yaml"], stderr=subprocess.PIPE, text=True)
    try:
        assert taken.wait(60.0)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60.0)
    finally:
        over.set()
        process.kill()
    assert process.returncode == 130
    assert "demo may start all the same" in said
    assert "argosy cancel demo" in said


@pytest.mark.parametrize(("phase", "code"), [("FAILED", 100), ("CANCELLED", 103)])
def test_launch_exits_with_the_groups_code(server: Answering, phase: str, code: int) -> None:
    server.answers["GET /v1/groups/g1/watch"] = Stream([asdict(a_view(phase, code))])
    server.answers["GET /v1/groups/g1/logs"] = Stream([])
    assert argosy("launch", "g.yaml").returncode == code


@pytest.mark.parametrize("output", ["json", "name"])
def test_launch_for_a_program_keeps_logs_off_standard_output(
    server: Answering, output: str
) -> None:
    views = [a_view(), a_view("SUCCEEDED", 0)]
    server.answers["GET /v1/groups/g1/watch"] = Stream([asdict(view) for view in views])
    server.answers["GET /v1/groups/g1/logs"] = Stream([a_chunk(b"hi\n")])
    done = argosy("launch", "g.yaml", "-o", output)
    assert (done.returncode, "[trainer-0] hi\n" in done.stderr) == (0, True)
    if output == "name":
        assert done.stdout == "demo\n"
    else:
        assert json.loads(done.stdout)["phase"] == "SUCCEEDED"


def test_question_of_a_launch_names_the_group_that_it_ends() -> None:
    assert question("demo", "") == "Launch it?"
    assert "The running group demo (g7) is ended first" in question("demo", "g7")


def test_launch_detached_prints_the_name(server: Answering) -> None:
    done = argosy("launch", "-d", "g.yaml")
    assert (done.returncode, done.stdout) == (0, "demo\n")
    assert "argosy logs -f demo" in done.stderr
    assert json.loads(argosy("launch", "-d", "g.yaml", "-o", "json").stdout)["id"] == "g1"


def test_launch_sends_what_the_command_line_and_the_environment_give(
    server: Answering, tmp_path: Path
) -> None:
    (tmp_path / "g.yaml").write_text("name: demo\nsecrets: [TOKEN]\nrun: echo\n")
    (tmp_path / "e.env").write_text("# c\nexport A=1\nB='two words'\n")
    argosy(
        "launch", "-d", "g.yaml", "--env-file", "e.env", "--env", "A=3", "--env", "HERE",
        "--secret", "S=x", "--name", "other", "--infra", "local", "--network", "host", "--replace",
        HERE="there", TOKEN="t", OTHER="o",
    )  # fmt: skip
    _, body = server.asked("POST /v1/groups")
    assert body["envs"] == {"A": "3", "B": "two words", "HERE": "there"}
    assert (body["secrets"], body["environ"]) == ({"S": "x"}, {"TOKEN": "t"})
    assert (body["name"], body["infra"], body["network"]) == ("other", "local", "host")
    assert (body["replace"], body["base"], body["file"]) == (True, str(tmp_path), "g.yaml")


def test_launch_reads_standard_input(server: Answering) -> None:
    assert argosy("launch", "-d", "-", input=FILE).returncode == 0
    assert server.asked("POST /v1/groups")[1]["text"] == FILE


def test_launch_with_a_price_asks_nobody_without_a_terminal(server: Answering) -> None:
    plan = replace(a_plan(), price_per_hour_usd=9.0)
    server.answers["POST /v1/plan"] = {"plan": asdict(plan)}
    done = argosy("launch", "-d", "g.yaml")
    assert (done.returncode, "$9.00 per hour" in done.stderr) == (0, True)


def test_launch_under_a_living_name_exits_7(server: Answering) -> None:
    taken = Conflict("demo lives", hint=("--replace ends it", "--name another"))
    server.answers["POST /v1/groups"] = Refused(409, taken.fields())
    done = argosy("launch", "g.yaml")
    assert done.returncode == 7
    assert "hint: --replace ends it\nhint: --name another\n" in done.stderr


def test_errors_of_a_file_exit_2_one_by_one(server: Answering) -> None:
    errors = InputErrors((InputError("a", hint="x"), InputError("b", hint="y")))
    server.answers["POST /v1/plan"] = Refused(400, errors.fields())
    done = argosy("launch", "g.yaml")
    assert (done.returncode, done.stderr.count("error:")) == (2, 2)


def test_variable_that_is_not_set_is_told_before_anything_is_asked(server: Answering) -> None:
    done = argosy("launch", "g.yaml", "--env", "NOT_THERE_AT_ALL")
    assert done.returncode == 2
    assert "NOT_THERE_AT_ALL" in done.stderr
    assert server.requests == []


def test_first_interrupt_detaches_and_says_how_to_come_back(server: Answering) -> None:
    release = threading.Event()

    def endless(query: dict[str, str]) -> Stream:
        release.wait(TIMEOUT)
        return Stream([])

    server.answers["GET /v1/groups/g1/logs"] = endless
    process = subprocess.Popen(
        [*ARGOSY, "logs", "-f", "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: any(name.endswith("/logs") for name, _, _ in server.requests))
        process.send_signal(signal.SIGINT)
        out, told = process.communicate(timeout=TIMEOUT)
    finally:
        release.set()
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert "argosy: detached; demo goes on" in told
    assert "argosy logs -f demo" in told
    assert "argosy cancel demo" in told
    assert not any(name.endswith("/cancel") for name, _, _ in server.requests)


def wait_until(holds: Any) -> None:
    """Returns once it holds; fails after a minute."""
    moment = threading.Event()
    for _ in range(int(TIMEOUT / 0.02)):
        if holds():
            return
        moment.wait(0.02)
    raise AssertionError("it did not come to hold")


# --- changes -------------------------------------------------------------------------------------


def test_wait_exits_with_the_groups_code_or_124(server: Answering) -> None:
    server.answers["GET /v1/groups/g1/wait"] = Refused(408, {})
    assert argosy("wait", "demo", "--timeout", "1s").returncode == 124
    server.answers["GET /v1/groups/g1/wait"] = asdict(a_view("CANCELLED", 103))
    done = argosy("wait", "demo", "-o", "json")
    assert (done.returncode, json.loads(done.stdout)["phase"]) == (103, "CANCELLED")


def test_cancel_waits_for_the_end(server: Answering) -> None:
    server.answers["POST /v1/groups/g1/cancel"] = {"ok": True}
    server.answers["GET /v1/groups/g1/wait"] = asdict(a_view("CANCELLED", 103))
    done = argosy("cancel", "demo", "--now")
    assert (done.returncode, done.stderr) == (0, "argosy: demo CANCELLED\n")
    assert server.asked("POST /v1/groups/g1/cancel")[1] == {"now": True}


def test_restart_of_a_part_names_it_as_the_file_does(server: Answering) -> None:
    server.answers["POST /v1/groups/g1/restart"] = {"ok": True}
    assert argosy("restart", "demo/trainer-1").returncode == 0
    assert server.asked("POST /v1/groups/g1/restart")[1] == {"task": "trainer", "index": 1}
    argosy("restart", "demo")
    assert server.asked("POST /v1/groups/g1/restart")[1] == {"task": "", "index": None}


def test_chaos_needs_one_node(server: Answering) -> None:
    server.answers["POST /v1/groups/g1/chaos"] = {"ok": True}
    done = argosy("chaos", "kill", "demo/trainer")
    assert done.returncode == 2
    assert "say which: demo/trainer/0, demo/trainer/1" in done.stderr
    assert argosy("chaos", "freeze", "demo/trainer/1").returncode == 0
    body = server.asked("POST /v1/groups/g1/chaos")[1]
    assert body == {"what": "freeze", "task": "trainer", "index": 1}


def test_rm_forgets_each_group(server: Answering) -> None:
    server.answers["DELETE /v1/groups/g1"] = {"ok": True}
    rows = [{"id": one, "name": "demo", "phase": "FAILED"} for one in ("g0", "g00")]
    server.answers["GET /v1/groups"] = {"groups": rows}
    done = argosy("rm", "demo", "demo")
    assert (done.returncode, "2 older groups of that name remain" in done.stderr) == (0, True)
    assert [name for name, _, _ in server.requests].count("DELETE /v1/groups/g1") == 2


def test_rm_by_force_asks_for_it(server: Answering) -> None:
    server.answers["DELETE /v1/groups/g1"] = {"ok": True}
    server.answers["GET /v1/groups"] = {"groups": []}
    assert argosy("rm", "demo").returncode == 0
    assert argosy("rm", "--force", "demo").returncode == 0
    asked = [query for name, query, _ in server.requests if name == "DELETE /v1/groups/g1"]
    assert [query.get("force", "") for query in asked] == ["", "1"]


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("demo/other", "it has demo/trainer"),
        ("demo/trainer/7", "the last one is demo/trainer/1"),
        ("demo//1", "write GROUP"),
        ("demo/trainer@2", "write GROUP"),
    ],
)
def test_wrong_address_is_answered_with_the_right_ones(
    server: Answering, address: str, told: str
) -> None:
    done = argosy("logs", address)
    assert done.returncode in (2, 3)
    assert told in done.stderr
